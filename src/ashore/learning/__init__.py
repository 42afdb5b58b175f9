"""Learning: replay by task, the losses, the multiplier and the alternating update."""

from ashore.learning.lagrangian import MultiplierState, PIDConfig
from ashore.learning.losses import ENCODER_OBJECTIVES, EncoderObjective
from ashore.learning.normalisation import Normalisers
from ashore.learning.objectives import ObjectiveConfig
from ashore.learning.replay import Context, Experience, ReplayConfig, ReplayState
from ashore.learning.updates import LearnerConfig, LearnerState, update_step

__all__ = [
    "ENCODER_OBJECTIVES",
    "Context",
    "EncoderObjective",
    "Experience",
    "LearnerConfig",
    "LearnerState",
    "MultiplierState",
    "Normalisers",
    "ObjectiveConfig",
    "PIDConfig",
    "ReplayConfig",
    "ReplayState",
    "update_step",
]
