"""Gymnasium environments that somebody else wrote: the same cart, more or less well described."""

from typing import Any

import gymnasium
import numpy as np

from toy_world import CartConfig, CartCWorld, CartParameters


class Plain(gymnasium.Env[np.ndarray, np.ndarray]):
    """A cart that says nothing about its numbers."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    cost_is_reported = True
    blind_from = 1000
    """Decision from which on there are no numbers to be seen."""

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self._world = CartCWorld(CartConfig(), CartParameters(1.0, 0.5))
        self._decision = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self._decision = 0
        return self._world.reset(self.np_random), {}

    def step(self, action: np.ndarray):
        result = self._world.step(action)
        self._decision += 1
        info = {"cost": self.cost(result.cost)} if self.cost_is_reported else {}
        observation = result.observation if self._decision < self.blind_from else np.full(2, np.nan, np.float32)
        return observation, result.reward, result.terminated, self._decision >= 20, info

    def cost(self, true: float) -> Any:
        return true


class Named(Plain):
    observation_names = ("position", "speed")
    action_names = ("push",)


class InMetadata(Plain):
    metadata = {**Plain.metadata, "observation_names": ["position", "speed"], "action_names": ["push"]}  # noqa: RUF012


class Swapped(Named):
    observation_names = ("speed", "position")


class TooFew(Named):
    observation_names = ("position",)


class Wide(Named):
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)


class Discrete(Named):
    action_space = gymnasium.spaces.Discrete(2)


class Free(Named):
    cost_is_reported = False


class Priceless(Named):
    def cost(self, true: float) -> Any:
        return float("nan")


class Profitable(Named):
    def cost(self, true: float) -> Any:
        return -1


class Wordy(Named):
    def cost(self, true: float) -> Any:
        return "0.5"


class Listing(Named):
    def cost(self, true: float) -> Any:
        return [0.5, 0.5]


class Blinded(Named):
    blind_from = 5


class LateBlinded(Named):
    blind_from = 15


CARTS = (
    Plain, Named, InMetadata, Swapped, TooFew, Wide, Discrete, Free, Priceless, Profitable, Wordy, Listing, Blinded,
    LateBlinded,
)  # fmt: skip
for made in CARTS:
    gymnasium.register(f"{made.__name__}Cart-v0", entry_point=f"{__name__}:{made.__name__}")
