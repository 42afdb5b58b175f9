"""Between Gymnasium's five-value step and Safety-Gymnasium's six, where the cost stands by itself.

Where a cost is missing both directions raise: a cost that is silently zero is the worst kind of safe.
"""

import math
from typing import Any, SupportsFloat

import gymnasium


class MissingCost(ValueError):
    """A step came back without a usable cost."""


class ToSixValues(gymnasium.Wrapper):
    """Steps return (observation, reward, cost, terminated, truncated, info), as Safety-Gymnasium's do."""

    def step(self, action: Any) -> tuple[Any, SupportsFloat, float, bool, bool, dict[str, Any]]:
        """Step, and take the cost out of `info["cost"]`, where it also stays."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if "cost" not in info:
            raise MissingCost(f'{self.env} returned no info["cost"].')
        return observation, reward, _checked_cost(info["cost"]), terminated, truncated, info


class FromSixValues(gymnasium.Env):
    """A six-value environment behind Gymnasium's five-value step, with the cost in `info["cost"]`.

    The environment is only asked for `reset`, `step`, `render`, `close` and its spaces, so that one which was written
    for another release of Gymnasium fits too.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self.metadata = getattr(env, "metadata", self.metadata)
        self.render_mode = getattr(env, "render_mode", None)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; nothing has happened yet, so its cost is 0.0."""
        super().reset(seed=seed)
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, {**info, "cost": 0.0}

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step, and put the cost into `info["cost"]`."""
        values = self.env.step(action)
        expected = 6
        if len(values) != expected:
            raise MissingCost(f"A step of {self.env} returned {len(values)} values instead of 6, so it has no cost.")
        observation, reward, cost, terminated, truncated, info = values
        return observation, reward, terminated, truncated, {**info, "cost": _checked_cost(cost)}

    def render(self) -> Any:
        """Whatever the wrapped environment draws."""
        return self.env.render()

    def close(self) -> None:
        """Close the wrapped environment."""
        self.env.close()


def _checked_cost(cost: Any) -> float:
    try:
        number = float(cost)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise MissingCost(f"The cost of a step must be a finite number, not {cost!r}.")
    return number
