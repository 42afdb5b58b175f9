"""A careful deployment: from the prior, transition by transition, at the risk level that a schedule gives.

What calibration learns about contexts it learns here: they are the first N transitions that a deployed policy collects,
one after the other, by its own careful actions, over as many episodes as that takes.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ashore.calibration.careful_policy import Agent
from ashore.calibration.risk_level import Levels, WorldTable, level_at
from ashore.environments import rollout
from ashore.environments.base import Task
from ashore.environments.rollout import Worlds
from ashore.networks import encoder
from ashore.networks.encoder import NaturalPosterior
from ashore.types import Array, Parameters, Transition

Numbers = Array | np.ndarray
"""On the device while it is computed, NumPy once it was kept."""


class CarefulDeployment(NamedTuple):
    """What happened, worlds first."""

    reward: Numbers
    """[world, decision]."""
    cost: Numbers
    """[world, decision]."""
    triggered: Numbers
    """Whether the nominal action did not fit the budget, [world, decision]."""
    weighted_mean_sum: Numbers
    """Posterior after each of the counts and after the last decision, [world, count + 1, latent]."""
    precision_sum: Numbers
    diverged: Numbers
    """How often each world was lost, [world]."""


def start_worlds(task: Task, keys: Array, parameters: Parameters) -> Worlds:
    """One world per key: the same key and parameters always give the same world, whatever else is in the batch."""
    one = jax.vmap(lambda key, physics: rollout.start(task, key, jax.tree.map(lambda x: x[None], physics)))
    return jax.tree.map(lambda x: x[:, 0], one(keys, parameters))


@partial(jax.jit, static_argnames=("task", "agent", "counts", "decisions"))
def deploy(
    task: Task,
    agent: Agent,
    weights: Any,
    tempering: Array,
    parameters: Parameters,
    keys: Array,
    levels: Levels,
    *,
    counts: tuple[int, ...],
    decisions: int,
) -> CarefulDeployment:
    """Deploy in one world per parameter vector and key.

    Args:
        tempering: factor on the evidence of every transition, a scalar.
        levels: risk level at each count, [world, count], or one world table for all.
        counts: where the risk level may change, and after how many decisions the posterior is kept; 0 first.
        decisions: how long.
    """
    prior = jax.vmap(lambda _: encoder.prior(agent.latent))(jnp.arange(keys.shape[0]))
    level = jax.vmap(partial(level_at, counts), in_axes=(None if isinstance(levels, WorldTable) else 0, 0, 0))
    act = jax.vmap(agent.act, in_axes=(None, 0, 0, 0))

    def one_decision(
        carry: tuple[Worlds, NaturalPosterior], _: None
    ) -> tuple[tuple[Worlds, NaturalPosterior], tuple[Array, ...]]:
        worlds, posterior = carry
        latent = jax.vmap(encoder.mean)(posterior)
        decision = act(weights, worlds.observation, latent, level(levels, posterior.count, latent))
        worlds, transition, _finished = rollout.advance(task, worlds, decision.action, parameters)
        posterior = encoder.merge(posterior, _tempered(agent, weights, tempering, transition))
        kept = (posterior.weighted_mean_sum, posterior.precision_sum)
        return (worlds, posterior), (transition.reward, transition.cost, decision.triggered, *kept)

    start = (start_worlds(task, keys, parameters), prior)
    (worlds, _), rows = jax.lax.scan(one_decision, start, None, length=decisions)
    reward, cost, triggered, means, precisions = (jnp.swapaxes(row, 0, 1) for row in rows)
    asked = jnp.asarray([*counts[1:], decisions], jnp.int32) - 1

    def at_counts(sums: Array) -> Array:
        return jnp.concatenate([jnp.zeros_like(sums[:, :1]), sums[:, asked]], axis=1)

    return CarefulDeployment(reward, cost, triggered, at_counts(means), at_counts(precisions), worlds.diverged)


def _tempered(agent: Agent, weights: Any, tempering: Array, transition: Transition) -> NaturalPosterior:
    said = jax.vmap(agent.evidence, in_axes=(None, 0))(weights, transition)
    return said._replace(
        weighted_mean_sum=tempering * said.weighted_mean_sum, precision_sum=tempering * said.precision_sum
    )
