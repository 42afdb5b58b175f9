"""FVD: the ego car of Platoon driven by the car-following model of the humans around it. Nothing is learnt.

What the model wants is an acceleration. Which pedal gives it depends on the car: with the true parameters the inverse
actuation map is the best static one, with the nominal ones it is that of a driver who does not know the car.
"""

from ashore.environments.base import Task
from ashore.environments.platoon.fvd_controller import fvd_action
from ashore.environments.platoon.task import Platoon
from ashore.methods.base import Method
from ashore.types import Array, Parameters, Policy


def controller(task: Task, believed: Parameters) -> Policy:
    """The driver of a car that is believed to have these parameters."""
    if not isinstance(task, Platoon):
        raise ValueError(f"FVD drives cars: it knows Platoon, not {task.description.name}.")
    config = task.config

    def policy(observation: Array, key: Array) -> Array:
        del key
        return fvd_action(observation, believed, config)

    return policy


FVD = Method(
    summary="The full-velocity-difference car-following model at the pedals; Platoon only, nothing is learnt.",
    reference="Jiang, Wu and Zhu 2001, Full velocity difference model for a car-following theory",
    differs="the wished acceleration goes through a static inverse actuation map, of the true or of the nominal car",
    instead="fvd is a controller and is not trained: it drives Platoon as it is.",
    controller=controller,
)
