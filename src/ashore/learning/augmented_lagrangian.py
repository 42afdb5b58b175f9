"""The augmented Lagrangian: a multiplier that follows the cost critic, one step with every step of the actor.

With g = Q_c - d, the excess of the predicted cost over the budget,

    the actor pays     lambda g + c/2 g^2   where lambda + c g > 0,   -lambda^2 / (2 c) elsewhere
    then               lambda <- clip(lambda + c g, 0, cap),          c <- min(c (1 + growth), highest c)

It is the rule of SPiDR (As et al. 2025), kept for the faithful form of that method. Its constants let c fall from 2 to
1 with the first step and stay there, and lambda cross its whole range within ten steps: almost a switch.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp

from ashore.types import Array


@dataclass(frozen=True)
class AugmentedConfig:
    """Constants of the rule, SPiDR's for PointGoal2."""

    initial: float = 5.0
    cap: float = 100.0
    curvature: float = 2.0
    """c at the start."""
    growth: float = 0.25
    curvature_cap: float = 1.0
    """Highest c. Below its start, as shipped: c drops to it with the first step."""

    def __post_init__(self) -> None:
        if not (0.0 <= self.initial <= self.cap and self.curvature > 0.0 and self.curvature_cap > 0.0):
            raise ValueError("The multiplier must start between 0 and its cap, and the curvature must be positive.")


class AugmentedState(NamedTuple):
    """The multiplier and its curvature, float32 scalars."""

    multiplier: Array
    curvature: Array


def init(config: AugmentedConfig) -> AugmentedState:
    """A multiplier before the first step."""
    return AugmentedState(jnp.float32(config.initial), jnp.float32(config.curvature))


def charge(state: AugmentedState, excess: Array) -> Array:
    """What the actor pays for an excess g; its slope is max(0, lambda + c g)."""
    assert excess.ndim == 0, excess.shape
    inside = state.multiplier * excess + 0.5 * state.curvature * jnp.square(excess)
    outside = -0.5 * jnp.square(state.multiplier) / state.curvature
    return jnp.where(state.multiplier + state.curvature * excess > 0.0, inside, outside)


def update(config: AugmentedConfig, state: AugmentedState, excess: Array) -> AugmentedState:
    """The multiplier after a step of the actor at which the excess was g; one that is not finite moves nothing."""
    assert excess.ndim == 0, excess.shape
    moved = AugmentedState(
        jnp.clip(state.multiplier + state.curvature * excess, 0.0, config.cap),
        jnp.minimum(state.curvature * (1.0 + config.growth), config.curvature_cap),
    )
    known = jnp.isfinite(excess)
    return AugmentedState(*(jnp.where(known, new, old) for new, old in zip(moved, state, strict=True)))
