"""The ego driven like a human: what the FVD model wants, turned into a pedal position."""

from types import ModuleType
from typing import Any

import jax.numpy as jnp

from ashore.environments.platoon import car_following
from ashore.environments.platoon.config import GAP_SCALE, SPEED_SCALE, PlatoonConfig
from ashore.environments.platoon.parameters import PlatoonParameters, resistance, vehicle


def fvd_action(observation: Any, parameters: PlatoonParameters, config: PlatoonConfig, xp: ModuleType = jnp) -> Any:
    """The pedal position at which the car that `parameters` describe would settle at FVD's acceleration.

    The map is static: it balances resistance and does not anticipate the actuators' lag. Given the true parameters it
    is the best such map; given the nominal ones it is what a driver does who does not know the car.

    Args:
        observation: [..., 9]. Gaps beyond 60 m look like 60 m, where V has flattened out.
        parameters: the car that the driver believes in; fields broadcast against the observation's leading axes.
        config: whose driving habits.
        xp: the array library, jax.numpy or numpy.

    Returns:
        Actions [..., 1].
    """
    speed = SPEED_SCALE * observation[..., 0]
    lead_speed = SPEED_SCALE * observation[..., 3]
    gap = GAP_SCALE * observation[..., 6]
    car = vehicle(parameters)
    wish = car_following.acceleration(config.driver, gap, speed, lead_speed, xp)
    force = car.mass * wish + resistance(car, speed, xp)
    pedal = force / xp.where(force > 0, car.drive, car.brake)
    return xp.clip(pedal, -1.0, 1.0)[..., None]
