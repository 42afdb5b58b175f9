"""Many worlds as one Gymnasium vector environment, stepped natively as a batch in MJX."""

import functools
import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from ashore.environments import randomisation, rollout
from ashore.environments.base import TaskDescription
from ashore.environments.gymnasium_actions import checked_actions
from ashore.environments.gymnasium_adapter import action_space, family_of, observation_space, refuse_options
from ashore.environments.reported_terms import ReportsTerms
from ashore.environments.task_family import TaskFamily, choose
from ashore.types import Parameters

_LARGEST_SEED = 2**31


# Static tasks compare by configuration, so that two environments of one kind share their compiled programs.
_start = functools.partial(jax.jit, static_argnums=0)(rollout.start)
_advance = functools.partial(jax.jit, static_argnums=0)(rollout.advance)


class AshoreVectorEnv(gymnasium.vector.VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """A batch of worlds; a world whose episode ends is reset within the same step.

    As in every same-step vector environment, what the episode ended with is in `info["final_obs"]` and
    `info["final_info"]`. Unlike Gymnasium's own, `info["cost"]` of such a world is still the cost of the step that
    ended it, like its reward: a sum of `info["cost"]` over steps misses nothing.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 - Gymnasium's way

    def __init__(
        self,
        task: str | TaskFamily,
        num_envs: int = 1,
        preset: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        """Build the batch.

        Args:
            task: a name in the registry, or a family of your own.
            num_envs: how many worlds.
            preset: which of the family's presets; the first if left out.
            parameters: physical parameters by name, each one number for all worlds or an array of `num_envs`.
            render_mode: must be None; single environments draw pictures.
            options: physical parameters and settings of the preset, by name.
        """
        if render_mode is not None:
            raise ValueError("A batch of worlds draws no pictures; make a single environment for that.")
        if num_envs < 1:
            raise ValueError(f"A batch needs at least one world, not {num_envs}.")
        family = family_of(task)
        choice = choose(family, preset, parameters, options)
        self.num_envs = num_envs
        self.description = choice.description
        self.single_observation_space = observation_space(self.description)
        self.single_action_space = action_space(self.description)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._task = ReportsTerms(family.make(choice.config))
        self._parameters = _batched(choice.description, family.parameters_type, choice.parameters, num_envs)
        self._worlds: rollout.Worlds | None = None
        self.diverged_worlds = 0
        """How often a world left the finite numbers since this environment was made."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start every world in a new scene."""
        super().reset(seed=seed)
        refuse_options(options)
        key = jax.random.key(int(self.np_random.integers(_LARGEST_SEED)))
        worlds: rollout.Worlds = _start(self._task, key, self._parameters)
        self._worlds = worlds
        quiet = {"cost": np.zeros(self.num_envs), "diverged": np.zeros(self.num_envs, bool)}
        return np.array(worlds.observation), _with_masks(quiet, np.ones(self.num_envs, bool))

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Apply one action per world for one control period."""
        if self._worlds is None:
            raise gymnasium.error.ResetNeeded("The worlds have not begun: call reset before step.")
        checked = jnp.asarray(checked_actions(actions, self.description, self.num_envs))
        worlds, transition, finished = _advance(self._task, self._worlds, checked, self._parameters)
        self._worlds = worlds
        observation, transition, finished = jax.tree.map(np.array, (worlds.observation, transition, finished))
        self._report_divergence(int(transition.diverged.sum()))
        info = _info(transition.cost, transition.diverged, finished.metrics)
        if finished.done.any():
            info |= _final(transition.next_observation, info, finished)
        truncated = transition.truncated | transition.diverged
        return observation, transition.reward, transition.terminated, truncated, info

    def _report_divergence(self, count: int) -> None:
        if count == 0:
            return
        self.diverged_worlds += count
        warnings.warn(
            f"{count} world(s) of {self.description.name} left the finite numbers and were reset at the highest cost.",
            RuntimeWarning,
            stacklevel=3,
        )


def _info(cost: np.ndarray, diverged: np.ndarray, metrics: Mapping[str, np.ndarray]) -> dict[str, Any]:
    terms = {name: value for name, value in metrics.items() if not name.startswith("metric_")}
    return _with_masks({"cost": cost, "diverged": diverged, **terms}, np.ones(len(cost), bool))


def _final(next_observation: np.ndarray, info: Mapping[str, Any], finished: rollout.Finished) -> dict[str, Any]:
    done = np.asarray(finished.done)
    last = np.full(len(done), None, object)
    for world in np.flatnonzero(done):
        last[world] = next_observation[world]
    ending = {name: value for name, value in info.items() if not name.startswith("_")}
    ending |= {name: value for name, value in finished.metrics.items() if name.startswith("metric_")}
    ending = {name: np.where(done, value, np.zeros_like(value)) for name, value in ending.items()}
    return _with_masks({"final_obs": last, "final_info": _with_masks(ending, done)}, done)


def _with_masks(values: Mapping[str, Any], mask: np.ndarray) -> dict[str, Any]:
    """Gymnasium's form of a batched info: beside every entry, which worlds it speaks of."""
    return {**values, **{f"_{name}": mask.copy() for name in values}}


def _batched(
    description: TaskDescription, parameters_type: type[Parameters], values: Mapping[str, Any], count: int
) -> Parameters:
    rows = description.shifts["nominal"]
    columns = {}
    for name, value in values.items():
        column = np.asarray(value)
        if column.shape not in ((), (count,)):
            raise ValueError(f"Physical parameter '{name}' must be one number or {count}, not of shape {column.shape}.")
        columns[name] = np.broadcast_to(column, (count,))
    worlds = [
        randomisation.from_names(rows, parameters_type, {name: column[world] for name, column in columns.items()})
        for world in range(count)
    ]
    return jax.tree.map(lambda *fields: jnp.array(fields, jnp.float32), *worlds)
