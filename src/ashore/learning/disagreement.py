"""Pessimism by disagreement: a decision is charged for how differently the simulated worlds would take it.

From the same state and with the same action, every model of an ensemble makes one decision. With o_k what model k shows
next,

    D = mean over numbers of Var_k(o_k),        penalty = weight * min(D, 1000)

The penalty is meant for the target of the cost critic alone (SPiDR, As et al. 2025).
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from ashore.environments import branching
from ashore.environments.base import Task
from ashore.learning import normalisation
from ashore.learning.normalisation import Normalisers
from ashore.types import Array, Parameters, State

LARGEST = 1000.0
"""No disagreement counts for more."""
COMPARISONS = ("observations", "dynamics")


@dataclass(frozen=True)
class DisagreementConfig:
    """How much disagreement is charged for, and between whom."""

    models: int = 8
    """Size of the ensemble; its parameters are drawn once and shared by all worlds."""
    weight: float = 0.175
    compare: str = "observations"
    """`observations`: all of them, in raw units. `dynamics`: the dynamics features, in units of their usual change."""
    ranges: str = "own"
    """`own`: SPiDR's ranges where it has some for the task. `train`: the task's training ranges."""
    multiplier: str = "augmented"
    """`augmented`: SPiDR's rule, on the predicted and penalised cost. `pid`: everybody's, on the measured
    cost with its penalty: the constraint is on what the critic is told, in either form."""

    def __post_init__(self) -> None:
        for name, value, known in (
            ("compare", self.compare, COMPARISONS),
            ("ranges", self.ranges, ("own", "train")),
            ("multiplier", self.multiplier, ("augmented", "pid")),
        ):
            if value not in known:
                raise ValueError(f"spidr.{name} is one of {', '.join(known)}, not '{value}'.")
        if self.models < 1:
            raise ValueError(f"An ensemble has at least one model, not {self.models}.")


def disagreement(observations: Array) -> Array:
    """mean over numbers of the population variance over models, from [model, number].

    A model that left the finite numbers is not counted; where none is left, nothing is charged.
    """
    assert observations.ndim == 2, observations.shape  # noqa: PLR2004 - models and numbers
    finite = jnp.isfinite(observations)
    count = jnp.sum(finite.astype(jnp.float32), axis=0)
    divisor = jnp.maximum(count, 1.0)
    mean = jnp.sum(jnp.where(finite, observations, 0.0), axis=0) / divisor
    deviation = jnp.where(finite, observations - mean[None], 0.0)
    return jnp.minimum(jnp.mean(jnp.sum(jnp.square(deviation), axis=0) / divisor), LARGEST)


def penalties(
    config: DisagreementConfig,
    task: Task,
    normalisers: Normalisers,
    models: Parameters,
    states: State,
    actions: Array,
) -> Array:
    """What each world's decision is charged beside its cost, [world].

    Args:
        models: parameters of the ensemble, fields [model].
        states: worlds before the decision, [world].
        actions: [world, action].
    """
    index = jnp.asarray(task.description.dynamics_features, jnp.int32)
    usual_change = normalisation.deviation(normalisers.change)

    def one(state: State, action: Array) -> Array:
        seen = branching.branch(task, state, action, models).observation
        if config.compare == "dynamics":
            seen = seen[:, index] / usual_change[None]
        return config.weight * disagreement(seen)

    return jax.vmap(one)(states, actions)
