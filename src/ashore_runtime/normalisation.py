"""Raw numbers of the world into the normalised ones that the networks were trained on."""

import numpy as np

from ashore_runtime.layers import Weights, weight

CLIP = np.float32(10.0)
"""Normalised numbers stay within +-10 standard deviations."""
MIN_DEVIATION = np.float32(1e-6)
"""Floor of the standard deviation, for entries that never change."""


class Statistics:
    """Mean and standard deviation of one kind of number."""

    def __init__(self, mean: np.ndarray, variance: np.ndarray) -> None:
        self.mean = mean
        self.deviation = np.maximum(np.sqrt(variance), MIN_DEVIATION)

    def normalise(self, x: np.ndarray | np.floating) -> np.ndarray:
        """clip((x - mean) / deviation, -10, 10), float32."""
        return np.clip((x - self.mean) / self.deviation, -CLIP, CLIP)


class Normalisers:
    """Statistics of everything that enters a network."""

    def __init__(self, weights: Weights, observation: int, features: tuple[int, ...]) -> None:
        def statistics(kind: str, shape: tuple[int, ...]) -> Statistics:
            mean, variance = (weight(weights, f"normaliser/{kind}/{part}", shape) for part in ("mean", "variance"))
            return Statistics(mean, np.maximum(variance, np.float32(0.0)))

        self._index = np.array(features, np.intp)
        self.observation = statistics("observation", (observation,))
        self._change = statistics("change", (len(features),))
        self._reward = statistics("reward", ())
        self._cost = statistics("cost", ())

    def dynamics_target(
        self, observation: np.ndarray, next_observation: np.ndarray, reward: float, cost: float
    ) -> np.ndarray:
        """(s' - s, r, c) of one decision, normalised: what the dynamics head predicts, [features + 2]."""
        change = next_observation[self._index] - observation[self._index]
        scalars = (self._reward.normalise(np.float32(reward)), self._cost.normalise(np.float32(cost)))
        return np.concatenate([self._change.normalise(change), np.array(scalars, np.float32)])

    def encoder_input(self, observation: np.ndarray, action: np.ndarray, target: np.ndarray) -> np.ndarray:
        """(s, a, s' - s, r, c) restricted to the dynamics features; `target` is the transition's `dynamics_target`."""
        normal = self.observation.normalise(observation)[self._index]
        return np.concatenate([normal, action, target])
