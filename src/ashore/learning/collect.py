"""Experience: the policy acts in all worlds, learning in each which world it is in.

Every world is a small deployment: its posterior starts at the prior with each episode and takes in one transition per
decision. A share of the worlds (`quiet_share`) acts as a deployed policy does, on the posterior mean and without noise;
only these say what the policy costs. The others explore, with noise of their own strength on the action and a latent
drawn from the posterior that is held for a while.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ashore.environments import rollout
from ashore.environments.base import Task
from ashore.environments.rollout import Finished, Worlds
from ashore.learning import normalisation, risk
from ashore.learning.normalisation import Normalisers
from ashore.learning.risk import RiskConfig
from ashore.networks import actor, architecture, encoder
from ashore.networks.architecture import Architecture
from ashore.networks.encoder import NaturalPosterior
from ashore.networks.layers import Params
from ashore.types import Array, Parameters, Transition


@dataclass(frozen=True)
class CollectConfig:
    """How experience is gathered."""

    noise_low: float = 0.05
    noise_high: float = 0.4
    """Standard deviations of the action noise are log-uniform between these, one per exploring world."""
    noise_memory: float = 0.0
    """Decisions over which the noise of a world is remembered (a first-order process of the same strength).

    0 is fresh noise with every decision. At a high control rate that explores nothing but jerk.
    """
    quiet_share: float = 0.25
    """Share of worlds that act without noise; their cost drives the multiplier."""
    hold_latent: int = 32
    """Decisions for which an exploring world keeps its posterior sample and its risk level."""
    random_decisions: int = 10
    """Decisions at the very start that are uniformly random in every world."""
    cost_memory: int = 25
    """Decisions over which the measured cost rate is averaged (exponentially)."""


class Collector(NamedTuple):
    """Worlds and what is known about each."""

    worlds: Worlds
    posterior: NaturalPosterior
    """What the running episode has revealed so far, [world]."""
    latent: Array
    """The latent an exploring world acts on, [world, latent]."""
    risk_level: Array
    """The risk level an exploring world acts at, where the policy takes one, [world]; 0 in quiet worlds."""
    noise: Array
    """Standard deviation of its action noise, 0 in quiet worlds, [world]."""
    push: Array
    """The noise itself in units of its standard deviation, [world, action]."""
    cost_rate: Array
    """Cost per decision of the quiet worlds, averaged over the last decisions."""
    key: Array
    decisions: Array
    """Decisions taken so far, int32; each was taken in every world."""
    disturbance: Array | None = None
    """What an attacker added to the last observation, normalised, [world, observation]; None where nobody attacks."""


def start(
    task: Task,
    config: CollectConfig,
    nets: Architecture,
    key: Array,
    parameters: Parameters,
    attacked: bool = False,
) -> Collector:
    """Start every world, at different moments of its episode so that episodes do not all end together.

    Args:
        attacked: whether somebody will disturb the observations.
    """
    world_key, phase_key, noise_key, key = jax.random.split(key, 4)
    worlds = rollout.start(task, world_key, parameters)
    count = worlds.decision.shape[0]
    phase = jax.random.randint(phase_key, (count,), 0, task.description.decisions_per_episode)
    low, high = math.log(config.noise_low), math.log(config.noise_high)
    noise = jnp.exp(jax.random.uniform(noise_key, (count,), minval=low, maxval=high))
    latents = nets.sizes.latent
    return Collector(
        worlds=worlds._replace(decision=phase),
        posterior=jax.vmap(lambda _: encoder.prior(latents))(jnp.arange(count)),
        latent=jnp.zeros((count, latents), jnp.float32),
        risk_level=jnp.zeros(count, jnp.float32),
        noise=jnp.where(jnp.arange(count) < quiet_worlds(config, count), 0.0, noise),
        push=jnp.zeros((count, nets.action), jnp.float32),
        # Nothing was measured yet; the budget itself leaves the multiplier where it is.
        cost_rate=jnp.float32(task.description.budget.per_decision),
        key=key,
        decisions=jnp.zeros((), jnp.int32),
        disturbance=jnp.zeros((count, nets.observation), jnp.float32) if attacked else None,
    )


def quiet_worlds(config: CollectConfig, count: int) -> int:
    """How many of the worlds act without noise: the first ones."""
    return max(1, round(config.quiet_share * count))


def update_posterior(
    nets: Architecture,
    params: Params,
    normalisers: Normalisers,
    posterior: NaturalPosterior,
    transition: Transition,
) -> NaturalPosterior:
    """Take one transition per world into its posterior; a diverged one says nothing."""
    index = jnp.asarray(nets.features, jnp.int32)

    def one(posterior: NaturalPosterior, step: Transition) -> NaturalPosterior:
        before, after = step.observation[index], step.next_observation[index]
        row = normalisation.encoder_input(
            normalisers, nets.features, before, step.action, after - before, step.reward, step.cost
        )
        opinion = encoder.factor(nets.encoder, params["encoder"], row)
        return encoder.add(posterior, opinion, ~step.diverged)

    return jax.vmap(one)(posterior, transition)


def posterior_latents(collector: Collector, renew: Array, noise: Array) -> Array:
    """Posterior mean in quiet worlds, a posterior sample held for some decisions in the others.

    Args:
        renew: which worlds may take a new sample now, bool [world].
        noise: standard normal, [world, latent].
    """
    means = jax.vmap(encoder.mean)(collector.posterior)
    samples = jax.vmap(encoder.sample)(collector.posterior, noise)
    held = jnp.where(renew[:, None], samples, collector.latent)
    return jnp.where((collector.noise > 0.0)[:, None], held, means)


def act_with_noise(
    nets: Architecture, params: Params, seen: Array, condition: Array, strength: Array, push: Array
) -> Array:
    """The actor's actions, and noise added to them, [world, action]; not clipped.

    Args:
        seen: normalised observations, [world, observation].
        strength: standard deviation of the noise, 0 in quiet worlds, [world].
        push: standard normal, [world, action].
    """
    act = jax.vmap(lambda *example: actor.apply(nets.actor, params["actor"], *example))
    return act(seen, condition) + strength[:, None] * push


def stay_at_the_prior(
    nets: Architecture,
    params: Params,
    normalisers: Normalisers,
    posterior: NaturalPosterior,
    transition: Transition,
) -> NaturalPosterior:
    """Believe nothing: the encoder is not even asked."""
    del nets, params, normalisers, transition
    return posterior


def no_latents(collector: Collector, renew: Array, noise: Array) -> Array:
    """Zero in every world, as the mean of the prior is: the policy does not know where it is."""
    del renew, noise
    return jnp.zeros_like(collector.latent)


See = Callable[[Array], Array]
"""What the networks see of one raw observation."""

Attack = Callable[[Architecture, Params, Normalisers, See, Array, Array, Array, Array], Array]
"""(nets, params, normalisers, see, observations, condition, last disturbance, decisions so far) -> disturbance.

