"""The losses of a whole batch, as functions of the networks' weights.

`losses.py` has the formulas for one transition; here they meet the networks, once per transition of a batch
[tasks, transitions per task] with one latent sample per task. Who is trained and who is frozen is not decided here but
in `updates.py`, by what it differentiates.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ashore.learning import losses, normalisation
from ashore.learning.normalisation import Normalisers
from ashore.learning.replay import Context, Experience
from ashore.networks import actor, critic, dynamics_head, encoder
from ashore.networks.architecture import Architecture
from ashore.networks.critic import COST, REWARD
from ashore.networks.encoder import NaturalPosterior
from ashore.networks.layers import Params
from ashore.types import Array


@dataclass(frozen=True)
class ObjectiveConfig:
    """What is to be learnt from a batch."""

    architecture: Architecture
    discount_reward: float = 0.99
    discount_cost: float = 0.99
    reward_scale: float = 1.0
    """Rewards are multiplied by this for the critic: TD errors should be about kappa in size."""
    kappa_reward: float = 1.0
    kappa_cost: float = 1.0
    quantile_reduction: str = "mean"
    """`mean` or `sum` over online fractions (see `losses.REDUCTIONS`)."""
    reward_heads: str = "mean"
    """How the two reward heads become one, in targets and in the actor's loss: `mean` or `min`."""
    cost_heads: str = "mean"
    """The same for the cost: `mean` or `max`."""
    normalise_actor_loss: bool = True
    """Divide eq 11 by 1 + lambda."""
    target_noise: float = 0.0
    """Standard deviation of TD3's smoothing noise on the target action; 0 is the paper's."""
    target_noise_clip: float = 0.5


class Work(NamedTuple):
    """The batch as the networks see it, and all randomness of the update.

    Tasks and their transitions are one flat axis, task by task; `context`, `mask` and `noise` are per task.
    """

    observation: Array
    action: Array
    next_observation: Array
    signals: Array
    """Scaled reward and cost, [transitions, REWARD or COST]."""
    terminated: Array
    dynamics_target: Array
    context: Array
    """Normalised context transitions, [tasks, places, inputs]."""
    mask: Array
    noise: Array
    """Standard normal noise of the posterior samples, [tasks, latent]."""
    online_fractions: Array
    """[transitions, N]."""
    target_fractions: Array
    actor_fractions: Array
    smoothing: Array
    """Noise on the target action, [transitions, action]."""


def prepare(
    config: ObjectiveConfig, key: Array, normalisers: Normalisers, batch: Experience, contexts: Context
) -> Work:
    """Normalise and flatten the batch, and draw everything that is random."""
    nets = config.architecture
    tasks, per_task = batch.reward.shape
    count, fractions = tasks * per_task, nets.sizes.fractions
    flat = jax.tree.map(lambda field: field.reshape(count, *field.shape[2:]), batch)
    keys = jax.random.split(key, 5)
    see = jax.vmap(lambda observation: normalisation.normalise(normalisers.observation, observation))

    def dynamics_row(change: Array, reward: Array, cost: Array) -> Array:
        return normalisation.dynamics_target(normalisers, change, reward, cost)

    def context_row(row: Context) -> Array:
        return normalisation.encoder_input(normalisers, nets.features, *row[:-1])

    return Work(
        observation=see(flat.observation),
        action=flat.action,
        next_observation=see(flat.next_observation),
        signals=jnp.stack([flat.reward * config.reward_scale, flat.cost], axis=1),
        terminated=flat.terminated,
        dynamics_target=jax.vmap(dynamics_row)(flat.change, flat.reward, flat.cost),
        context=jax.vmap(jax.vmap(context_row))(contexts),
        mask=contexts.mask,
        noise=jax.random.normal(keys[0], (tasks, nets.sizes.latent)),
        online_fractions=jax.random.uniform(keys[1], (count, fractions)),
        target_fractions=jax.random.uniform(keys[2], (count, fractions)),
        actor_fractions=jax.random.uniform(keys[3], (count, fractions)),
        smoothing=jax.random.normal(keys[4], (count, nets.action)),
    )


def posteriors(config: ObjectiveConfig, weights: Params, work: Work) -> NaturalPosterior:
    """q(z | D) per task."""
    encode = jax.vmap(lambda rows, mask: encoder.encode(config.architecture.encoder, weights, rows, mask))
    return encode(work.context, work.mask)


