"""Evaluation as deployment: a policy meets worlds it has never seen and learns, episode by episode, which they are.

The posterior starts at the prior once, with the first decision, and is kept from episode to episode; the policy acts on
its mean, without noise. Nothing of the simulator's parameters reaches the policy. An attacker may disturb what it sees.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ashore.environments import rollout
from ashore.environments.base import Task
from ashore.environments.rollout import Finished, Worlds
from ashore.learning import normalisation
from ashore.learning.collect import Attack, update_posterior
from ashore.learning.normalisation import Normalisers
from ashore.networks import actor, architecture, encoder
from ashore.networks.architecture import Architecture
from ashore.networks.encoder import NaturalPosterior
from ashore.networks.layers import Params
from ashore.types import Array, Parameters, Policy


class Deployment(NamedTuple):
    """What happened in every world, episode by episode."""

    episode_return: Array
    """[episode, world]."""
    episode_cost: Array
    metrics: dict[str, Array]
    """The task's own figures, [episode, world] each."""
    latent: Array
    """Posterior mean after each decision, [decision, world, latent]."""
    deviation: Array
    """Posterior standard deviation after each decision, averaged over the latent, [decision, world]."""
    diverged: Array
    """Worlds lost on the way, per world."""


def deploy(
    task: Task,
    nets: Architecture,
    params: Params,
    normalisers: Normalisers,
    parameters: Parameters,
    key: Array,
    episodes: int,
    risk_level: Array | float = 0.0,
    attack: Attack | None = None,
) -> Deployment:
    """Deploy a policy in one world per parameter vector for a number of whole episodes.

    Args:
        risk_level: eta at which a risk-conditioned policy acts; the others do not take one.
        attack: disturbs what the policy sees; what it learns about the world is learnt from the same disturbed sight.
    """
    length = task.description.decisions_per_episode
    worlds = rollout.start(task, key, parameters)
    count = worlds.decision.shape[0]
    prior = jax.vmap(lambda _: encoder.prior(nets.sizes.latent))(jnp.arange(count))
    undisturbed = jnp.zeros((count, nets.observation), jnp.float32)
    conditions = jax.vmap(lambda latent: architecture.condition(nets, latent, risk_level))

    def see(observation: Array) -> Array:
        return normalisation.see(nets, normalisers.observation, observation)

    def act(observation: Array, condition: Array) -> Array:
        return actor.apply(nets.actor, params["actor"], see(observation), condition)

    def one_decision(
        carry: tuple[Worlds, NaturalPosterior, Array], decision: Array
    ) -> tuple[tuple[Worlds, NaturalPosterior, Array], tuple[Finished, Array, Array]]:
        worlds, posterior, disturbance = carry
        shown, condition = worlds.observation, conditions(jax.vmap(encoder.mean)(posterior))
        if attack is not None:
            disturbance = attack(nets, params, normalisers, see, shown, condition, disturbance, decision)
            shown = normalisation.disturbed(normalisers.observation, shown, disturbance)
        worlds, transition, finished = rollout.advance(task, worlds, jax.vmap(act)(shown, condition), parameters)
        transition = transition._replace(observation=shown)
        posterior = update_posterior(nets, params, normalisers, posterior, transition)
        spread = jnp.mean(jnp.sqrt(jax.vmap(encoder.variance)(posterior)), axis=1)
        return (worlds, posterior, disturbance), (finished, jax.vmap(encoder.mean)(posterior), spread)

    decisions = jnp.arange(episodes * length, dtype=jnp.int32)
    (worlds, *_), (finished, latent, deviation) = jax.lax.scan(one_decision, (worlds, prior, undisturbed), decisions)
    return _by_episode(finished, latent, deviation, worlds, episodes, length)


def deploy_controller(
    task: Task,
    controller: Callable[[Parameters], Policy],
    believed: Parameters,
    parameters: Parameters,
    key: Array,
    episodes: int,
) -> Deployment:
    """Deploy a controller that learns nothing; its latent has no numbers.

    Args:
        controller: the policy of a world whose physics is believed to be as given.
        believed: what each world's controller believes, fields [world].
        parameters: what is true, fields [world].
    """
    length = task.description.decisions_per_episode
    worlds = rollout.start(task, key, parameters)
    count = worlds.decision.shape[0]

    def act(believed: Parameters, observation: Array, key: Array) -> Array:
        return controller(believed)(observation, key)

    def one_decision(worlds: Worlds, key: Array) -> tuple[Worlds, Finished]:
        actions = jax.vmap(act)(believed, worlds.observation, jax.random.split(key, count))
        worlds, _, finished = rollout.advance(task, worlds, actions, parameters)
        return worlds, finished

    keys = jax.random.split(jax.random.fold_in(key, 1), episodes * length)
    worlds, finished = jax.lax.scan(one_decision, worlds, keys)
    nothing = jnp.zeros((episodes * length, count, 0), jnp.float32)
    return _by_episode(finished, nothing, jnp.ones((episodes * length, count)), worlds, episodes, length)


def _by_episode(
    finished: Finished, latent: Array, deviation: Array, worlds: Worlds, episodes: int, length: int
) -> Deployment:
    last = jnp.arange(1, episodes + 1) * length - 1
    return Deployment(
        episode_return=finished.episode_return[last],
        episode_cost=finished.episode_cost[last],
        metrics={name: values[last] for name, values in finished.metrics.items()},
        latent=latent,
        deviation=deviation,
        diverged=worlds.diverged,
    )


def probe(latents: np.ndarray, targets: np.ndarray) -> float:
    """Share of a quantity's variance that a linear function of the latent explains on worlds it was not fitted to.

    Args:
        latents: [world, latent]; the first half is fitted, the second judged.
        targets: [world].

    Returns:
        R^2, negative where the fit is worse than the mean; NaN where the judged worlds do not differ.
    """
    half = len(targets) // 2
    design = np.concatenate([latents, np.ones((len(latents), 1))], axis=1).astype(np.float64)
    weights, *_ = np.linalg.lstsq(design[:half], targets[:half].astype(np.float64), rcond=None)
    error = targets[half:] - design[half:] @ weights
    variance = float(np.var(targets[half:]))
    return 1.0 - float(np.mean(error**2)) / variance if variance > 0.0 else math.nan