Observations are raw and disturbances in standard deviations of each observed number, [world, ...] each.
"""


@dataclass(frozen=True)
class Habits:
    """Where methods differ in how they act: plain functions over all worlds at once."""

    believe: Callable[[Architecture, Params, Normalisers, NaturalPosterior, Transition], NaturalPosterior] = (
        update_posterior
    )
    """What a transition does to the posterior."""
    latents: Callable[[Collector, Array, Array], Array] = posterior_latents
    """The latent each world acts on."""
    act: Callable[[Architecture, Params, Array, Array, Array, Array], Array] = act_with_noise
    """Actions with exploration in them."""
    attack: Attack | None = None
    """Disturbs what the policy sees, and what is remembered that it saw."""


WITH_LATENT = Habits()
WITHOUT_LATENT = Habits(believe=stay_at_the_prior, latents=no_latents)


def collect(
    task: Task,
    config: CollectConfig,
    risks: RiskConfig,
    nets: Architecture,
    params: Params,
    normalisers: Normalisers,
    parameters: Parameters,
    collector: Collector,
    habits: Habits = WITH_LATENT,
    kept: Params | None = None,
) -> tuple[Collector, Transition, Finished]:
    """One decision in every world.

    Where somebody attacks, the transition holds the observation that the policy was shown; the next one is clean.

    Args:
        kept: weights that quiet worlds act by where they are not `params`: what is deployed is what costs are about.
    """
    count = collector.noise.shape[0]
    key, latent_key, level_key, noise_key, random_key = jax.random.split(collector.key, 5)
    renew = collector.worlds.decision % config.hold_latent == 0
    latent = habits.latents(collector, renew, jax.random.normal(latent_key, collector.latent.shape))
    level = jnp.where(renew, risk.levels(risks, level_key, count), collector.risk_level)
    level = jnp.where(collector.noise > 0.0, level, 0.0)
    condition = jax.vmap(lambda *example: architecture.condition(nets, *example))(latent, level)

    def see(observation: Array) -> Array:
        return normalisation.see(nets, normalisers.observation, observation)

    shown, disturbance = _shown(habits.attack, nets, params, normalisers, see, condition, collector)
    push = _pushed_on(config, collector.push, noise_key)
    situation = (jax.vmap(see)(shown), condition, collector.noise, push)
    quiet = quiet_worlds(config, count)
    actions = _actions(habits, nets, params, kept, quiet, situation)
    at_random = jax.random.uniform(random_key, actions.shape, minval=-1.0, maxval=1.0)
    actions = jnp.where(collector.decisions < config.random_decisions, at_random, jnp.clip(actions, -1.0, 1.0))

    worlds, transition, finished = rollout.advance(task, collector.worlds, actions, parameters)
    transition = transition._replace(observation=shown)
    posterior = habits.believe(nets, params, normalisers, collector.posterior, transition)
    prior = jax.vmap(lambda _: encoder.prior(nets.sizes.latent))(jnp.arange(count))
    quiet_cost = jnp.mean(transition.cost[:quiet])
    share = jnp.float32(1.0 / config.cost_memory)
    collector = Collector(
        worlds=worlds,
        posterior=jax.tree.map(lambda old, new: _where_done(finished.done, old, new), prior, posterior),
        latent=latent,
        risk_level=level,
        noise=collector.noise,
        push=push,
        cost_rate=(1.0 - share) * collector.cost_rate + share * quiet_cost,
        key=key,
        decisions=collector.decisions + 1,
        disturbance=disturbance,
    )
    return collector, transition, finished


def _shown(
    attack: Attack | None,
    nets: Architecture,
    params: Params,
    normalisers: Normalisers,
    see: See,
    condition: Array,
    collector: Collector,
) -> tuple[Array, Array | None]:
    """The raw observations that the policy is shown, and what an attacker added to them."""
    shown, disturbance = collector.worlds.observation, None
    if attack is not None:
        assert collector.disturbance is not None
        known = (nets, params, normalisers, see, shown, condition)
        disturbance = attack(*known, collector.disturbance, collector.decisions)
        shown = normalisation.disturbed(normalisers.observation, shown, disturbance)
    return shown, disturbance


def _actions(
    habits: Habits,
    nets: Architecture,
    params: Params,
    kept: Params | None,
    quiet: int,
    situation: tuple[Array, Array, Array, Array],
) -> Array:
    """What every world does, not clipped: quiet ones by the weights that are kept, where there are others."""
    actions = habits.act(nets, params, *situation)
    if kept is not None:
        deployed = habits.act(nets, kept, *(part[:quiet] for part in situation))
        actions = jnp.concatenate([deployed, actions[quiet:]])
    return actions


def _pushed_on(config: CollectConfig, push: Array, key: Array) -> Array:
    """The noise one decision later, [world, action]."""
    left = math.exp(-1.0 / config.noise_memory) if config.noise_memory > 0.0 else 0.0
    return left * push + math.sqrt(1.0 - left**2) * jax.random.normal(key, push.shape)


def _where_done(done: Array, fresh: Array, running: Array) -> Array:
    return jnp.where(done.reshape(-1, *(1,) * (running.ndim - 1)), fresh, running)
