"""How human drivers follow: the full velocity difference (FVD) model.

Jiang, Wu and Zhu, "Full velocity difference model for a car-following theory", Physical Review E 64 (2001) 017101:
a = k (V(s) - v) + lambda (v_lead - v), with V fitted to city traffic by Helbing and Tilch (1998). Every function takes
the array library as `xp` (jax.numpy or numpy); lengths in m, speeds in m/s, accelerations in m/s^2.
"""

from types import ModuleType
from typing import Any, NamedTuple

import jax.numpy as jnp

Numbers = Any
"""A JAX or NumPy array, or a float."""

V1, V2, C1, C2 = 6.75, 7.91, 0.13, 1.57
REACH = 100.0
"""Gap in m beyond which a driver no longer reacts to the speed of the car ahead."""
HARDEST_BRAKING, HARDEST_THROTTLE = -6.0, 3.0
CRUISE_FRACTION = 0.98
"""Share of the top speed up to which a gap in equilibrium exists within sight (27 m for city traffic)."""


class Driver(NamedTuple):
    """The habits of a human driver."""

    k: float
    """Sensitivity to the optimal speed, 1/s."""
    lam: float
    """Sensitivity to the speed difference, 1/s."""
    stretch: float = 1.0
    """Speeds of V times this and slope unchanged: 2 turns city traffic (top 14.66 m/s) into highway traffic."""


def top_speed(driver: Driver) -> float:
    """Speed on an empty road."""
    return driver.stretch * (V1 + V2)


def cruise_speed(driver: Driver) -> float:
    """Highest speed at which a platoon can be started in equilibrium."""
    return CRUISE_FRACTION * top_speed(driver)


def optimal_speed(driver: Driver, gap: Numbers, xp: ModuleType = jnp) -> Numbers:
    """V(s): the speed a driver wants at a net gap."""
    return driver.stretch * (V1 + V2 * xp.tanh(C1 / driver.stretch * gap - C2))


def optimal_speed_slope(driver: Driver, gap: Numbers, xp: ModuleType = jnp) -> Numbers:
    """V'(s) in 1/s: the platoon damps disturbances where it is below k / 2 + lambda."""
    return V2 * C1 / xp.square(xp.cosh(C1 / driver.stretch * gap - C2))


def equilibrium_gap(driver: Driver, speed: Numbers, xp: ModuleType = jnp) -> Numbers:
    """The gap that a driver keeps at a steady speed, V^-1; speeds above `cruise_speed` count as that."""
    steady = xp.minimum(speed, cruise_speed(driver))
    return driver.stretch / C1 * (xp.arctanh((steady / driver.stretch - V1) / V2) + C2)


def acceleration(driver: Driver, gap: Numbers, speed: Numbers, lead_speed: Numbers, xp: ModuleType = jnp) -> Numbers:
    """What the driver does next, limited to what a driver in traffic asks of a car."""
    attention = xp.where(gap < REACH, driver.lam, 0.0)
    wish = driver.k * (optimal_speed(driver, gap, xp) - speed) + attention * (lead_speed - speed)
    return xp.clip(wish, HARDEST_BRAKING, HARDEST_THROTTLE)
