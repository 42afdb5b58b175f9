"""The dynamics head: what will this action change, if the world is z?

From (s, a, z) it predicts the normalised change of the dynamics features, the reward and the cost. Its likelihood is
the reconstruction term of the encoder's variational bound and is what makes z say something about the physics.
"""

from dataclasses import dataclass

import jax.numpy as jnp

from ashore.networks.layers import Params, mlp, mlp_init
from ashore.types import Array

MIN_LOG_SCALE = -3.0
"""A learnt scale stops at 0.05 standard deviations: a noiseless simulator would otherwise drive it to zero."""


@dataclass(frozen=True)
class DynamicsConfig:
    """Shape of the dynamics head."""

    observation: int
    action: int
    features: int
    latent: int = 5
    hidden: tuple[int, ...] = (256, 256, 256)
    scale: str = "unit"
    """`unit`: every normalised target has standard deviation 1. `learnt`: one trained scale per target."""
    compute: str = "float32"

    def __post_init__(self) -> None:
        if self.scale not in ("unit", "learnt"):
            raise ValueError(f"The likelihood's scale is 'unit' or 'learnt', not '{self.scale}'.")

    @property
    def outputs(self) -> int:
        """Changes of the dynamics features, then reward, then cost."""
        return self.features + 2


def init(key: Array, config: DynamicsConfig) -> Params:
    """Weights of the MLP, and `log_scale` of the likelihood (unused and untouched when the scale is `unit`)."""
    inputs = config.observation + config.action + config.latent
    network = mlp_init(key, inputs, config.hidden, config.outputs)
    return {"network": network, "log_scale": jnp.zeros(config.outputs, jnp.float32)}


def apply(config: DynamicsConfig, params: Params, observation: Array, action: Array, latent: Array) -> Array:
    """Predicted (change, reward, cost) of one decision, normalised, [outputs]."""
    assert observation.shape == (config.observation,), observation.shape
    assert action.shape == (config.action,), action.shape
    assert latent.shape == (config.latent,), latent.shape
    return mlp(params["network"], jnp.concatenate([observation, action, latent]), config.compute)


def negative_log_likelihood(config: DynamicsConfig, params: Params, prediction: Array, target: Array) -> Array:
    """mean_k [ ((y_k - m_k) / s_k)^2 / 2 + ln s_k ]: Gaussian, without its constant.

    The mean over targets, not the sum, keeps its weight against the KL the same for tasks with few and many features.
    """
    assert prediction.shape == target.shape == (config.outputs,), (prediction.shape, target.shape)
    error = target - prediction
    if config.scale == "unit":
        return 0.5 * jnp.mean(jnp.square(error))
    log_scale = jnp.maximum(params["log_scale"], MIN_LOG_SCALE)
    return jnp.mean(0.5 * jnp.square(error * jnp.exp(-log_scale)) + log_scale)