def latents_of(posterior: NaturalPosterior, work: Work) -> Array:
    """One posterior sample per task, repeated for each of its transitions, [transitions, latent]."""
    samples = jax.vmap(encoder.sample)(posterior, work.noise)
    return jnp.repeat(samples, work.observation.shape[0] // samples.shape[0], axis=0)


def td_targets(config: ObjectiveConfig, actor_weights: Params, targets: Params, work: Work, latents: Array) -> Array:
    """Eqs 5 and 6: the online actor and the target critics at s', same z, [REWARD or COST, transitions, N']."""
    nets = config.architecture
    act = jax.vmap(lambda *example: actor.apply(nets.actor, actor_weights, *example))
    actions = act(work.next_observation, latents)
    if config.target_noise > 0.0:
        limit = config.target_noise_clip
        actions = jnp.clip(actions + jnp.clip(config.target_noise * work.smoothing, -limit, limit), -1.0, 1.0)
    values = _reduced(config, targets, work.next_observation, actions, latents, work.target_fractions)

    def one(values: Array, signals: Array, terminated: Array) -> Array:
        reward = losses.td_target(signals[REWARD], terminated, values[REWARD], config.discount_reward)
        cost = losses.td_target(signals[COST], terminated, values[COST], config.discount_cost)
        return jnp.stack([reward, cost])

    return jax.vmap(one, in_axes=(1, 0, 0), out_axes=1)(values, work.signals, work.terminated)


def critic_losses(
    config: ObjectiveConfig, critics: Params, work: Work, latents: Array, targets: Array
) -> tuple[Array, Array]:
    """Eqs 7 and 8 averaged over the batch, and the mean quantile of each critic: two arrays [REWARD or COST]."""
    net, fractions = config.architecture.critic, work.online_fractions
    values = critic.pair_quantiles(net, critics, work.observation, work.action, latents, fractions)

    def mean_loss(place: int, kappa: float) -> Array:
        def one(values: Array, fractions: Array, targets: Array) -> Array:
            return losses.critic_loss(values, fractions, targets, kappa, config.quantile_reduction)

        return jnp.mean(jax.vmap(one, in_axes=(1, 0, 0))(values[place], fractions, targets[place]))

    per_critic = jnp.stack([mean_loss(REWARD, config.kappa_reward), mean_loss(COST, config.kappa_cost)])
    return per_critic, jnp.mean(values, axis=(1, 2, 3))


def actor_loss(
    config: ObjectiveConfig, weights: Params, critics: Params, work: Work, latents: Array, multiplier: Array
) -> Array:
    """Eq 11 averaged over the batch."""
    nets = config.architecture
    actions = jax.vmap(lambda *example: actor.apply(nets.actor, weights, *example))(work.observation, latents)
    values = _reduced(config, critics, work.observation, actions, latents, work.actor_fractions)

    def one(values: Array) -> Array:
        return losses.actor_loss(values[REWARD], values[COST], multiplier, config.normalise_actor_loss)

    return jnp.mean(jax.vmap(one, in_axes=1)(values))


def _reduced(
    config: ObjectiveConfig, critics: Params, observations: Array, actions: Array, latents: Array, fractions: Array
) -> Array:
    """Both critics with their heads made one, [REWARD or COST, batch, fractions]."""
    net = config.architecture.critic
    values = critic.pair_quantiles(net, critics, observations, actions, latents, fractions)
    by_example = jax.vmap(losses.reduce_heads, in_axes=(1, None))
    return jnp.stack([by_example(values[REWARD], config.reward_heads), by_example(values[COST], config.cost_heads)])


def dynamics_loss(config: ObjectiveConfig, weights: Params, work: Work, latents: Array) -> Array:
    """Negative log-likelihood of what the batch's decisions did, given z."""
    net = config.architecture.dynamics

    def one(observation: Array, action: Array, latent: Array, target: Array) -> Array:
        prediction = dynamics_head.apply(net, weights, observation, action, latent)
        return dynamics_head.negative_log_likelihood(net, weights, prediction, target)

    return jnp.mean(jax.vmap(one)(work.observation, work.action, latents, work.dynamics_target))
