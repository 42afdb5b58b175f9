"""Figures of an episode that reports compare, kept as running sums: oscillation, jerk, fuel, nearness."""

from typing import NamedTuple

import jax.numpy as jnp

from ashore.environments.platoon.rules import Moment
from ashore.types import Array

SLOWING_DOWN = -1e-3
"""Acceleration in m/s^2 below which the engine idles. The published threshold is zero, where the rate jumps by up to
a factor of four: the sign of a rounding error would decide what a car at a steady speed consumes."""


class Totals(NamedTuple):
    """Running sums over the decisions of an episode."""

    decisions: Array
    """int32."""
    ego_mean: Array
    ego_deviation: Array
    """Sum of squared deviations from the mean. Kept by Welford's recurrence: the difference of two sums of squares
    would lose a small standard deviation to float32."""
    lead_mean: Array
    lead_deviation: Array
    jerk_squared: Array
    jerk_abs: Array
    fuel: Array
    collisions: Array
    """Decisions that ended with a gap of zero or less ahead of or behind the ego, int32."""
    min_gap: Array


def fuel_rate(speed: Array, acceleration: Array) -> Array:
    """Fuel in mL/s at a speed in m/s and an acceleration in m/s^2; 0.1 while slowing down.

    Polynomial of Kamal, Mukai, Murata and Kawabe, "Ecological driver assistance system using model-based anticipation
    of vehicle-road-traffic information", IET Intelligent Transport Systems 4 (2010).
    """
    cruise = 0.1569 + speed * (0.0245 + speed * (-7.415e-4 + speed * 5.975e-5))
    accelerate = jnp.maximum(acceleration, 0.0) * (0.07224 + speed * (0.09681 + speed * 1.075e-3))
    return jnp.where(acceleration < SLOWING_DOWN, 0.1, cruise + accelerate)


def begin(moment: Moment) -> Totals:
    """No decision taken yet."""
    zero, none = jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32)
    nearest = jnp.minimum(moment.lead_gap, moment.follow_gap)
    return Totals(none, zero, zero, zero, zero, zero, zero, zero, none, nearest)


def add(totals: Totals, moment: Moment, period: float) -> Totals:
    """Count the moment at which a decision of `period` s ended."""
    decisions = totals.decisions + 1
    ego_mean, ego_deviation = _welford(totals.ego_mean, totals.ego_deviation, decisions, moment.ego_speed)
    lead_mean, lead_deviation = _welford(totals.lead_mean, totals.lead_deviation, decisions, moment.lead_speed)
    nearest = jnp.minimum(moment.lead_gap, moment.follow_gap)
    return Totals(
        decisions=decisions,
        ego_mean=ego_mean,
        ego_deviation=ego_deviation,
        lead_mean=lead_mean,
        lead_deviation=lead_deviation,
        jerk_squared=totals.jerk_squared + period * jnp.square(moment.ego_jerk),
        jerk_abs=totals.jerk_abs + period * jnp.abs(moment.ego_jerk),
        fuel=totals.fuel + fuel_rate(moment.ego_speed, moment.ego_acceleration),
        collisions=totals.collisions + (nearest <= 0).astype(jnp.int32),
        min_gap=jnp.minimum(totals.min_gap, nearest),
    )


def _welford(mean: Array, deviation: Array, count: Array, value: Array) -> tuple[Array, Array]:
    difference = value - mean
    mean = mean + difference / count.astype(jnp.float32)
    return mean, deviation + difference * (value - mean)


def summarise(totals: Totals) -> dict[str, Array]:
    """The episode so far; names carry the units that are not plain m and s.

    The oscillation ratio is the standard deviation of the ego's speed over that of the human-driven car ahead of it:
    below one, the ego damps. Jerk integrals run over time, in m^2/s^5 and m/s^2.
    """
    count = jnp.maximum(totals.decisions, 1).astype(jnp.float32)
    # Before anything has moved the ratio is 0 / 0; a nearly still car ahead must not blow it up either.
    still = 1e-6 * count
    return {
        "oscillation_ratio": jnp.sqrt(totals.ego_deviation / jnp.maximum(totals.lead_deviation, still)),
        "jerk_squared_integral": totals.jerk_squared,
        "jerk_abs_integral": totals.jerk_abs,
        "fuel_mL_per_s": totals.fuel / count,
        "collisions": totals.collisions.astype(jnp.float32),
        "min_gap": totals.min_gap,
        "mean_speed": totals.ego_mean,
    }
