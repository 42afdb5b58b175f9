"""Raw numbers of the world into the normalised ones that the networks were trained on."""

import numpy as np

from ashore_runtime.layers import Weights, weight

CLIP = np.float32(10.0)
"""Normalised numbers stay within +-10 standard deviations."""
SHARPENED = ((8, np.float32(4.0)), (32, np.float32(6.0)))
"""Powers to which a closeness is raised for the networks, and what each is multiplied by, as in training."""
SOONEST = np.float32(5.0)
"""Where the inverse time to a collision is cut off, as in training."""
MIN_DEVIATION = 1e-6
"""Floor of the standard deviation, for entries that never change."""


class Statistics:
    """Mean and standard deviation of one kind of number."""

    def __init__(self, mean: np.ndarray, variance: np.ndarray) -> None:
        self.mean = mean
        self.deviation = np.maximum(np.sqrt(variance), variance.dtype.type(MIN_DEVIATION))

    def normalise(self, x: np.ndarray | np.floating) -> np.ndarray:
        """clip((x - mean) / deviation, -10, 10), in the precision of the statistics."""
        return np.clip((x - self.mean) / self.deviation, -CLIP, CLIP)


class Normalisers:
    """Statistics of everything that enters a network."""

    def __init__(
        self,
        weights: Weights,
        observation: int,
        features: tuple[int, ...],
        closeness: tuple[int, ...] = (),
        contrasts: tuple[tuple[int, int, float], ...] = (),
        approaches: tuple[tuple[int, int, int, float, float], ...] = (),
    ) -> None:
        def statistics(kind: str, shape: tuple[int, ...]) -> Statistics:
            mean, variance = (weight(weights, f"normaliser/{kind}/{part}", shape) for part in ("mean", "variance"))
            return Statistics(mean, np.maximum(variance, np.float32(0.0)))

        self.observation = statistics("observation", (observation,))
        self._change = statistics("change", (len(features),))
        self._reward = statistics("reward", ())
        self._cost = statistics("cost", ())
        self._dtype = self.observation.mean.dtype
        self._index = np.array(features, np.intp)
        self._closeness = np.array(closeness, np.intp)
        self._first, self._second = (np.array([pair[i] for pair in contrasts], np.intp) for i in (0, 1))
        self._scale = np.array([pair[2] for pair in contrasts], self._dtype)
        self._faster, self._slower, self._gap = (np.array([row[i] for row in approaches], np.intp) for i in range(3))
        self._soon, self._floor = (np.array([row[i] for row in approaches], self._dtype) for i in (3, 4))
        self.seen = observation + len(SHARPENED) * len(closeness) + len(contrasts) + len(approaches)

    def see(self, observation: np.ndarray) -> np.ndarray:
        """What actor, critics and dynamics head see.

        All of it normalised, closenesses sharpened, contrasts, and how soon gaps close.
        """
        # Differences of two readings are taken in the precision of the networks, too.
        observation = np.asarray(observation, self._dtype)
        normal = self.observation.normalise(observation)
        near = np.clip(observation[self._closeness], np.float32(0.0), np.float32(1.0))
        contrasts = self._scale * (observation[self._first] - observation[self._second])
        speed = np.maximum(observation[self._faster] - observation[self._slower], np.float32(0.0))
        closing = np.minimum(self._soon * speed / np.maximum(observation[self._gap], self._floor), SOONEST)
        return np.concatenate([normal, *(scale * near**power for power, scale in SHARPENED), contrasts, closing])

    def dynamics_target(
        self, observation: np.ndarray, next_observation: np.ndarray, reward: float, cost: float
    ) -> np.ndarray:
        """(s' - s, r, c) of one decision, normalised: what the dynamics head predicts, [features + 2]."""
        change = np.subtract(next_observation[self._index], observation[self._index], dtype=self._dtype)
        scalars = (self._reward.normalise(np.float32(reward)), self._cost.normalise(np.float32(cost)))
        return np.concatenate([self._change.normalise(change), np.array(scalars, self._dtype)])

    def encoder_input(self, observation: np.ndarray, action: np.ndarray, target: np.ndarray) -> np.ndarray:
        """(s, a, s' - s, r, c) restricted to the dynamics features; `target` is the transition's `dynamics_target`."""
        normal = self.observation.normalise(observation)[self._index]
        return np.concatenate([normal, action, target])
