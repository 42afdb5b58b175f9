"""The deterministic actor pi(s, z): an MLP whose output is squashed into the action box [-1, 1].

What it is conditioned on besides the observation is z, or (z, eta) where the policy takes a risk level.
"""

from dataclasses import dataclass

import jax.numpy as jnp

from ashore.networks.layers import Params, mlp, mlp_init
from ashore.types import Array


@dataclass(frozen=True)
class ActorConfig:
    """Shape of the actor."""

    observation: int
    action: int
    condition: int = 5
    """Numbers the action is conditioned on: the latent, and the risk level where there is one."""
    hidden: tuple[int, ...] = (256, 256, 256)
    compute: str = "float32"


def init(key: Array, config: ActorConfig) -> Params:
    """Weights; the last layer starts small so that no action is saturated before the first update."""
    return mlp_init(key, config.observation + config.condition, config.hidden, config.action, output_gain=1e-2)


def preactivation(config: ActorConfig, params: Params, observation: Array, condition: Array) -> Array:
    """MLP(s, z) for one normalised observation and one condition, before it is squashed."""
    assert observation.shape == (config.observation,), observation.shape
    assert condition.shape == (config.condition,), condition.shape
    return mlp(params, jnp.concatenate([observation, condition]), config.compute)


def apply(config: ActorConfig, params: Params, observation: Array, condition: Array) -> Array:
    """tanh(MLP(s, z)) for one normalised observation and one condition."""
    return jnp.tanh(preactivation(config, params, observation, condition))
