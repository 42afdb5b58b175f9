"""Platoon: a car among human drivers damps the oscillations of traffic."""

from ashore.environments.platoon.c_world import PlatoonCWorld
from ashore.environments.platoon.config import PRESETS, PlatoonConfig
from ashore.environments.platoon.fvd_controller import fvd_action
from ashore.environments.platoon.parameters import SHIFTS, PlatoonParameters
from ashore.environments.platoon.task import Platoon, PlatoonState

__all__ = [
    "PRESETS",
    "SHIFTS",
    "Platoon",
    "PlatoonCWorld",
    "PlatoonConfig",
    "PlatoonParameters",
    "PlatoonState",
    "fvd_action",
]
