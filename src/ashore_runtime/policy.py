"""All networks of a bundle as one object: act, judge, encode, predict. Pure arithmetic, no state between calls.

What is observed and believed comes in as float32; what the networks make of it has the precision they were asked for.
"""

import numpy as np

from ashore_runtime.critics import CriticPair
from ashore_runtime.layers import Mlp, Weights, in_precision, weight
from ashore_runtime.normalisation import Normalisers
from ashore_runtime.refusal import Refused
from ashore_runtime.schema import Manifest

MAX_PRECISION = np.float32(1e4)
"""No single transition may claim to know z better than to 0.01 prior standard deviations."""
MIN_LOG_SCALE = np.float32(-3.0)
"""Floor of the dynamics head's learnt scale, as in training."""


class PolicyNetworks:
    """The networks of one bundle; `critics` only if its manifest says so, encoder and dynamics head if held."""

    def __init__(self, manifest: Manifest, weights: Weights, precision: str = "float32") -> None:
        network = manifest.network
        weights = in_precision(weights, precision)
        observation, action, features = len(manifest.observation), len(manifest.action), len(manifest.dynamics_features)
        self._latent = network.latent
        self._features = features
        self._risk_conditioned = network.risk_conditioned
        self.normalisers = Normalisers(
            weights,
            observation,
            manifest.dynamics_features,
            manifest.closeness,
            manifest.contrasts,
            manifest.approaches,
        )
        seen = self.normalisers.seen
        self._actor = Mlp(weights, "actor", seen + network.context, network.hidden, action)
        held = {name.split("/")[0] for name in weights}
        self.critics = CriticPair(weights, network, seen, action) if network.critic_heads else None
        if self.critics is None and held & {"critic_cost", "critic_reward"}:
            raise Refused("The weights hold critics, and the manifest says that there are none.")
        self._encoder = None
        if "encoder" in held:
            self._encoder = Mlp(weights, "encoder", 2 * features + action + 2, network.hidden, 2 * network.latent)
        self._dynamics = None
        if "dynamics" in held:
            inputs = seen + action + network.latent
            self._targets = features + 2
            outputs = self._targets * (2 if network.dynamics_scale == "predicted" else 1)
            self._dynamics = Mlp(weights, "dynamics/network", inputs, network.hidden, outputs)
            learnt = np.maximum(weight(weights, "dynamics/log_scale", (self._targets,)), MIN_LOG_SCALE)
            self._log_scale = learnt if network.dynamics_scale == "learnt" else np.zeros_like(learnt)

    @property
    def identifies(self) -> bool:
        """Whether transitions can tell this policy anything about its world."""
        return self._encoder is not None

    @property
    def predicts(self) -> bool:
        """Whether the next transition can be compared with a prediction."""
        return self._dynamics is not None

    def context(self, latent: np.ndarray, eta: float) -> np.ndarray:
        """What actor and critics are conditioned on: z, and eta for networks that know it."""
        if not self._risk_conditioned:
            return latent
        return np.append(latent, np.float32(eta))

    def action(self, observation: np.ndarray, context: np.ndarray) -> np.ndarray:
        """pi(s, z) in [-1, 1] for a normalised observation."""
        return np.tanh(self._actor(np.concatenate([observation, context])))

    def factor(self, encoder_input: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and precision of one transition's Gaussian opinion about z."""
        assert self._encoder is not None
        out = self._encoder(encoder_input)
        precision = np.minimum(np.logaddexp(np.float32(0.0), out[self._latent :]), MAX_PRECISION)
        return out[: self._latent].copy(), precision

    def prediction(self, observation: np.ndarray, action: np.ndarray, latent: np.ndarray) -> np.ndarray:
        """Normalised (change, reward, cost) that the dynamics head expects of one decision, [features + 2].

        Where the head also says how well it knows them, what it says of their scales follows, [2 (features + 2)].
        """
        assert self._dynamics is not None
        return self._dynamics(np.concatenate([observation, action, latent])).copy()

    def surprise(self, prediction: np.ndarray, target: np.ndarray) -> float:
        """mean_k ((y_k - m_k) / s_k)^2 with the head's own scale: about 1 where the world is as expected."""
        error, _ = self._in_scales(prediction, target)
        return float(np.mean(np.square(error)))

    def log_likelihood(self, prediction: np.ndarray, target: np.ndarray) -> float:
        """sum_k -((y_k - m_k) / s_k)^2 / 2 - ln s_k over the dynamics features: Gaussian, without its constant.

        Reward and cost are left out: they tell where the goal and the obstacles are before they tell of the physics.
        """
        error, log_scale = (part[: self._features] for part in self._in_scales(prediction, target))
        return -0.5 * float(error @ error) - float(log_scale.sum())

    def _in_scales(self, prediction: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Errors in the head's own scales, and the logarithms of these."""
        mean, free = prediction[: self._targets], prediction[self._targets :]
        log_scale = MIN_LOG_SCALE + np.logaddexp(0.0, free - MIN_LOG_SCALE) if len(free) else self._log_scale
        return (target - mean) * np.exp(-log_scale), log_scale
