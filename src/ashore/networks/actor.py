"""The deterministic actor pi(s, z): an MLP whose output is squashed into the action box [-1, 1]."""

from dataclasses import dataclass

import jax.numpy as jnp

from ashore.networks.layers import Params, mlp, mlp_init
from ashore.types import Array


@dataclass(frozen=True)
class ActorConfig:
    """Shape of the actor."""

    observation: int
    action: int
    latent: int = 5
    hidden: tuple[int, ...] = (256, 256, 256)
    compute: str = "float32"


def init(key: Array, config: ActorConfig) -> Params:
    """Weights; the last layer starts small so that no action is saturated before the first update."""
    return mlp_init(key, config.observation + config.latent, config.hidden, config.action, output_gain=1e-2)


def apply(config: ActorConfig, params: Params, observation: Array, latent: Array) -> Array:
    """tanh(MLP(s, z)) for one normalised observation and one latent context."""
    assert observation.shape == (config.observation,), observation.shape
    assert latent.shape == (config.latent,), latent.shape
    return jnp.tanh(mlp(params, jnp.concatenate([observation, latent]), config.compute))
