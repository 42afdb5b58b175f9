"""The dynamics head: what will this action change, if the world is z?

From (s, a, z) it predicts the normalised change of the dynamics features, the reward and the cost. Its likelihood is
the reconstruction term of the encoder's variational bound and is what makes z say something about the physics.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ashore.networks.layers import Params, mlp, mlp_init
from ashore.types import Array

MIN_LOG_SCALE = -3.0
"""A scale stops at 0.05 standard deviations: a noiseless simulator would otherwise drive it to zero."""
SCALES = ("unit", "learnt", "predicted")


@dataclass(frozen=True)
class DynamicsConfig:
    """Shape of the dynamics head."""

    observation: int
    action: int
    features: int
    latent: int = 5
    hidden: tuple[int, ...] = (256, 256, 256)
    scale: str = "unit"
    """`unit`: every normalised target has standard deviation 1. `learnt`: one trained scale per target. `predicted`:
    the head says of each decision how well it knows what will happen."""
    action_scale: float = 1.0
    compute: str = "float32"

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise ValueError(f"The likelihood's scale is one of {', '.join(SCALES)}, not '{self.scale}'.")

    @property
    def outputs(self) -> int:
        """What the network gives: what is expected of each target, then its scale where that is predicted."""
        return self.targets * (2 if self.scale == "predicted" else 1)

    @property
    def targets(self) -> int:
        """Changes of the dynamics features, then reward, then cost."""
        return self.features + 2


class Expected(NamedTuple):
    """A Gaussian for every target, normalised."""

    mean: Array
    log_scale: Array


def init(key: Array, config: DynamicsConfig) -> Params:
    """Weights of the MLP, and `log_scale` of the likelihood (unused and untouched unless the scale is `learnt`)."""
    inputs = config.observation + config.action + config.latent
    network = mlp_init(key, inputs, config.hidden, config.outputs)
    return {"network": network, "log_scale": jnp.zeros(config.targets, jnp.float32)}


def apply(config: DynamicsConfig, params: Params, observation: Array, action: Array, latent: Array) -> Array:
    """What is said about (change, reward, cost) of one decision, [outputs]; `expected` reads it."""
    assert observation.shape == (config.observation,), observation.shape
    assert action.shape == (config.action,), action.shape
    assert latent.shape == (config.latent,), latent.shape
    inputs = jnp.concatenate([observation, config.action_scale * action, latent])
    return mlp(params["network"], inputs, config.compute)


def expected(config: DynamicsConfig, params: Params, prediction: Array) -> Expected:
    """What `apply` says, as Gaussians."""
    assert prediction.shape == (config.outputs,), prediction.shape
    if config.scale == "predicted":
        # Softly bounded: a scale that stops dead cannot grow again where the head turns out to be wrong.
        free = prediction[config.targets :]
        return Expected(prediction[: config.targets], MIN_LOG_SCALE + jax.nn.softplus(free - MIN_LOG_SCALE))
    learnt = jnp.maximum(params["log_scale"], MIN_LOG_SCALE)
    return Expected(prediction, learnt if config.scale == "learnt" else jnp.zeros_like(prediction))


def negative_log_likelihood(config: DynamicsConfig, params: Params, prediction: Array, target: Array) -> Array:
    """mean_k [ ((y_k - m_k) / s_k)^2 / 2 + ln s_k ]: Gaussian, without its constant.

    The mean over targets, not the sum, keeps its weight against the KL the same for tasks with few and many features.
    """
    assert target.shape == (config.targets,), target.shape
    mean, log_scale = expected(config, params, prediction)
    return jnp.mean(0.5 * jnp.square((target - mean) * jnp.exp(-log_scale)) + log_scale)
