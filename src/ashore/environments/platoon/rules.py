"""What the ego sees, earns and pays at one moment (paper, driving task: state, reward and cost)."""

from typing import NamedTuple

import jax.numpy as jnp

from ashore.environments.platoon.config import (
    ACCELERATION_RANGE,
    ACCELERATION_SCALE,
    GAP_RANGE,
    GAP_SCALE,
    JERK_RANGE,
    JERK_SCALE,
    SPEED_RANGE,
    SPEED_SCALE,
    PlatoonConfig,
)
from ashore.types import Array


class Moment(NamedTuple):
    """The nine numbers of the paper's state, in m and s, unscaled and unclipped."""

    ego_speed: Array
    ego_acceleration: Array
    ego_jerk: Array
    lead_speed: Array
    lead_acceleration: Array
    lead_jerk: Array
    lead_gap: Array
    """Net gap between the ego and the car ahead."""
    follow_speed: Array
    follow_gap: Array
    """Net gap between the ego and the car behind."""


def observation(moment: Moment) -> Array:
    """The moment as the policy sees it: scaled to order one and clipped to the declared bounds, [9]."""
    motion = ((SPEED_SCALE, SPEED_RANGE), (ACCELERATION_SCALE, ACCELERATION_RANGE), (JERK_SCALE, JERK_RANGE))
    gap = (GAP_SCALE, GAP_RANGE)
    rules = (*motion, *motion, gap, motion[0], gap)
    return jnp.stack(
        [jnp.clip(value / scale, low, high) for value, (scale, (low, high)) in zip(moment, rules, strict=True)]
    )


def reward_terms(config: PlatoonConfig, moment: Moment) -> dict[str, Array]:
    """Closing in, speed, acceleration and jerk; the reward is their sum."""
    closing = jnp.maximum(moment.ego_speed - moment.lead_speed, 0.0)
    near = jnp.where(moment.lead_gap < config.l_c, config.f_v, 0.0)
    return {
        "closing": -near * jnp.square(closing),
        "speed": config.f_s * jnp.square(jnp.minimum(moment.ego_speed, config.v_max)),
        "acceleration": -config.f_a * jnp.square(moment.ego_acceleration),
        "jerk": -config.f_j * jnp.square(moment.ego_jerk),
    }


def cost_terms(config: PlatoonConfig, moment: Moment) -> dict[str, Array]:
    """The larger inverse time to collision, in 1/s, charged to the side it comes from; the other side pays zero.

    Gaps are floored, since the rule divides by them, and the cost of a decision is capped: a collision is the worst
    that can happen, and it does not get worse while the cars overlap.
    """
    front = _inverse_time_to_collision(config, moment.ego_speed - moment.lead_speed, moment.lead_gap)
    rear = _inverse_time_to_collision(config, moment.follow_speed - moment.ego_speed, moment.follow_gap)
    front_is_worse = front >= rear
    return {"front": jnp.where(front_is_worse, front, 0.0), "rear": jnp.where(front_is_worse, 0.0, rear)}


def _inverse_time_to_collision(config: PlatoonConfig, closing_speed: Array, gap: Array) -> Array:
    inverse = jnp.maximum(closing_speed, 0.0) / jnp.maximum(gap, config.gap_floor)
    return jnp.minimum(inverse, config.cost_cap)
