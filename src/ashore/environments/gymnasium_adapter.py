"""One world as a Gymnasium environment. It steps C MuJoCo, so that the batched engine has somebody to check it."""

import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ashore.environments import randomisation
from ashore.environments.base import CStep, CWorld, TaskDescription
from ashore.environments.gymnasium_actions import checked_actions
from ashore.environments.task_family import TaskFamily, choose


def family_of(task: str | TaskFamily) -> TaskFamily:
    """The family that a name in the registry stands for; a family stands for itself."""
    if isinstance(task, TaskFamily):
        return task
    # Imported only now: somebody who brings a world of their own need not load all of ours.
    from ashore.environments import tasks

    return tasks.lookup(task)


def observation_space(description: TaskDescription) -> spaces.Box:
    """The declared bounds of the observation as a Gymnasium space."""
    return spaces.Box(*description.observation_bounds, dtype=np.float32)


def action_space(description: TaskDescription) -> spaces.Box:
    """The declared bounds of the action as a Gymnasium space."""
    return spaces.Box(*description.action_bounds, dtype=np.float32)


class AshoreEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """A world of Ashore behind Gymnasium's five-value step.

    Cost is in `info["cost"]` after every reset (0.0) and every step, its terms in `info["cost_<term>"]`, the terms of
    the reward in `info["reward_<term>"]`, and the last step of an episode brings `info["metric_<name>"]`. A world that
    leaves the finite numbers ends its episode: truncated, `info["diverged"]`, the highest possible cost, the last
    finite observation, and one more in `diverged_worlds`.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - Gymnasium reads it from the class

    def __init__(
        self,
        task: str | TaskFamily,
        preset: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        """Build one world.

        Args:
            task: a name in the registry, or a family of your own.
            preset: which of the family's presets; the first if left out.
            parameters: physical parameters by name; those left out are nominal.
            render_mode: `rgb_array` or None.
            options: physical parameters and settings of the preset, by name.
        """
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"Render mode {render_mode!r} is not one of {self.metadata['render_modes']}.")
        family = family_of(task)
        choice = choose(family, preset, parameters, options)
        rows = choice.description.shifts["nominal"]
        physics = randomisation.from_names(rows, family.parameters_type, choice.parameters)
        self.world: CWorld = family.make_c_world(choice.config, physics)
        self.description = choice.description
        self.metadata = {**self.metadata, "render_fps": round(1.0 / self.description.control_period)}
        self.render_mode = render_mode
        self.observation_space = observation_space(self.description)
        self.action_space = action_space(self.description)
        self.diverged_worlds = 0
        """How often the world left the finite numbers since this environment was made."""
        self._decision: int | None = None
        self._last_observation = np.zeros(self.observation_space.shape, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode in a new scene."""
        super().reset(seed=seed)
        refuse_options(options)
        self._last_observation = np.array(self.world.reset(self.np_random), np.float32)
        self._decision = 0
        return self._last_observation.copy(), {"cost": 0.0, "diverged": False}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Apply one action for one control period."""
        if self._decision is None:
            raise gymnasium.error.ResetNeeded("The episode has not begun or is over: call reset before step.")
        result = self.world.step(checked_actions(action, self.description))
        if result.diverged:
            return self._diverged(result)
        self._decision += 1
        self._last_observation = np.array(result.observation, np.float32)
        terminated = result.terminated
        truncated = not terminated and self._decision >= self.description.decisions_per_episode
        info = {"cost": result.cost, "diverged": False, **_named_terms(result), "cost_diverged": 0.0}
        if terminated or truncated:
            self._decision = None
            info |= {f"metric_{name}": float(value) for name, value in self.world.episode_metrics().items()}
        return self._last_observation.copy(), result.reward, terminated, truncated, info

    def render(self) -> np.ndarray | None:
        """The world as a picture, height x width x 3, or None when no render mode was asked for."""
        if self.render_mode is None:
            gymnasium.logger.warn("Nothing is drawn, because no render_mode was given when the environment was made.")
            return None
        return self.world.picture()

    def _diverged(self, result: CStep) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._decision = None
        self.diverged_worlds += 1
        warnings.warn(
            f"A world of {self.description.name} left the finite numbers; its episode is over at the highest cost.",
            RuntimeWarning,
            stacklevel=3,
        )
        cost = self.description.max_cost
        terms = dict.fromkeys(_named_terms(result), 0.0)
        info = {"cost": cost, "diverged": True, **terms, "cost_diverged": cost}
        return self._last_observation.copy(), 0.0, False, True, info


def refuse_options(options: Mapping[str, Any] | None) -> None:
    """Worlds take no reset options; one that is given would be ignored in silence, so it is an error."""
    if options:
        raise ValueError(f"Worlds take no reset options, and {sorted(options)} would have no effect.")


def _named_terms(result: CStep) -> dict[str, float]:
    rewards = {f"reward_{name}": float(value) for name, value in result.reward_terms.items()}
    costs = {f"cost_{name}": float(value) for name, value in result.cost_terms.items()}
    return rewards | costs
