"""Something to control that costs nothing: four numbers that drift, are pushed by the action, and are never still."""

import numpy as np

HIGHEST = 1.9
"""Inside the bounds of `small_bundle`'s sensors, so that nothing is clipped by itself."""


class ToyPlant:
    """One stream of observations for `small_bundle`'s manifest, with noise as a sensor has it."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        self._state = self._generator.uniform(-1.0, 1.0, 4)

    def step(self, action: np.ndarray) -> np.ndarray:
        push = np.array([action[0], action[1], -action[0], 0.5 * action[1]])
        noise = self._generator.normal(scale=0.1, size=4)
        self._state = np.clip(0.9 * self._state + 0.1 * push + noise, -HIGHEST, HIGHEST)
        # The noise of a sensor at its end stop still flickers in the last digits.
        return (self._state + 1e-4 * noise).astype(np.float32)
