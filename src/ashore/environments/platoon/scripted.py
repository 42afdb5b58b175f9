"""The ego driven by the model of the humans around it, who take it for the nominal car."""

import numpy as np

from ashore.environments import randomisation
from ashore.environments.base import TaskDescription
from ashore.environments.platoon.config import PlatoonConfig
from ashore.environments.platoon.fvd_controller import fvd_action
from ashore.environments.platoon.parameters import PlatoonParameters


class HumanDriver:
    """Maps an observation to a pedal position with the habits of the default preset's drivers."""

    def __init__(self, description: TaskDescription) -> None:
        self._nominal = randomisation.from_names(description.shifts["nominal"], PlatoonParameters, {})
        self._config = PlatoonConfig()

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """The pedal for this sight."""
        return fvd_action(observation, self._nominal, self._config, np)
