"""A Gymnasium world for the toy bundle: three decisions an episode, and an observation that says what was done."""

from typing import Any

import gymnasium
import numpy as np

from runtime import small_bundle

DECISIONS = 3


class Toy(gymnasium.Env[np.ndarray, np.ndarray]):
    """The last two numbers are the last action, so that whoever looks knows whose it was."""

    observation_names = tuple(field.name for field in small_bundle.OBSERVATION)
    action_names = tuple(field.name for field in small_bundle.ACTION)
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (len(observation_names),), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (len(action_names),), np.float32)

    cost = 0.5

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self._decision = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self._decision = 0
        self._scene = self.np_random.uniform(-0.5, 0.5, 2)
        return self._seen(np.zeros(2)), {}

    def step(self, action: np.ndarray):
        self._decision += 1
        ended = self._decision == DECISIONS
        metrics = {"metric_scene": float(self._scene[0])} if ended else {}
        return self._seen(action), float(action[0]), False, ended, {"cost": self.cost, "words": "unread", **metrics}

    def _seen(self, action: np.ndarray) -> np.ndarray:
        return np.concatenate([self._scene, action]).astype(np.float32)


gymnasium.register("Toy-v0", entry_point=f"{__name__}:Toy")
