"""J_c: what a policy that is fed a fixed belief really costs in a world, by rollouts.

J_c(pi | z) in world xi is the mean cost per decision of whole episodes in which the policy is fed z from first to last.
Common random numbers: the scenes of an environment are the same for every belief and every risk level, so that a
difference of two costs is due to what differs between them. The same belief at the same level gives the same cost, bit
for bit.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ashore.budget import Budget
from ashore.calibration.careful_deployment import Numbers, start_worlds
from ashore.calibration.careful_policy import Agent
from ashore.calibration.ledger import Ledger, in_batches
from ashore.environments import rollout
from ashore.environments.base import Task
from ashore.environments.rollout import Worlds
from ashore.types import Array, Parameters


class Candidates(NamedTuple):
    """What is asked: one belief per environment, one risk level, and which scenes."""

    latent: np.ndarray
    """[candidate, environment, latent]."""
    eta: np.ndarray
    """[candidate]."""
    scenes: np.ndarray
    """Index of the set of scenes, [candidate]: candidates with the same index meet the same scenes."""


class Episode(NamedTuple):
    """One episode per world, per decision."""

    cost: Numbers
    reward: Numbers
    triggered: Numbers
    """Share of the decisions whose nominal action did not fit the budget."""


@partial(jax.jit, static_argnames=("task", "agent"))
def episode(
    task: Task, agent: Agent, weights: Any, parameters: Parameters, keys: Array, latents: Array, etas: Array
) -> Episode:
    """One whole episode in each of a flat batch of worlds; everything after `weights` leads with [world]."""
    act = jax.vmap(agent.act, in_axes=(None, 0, 0, 0))
    length = task.description.decisions_per_episode
    nothing = jnp.zeros(etas.shape[0], jnp.float32)

    def one_decision(carry: tuple[Worlds, Episode], _: None) -> tuple[tuple[Worlds, Episode], None]:
        worlds, sums = carry
        decision = act(weights, worlds.observation, latents, etas)
        worlds, transition, _finished = rollout.advance(task, worlds, decision.action, parameters)
        happened = Episode(transition.cost, transition.reward, decision.triggered.astype(jnp.float32))
        return (worlds, jax.tree.map(jnp.add, sums, happened)), None

    start = (start_worlds(task, keys, parameters), Episode(nothing, nothing, nothing))
    (_, sums), _ = jax.lax.scan(one_decision, start, None, length=length)
    return jax.tree.map(lambda total: total / length, sums)


def measure(
    task: Task,
    agent: Agent,
    weights: Any,
    ledger: Ledger,
    stage: str,
    parameters: Parameters,
    keys: Array,
    candidates: Candidates,
    worlds_at_once: int,
) -> Episode:
    """Every candidate in every environment, `worlds_at_once` worlds per compiled call.

    Args:
        ledger: keeps what was measured, batch by batch.
        stage: under this name.
        parameters: physics, [environment].
        keys: scenes, [scene set, environment, episode].

    Returns:
        NumPy arrays [candidate, environment, episode], costs and rewards per decision.
    """
    shape = (len(candidates.eta), keys.shape[1], keys.shape[2])
    latents = jnp.asarray(candidates.latent, jnp.float32)
    etas = jnp.asarray(candidates.eta, jnp.float32)
    scenes = np.asarray(candidates.scenes)

    def some(flat: np.ndarray) -> dict[str, Numbers]:
        which, environment, number = np.unravel_index(flat, shape)
        physics = jax.tree.map(lambda values: values[environment], parameters)
        chosen = keys[scenes[which], environment, number]
        return episode(task, agent, weights, physics, chosen, latents[which, environment], etas[which])._asdict()

    length = task.description.decisions_per_episode
    flat = in_batches(ledger, stage, int(np.prod(shape)), worlds_at_once, length, some)
    return Episode(**{name: values.reshape(shape) for name, values in flat.items()})


def discounted(cost_per_decision: np.ndarray, budget: Budget) -> np.ndarray:
    """Cost in the unit of d: that of spending at this rate for ever, as the budget itself is converted.

    A sum discounted from the start of an episode would weigh its first decisions most; the budget is a limit on the
    mean cost of an episode, in which all weigh the same.
    """
    return cost_per_decision / (1.0 - budget.discount)
