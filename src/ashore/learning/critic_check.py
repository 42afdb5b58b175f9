"""Is the cost critic right? Its prediction against what the same policy then really pays.

The critic values an endless future and an episode ends, so only decisions with at least H more to come are judged,
where H is long enough for the discount to have faded (a tenth is left), and the prediction is multiplied by the share
that H decisions carry, 1 - gamma^H: exact where the cost comes at an even rate, and near it otherwise.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ashore import quantiles
from ashore.environments import rollout
from ashore.environments.base import Task
from ashore.environments.rollout import Worlds
from ashore.learning import normalisation
from ashore.learning.collect import update_posterior
from ashore.learning.normalisation import Normalisers
from ashore.networks import actor, architecture, critic, encoder
from ashore.networks.architecture import Architecture
from ashore.networks.critic import COST
from ashore.networks.encoder import NaturalPosterior
from ashore.networks.layers import Params
from ashore.types import Array, Parameters

FRACTIONS = 32
REMAINDER = 0.1
"""Share of the discounted future that may lie beyond what is judged."""


class Predictions(NamedTuple):
    """One episode in every world, [decision, world]."""

    predicted: Array | np.ndarray
    """The cost critic's mean, heads averaged, at the action that was taken."""
    cost: Array | np.ndarray
    """What that decision cost."""


class CriticCheck(NamedTuple):
    """Predicted against realised discounted cost."""

    predicted: float
    realised: float
    correlation: float
    """Over single decisions: how well the critic tells dear moments from cheap ones."""
    decisions: int
    """Decisions judged."""


def watch(
    task: Task,
    nets: Architecture,
    params: Params,
    normalisers: Normalisers,
    parameters: Parameters,
    key: Array,
) -> Predictions:
    """Deploy the risk-neutral policy for one episode per world and write down what its critic says."""
    taus = quantiles.midpoints(0.0, FRACTIONS)
    weights = critic.one_of(params["critics"], COST)
    worlds = rollout.start(task, key, parameters)
    count = worlds.decision.shape[0]
    prior = jax.vmap(lambda _: encoder.prior(nets.sizes.latent))(jnp.arange(count))

    def decide(observation: Array, latent: Array) -> tuple[Array, Array]:
        seen = normalisation.see(nets, normalisers.observation, observation)
        condition = architecture.condition(nets, latent, 0.0)
        action = actor.apply(nets.actor, params["actor"], seen, condition)
        return action, jnp.mean(critic.cost_quantiles(nets.critic, weights, seen, action, condition, taus))

    def one_decision(
        carry: tuple[Worlds, NaturalPosterior], _: None
    ) -> tuple[tuple[Worlds, NaturalPosterior], Predictions]:
        worlds, posterior = carry
        actions, predicted = jax.vmap(decide)(worlds.observation, jax.vmap(encoder.mean)(posterior))
        worlds, transition, _finished = rollout.advance(task, worlds, actions, parameters)
        posterior = update_posterior(nets, params, normalisers, posterior, transition)
        return (worlds, posterior), Predictions(predicted, transition.cost)

    length = task.description.decisions_per_episode
    return jax.lax.scan(one_decision, (worlds, prior), None, length=length)[1]


def judge(predictions: Predictions, discount: float) -> CriticCheck:
    """Compare over the decisions that have enough of the episode before them.

    Args:
        discount: that of the cost critic.
    """
    predicted, cost = (np.asarray(part, np.float64) for part in predictions)
    length = len(cost)
    faded = math.ceil(math.log(REMAINDER) / math.log(discount)) if discount > 0.0 else 1
    horizon = min(faded, length)
    judged = length - horizon + 1
    powers = discount ** np.arange(horizon)
    realised = np.stack([powers @ cost[decision : decision + horizon] for decision in range(judged)])
    said, paid = (1.0 - discount**horizon) * predicted[:judged].ravel(), realised.ravel()
    varied = min(said.std(), paid.std()) > 0.0
    correlation = float(np.corrcoef(said, paid)[0, 1]) if varied else math.nan
    return CriticCheck(float(said.mean()), float(paid.mean()), correlation, said.size)
