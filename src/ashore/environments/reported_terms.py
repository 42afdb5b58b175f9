"""A task that reports the terms of every reward and cost among its metrics, where a rollout can show them."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ashore.environments.base import Task, TaskDescription
from ashore.types import Array, Parameters, Reset, State, StepResult


class StateWithTerms(NamedTuple):
    """A task's state, and the terms of the step that led to it."""

    inner: State
    terms: dict[str, Array]
    """`reward_<term>` and `cost_<term>`; zeros after a reset."""


@dataclass(frozen=True)
class ReportsTerms:
    """The same task; its metrics are `metric_<name>`, and beside them stand the terms of the last step.

    Also where a world diverged, its cost terms sum to its cost: the whole of it is in `cost_diverged`.
    """

    task: Task

    @property
    def description(self) -> TaskDescription:
        return self.task.description

    @property
    def parameters_type(self) -> type[Parameters]:
        return self.task.parameters_type

    def reset(self, key: Array, parameters: Parameters) -> Reset:
        first = self.task.reset(key, parameters)
        action = jnp.zeros(len(self.description.action), jnp.float32)
        later = jax.eval_shape(self.task.step, first.state, action, parameters)
        silent = jax.tree.map(lambda term: jnp.zeros(term.shape, term.dtype), self._terms(later))
        return Reset(StateWithTerms(first.state, silent), first.observation)

    def step(self, state: StateWithTerms, action: Array, parameters: Parameters) -> StepResult:
        result = self.task.step(state.inner, action, parameters)
        terms = {name: jnp.where(result.diverged, 0.0, term) for name, term in self._terms(result).items()}
        terms["cost_diverged"] = jnp.where(result.diverged, jnp.float32(self.description.max_cost), jnp.float32(0.0))
        return result._replace(state=StateWithTerms(result.state, terms))

    def identifiable(self, parameters: Parameters) -> dict[str, Array]:
        return self.task.identifiable(parameters)

    def episode_metrics(self, state: StateWithTerms) -> dict[str, Array]:
        metrics = self.task.episode_metrics(state.inner)
        return state.terms | {f"metric_{name}": value for name, value in metrics.items()}

    def _terms(self, result: StepResult) -> dict[str, Array]:
        rewards = {f"reward_{name}": value for name, value in result.reward_terms.items()}
        costs = {f"cost_{name}": value for name, value in result.cost_terms.items()}
        return rewards | costs | {"cost_diverged": jnp.float32(0.0)}
