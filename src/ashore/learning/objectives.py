"""The losses of a whole batch, as functions of the networks' weights.

`losses.py` has the formulas for one transition; here they meet the networks, once per transition of a batch
[tasks, transitions per task] with one latent sample per task. Who is trained and who is frozen is not decided here but
in `updates.py`, by what it differentiates.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ashore.learning import losses, normalisation, risk
from ashore.learning.normalisation import Normalisers
from ashore.learning.replay import Ahead, Context, Experience
from ashore.learning.risk import RiskConfig
from ashore.networks import actor, architecture, critic, dynamics_head, encoder
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
    reward_floor: float | None = None
    """Rewards below this count as this for the critic: how much worse than hopeless teaches nothing."""
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
    saturation_weight: float = 0.1
    """Weight of `losses.saturation` in the actor's loss; 0 is the paper's."""
    smoothness_weight: float | None = None
    """Weight of the mean squared change of the actor's action from one decision to the next; None is the paper's."""
    target_noise: float = 0.0
    """Standard deviation of TD3's smoothing noise on the target action; 0 is the paper's."""
    target_noise_clip: float = 0.5
    risk: RiskConfig = RiskConfig()


class Work(NamedTuple):
    """The batch as the networks see it, and all randomness of the update.

    Tasks and their transitions are one flat axis, task by task; `context`, `mask` and `noise` are per task.
    """

    observation: Array
    action: Array
    next_observation: Array
    """What was observed where the critics take over."""
    following: Array | None
    """What was observed one decision later; None where nobody asks how smoothly the actor acts."""
    signals: Array
    """Scaled reward and (penalised) cost up to there, discounted, [transitions, REWARD or COST]."""
    discounts: Array
    """What a unit there is worth now; 0 where the task itself ended, [transitions, REWARD or COST]."""
    dynamics_target: Array
    context: Array
    """Normalised context transitions, [tasks, places, inputs]."""
    mask: Array
    noise: Array
    """Standard normal noise of the posterior samples, [tasks, latent]."""
    risk_level: Array
    """eta at which each transition is learnt, [transitions]; all 0 where the policy takes none."""
    online_fractions: Array
    """[REWARD or COST, transitions, N]."""
    target_fractions: Array
    actor_fractions: Array
    smoothing: Array
    """Noise on the target action, [transitions, action]."""


def prepare(
    config: ObjectiveConfig, key: Array, normalisers: Normalisers, batch: Experience, ahead: Ahead, contexts: Context
) -> Work:
    """Normalise and flatten the batch, and draw everything that is random."""
    nets = config.architecture
    tasks, per_task = batch.reward.shape
    count, fractions = tasks * per_task, nets.sizes.fractions
    flat, later = jax.tree.map(lambda field: field.reshape(count, *field.shape[2:]), (batch, ahead))
    keys = jax.random.split(key, 6)
    shape = (2, count, fractions)
    see = jax.vmap(lambda observation: normalisation.see(nets, normalisers.observation, observation))
    # A penalty belongs in the cost critic's target alone: what the encoder sees is the true cost.
    believed_cost = later.cost if later.penalty is None else later.cost + later.penalty
    floored = _floored(config, later.reward)
    reward = (floored if later.unearned is None else floored - later.unearned) * config.reward_scale
    signals, discounts = _followed(config, later, reward, believed_cost)

    def dynamics_row(change: Array, reward: Array, cost: Array) -> Array:
        return normalisation.dynamics_target(normalisers, change, reward, cost)

    def context_row(row: Context) -> Array:
        return normalisation.encoder_input(normalisers, nets.features, *row[:-1])

    return Work(
        observation=see(flat.observation),
        action=flat.action,
        next_observation=see(later.observation),
        following=None if config.smoothness_weight is None else see(flat.next_observation),
        signals=signals,
        discounts=discounts,
        dynamics_target=jax.vmap(dynamics_row)(flat.change, flat.reward, flat.cost),
        context=jax.vmap(jax.vmap(context_row))(contexts),
        mask=contexts.mask,
        noise=jax.random.normal(keys[0], (tasks, nets.sizes.latent)),
        risk_level=risk.levels(config.risk, keys[5], count),
        online_fractions=jax.random.uniform(keys[1], shape),
        target_fractions=jax.random.uniform(keys[2], shape),
        actor_fractions=jax.random.uniform(keys[3], shape),
        smoothing=jax.random.normal(keys[4], (count, nets.action)),
    )


def _followed(config: ObjectiveConfig, later: Ahead, reward: Array, cost: Array) -> tuple[Array, Array]:
    """Discounted sums over the decisions followed, and the discount of what comes after them.

    Args:
        reward: of each decision, zero where none was followed, [transitions, steps].
    """
    gamma = jnp.stack([jnp.float32(config.discount_reward), jnp.float32(config.discount_cost)])
    weights = gamma[:, None] ** jnp.arange(reward.shape[1], dtype=jnp.float32)[None]
    signals = jnp.stack([jnp.sum(reward * weights[REWARD][None], 1), jnp.sum(cost * weights[COST][None], 1)], axis=1)
    goes_on = 1.0 - later.terminated.astype(jnp.float32)
    return signals, goes_on[:, None] * gamma[None] ** later.steps[:, None].astype(jnp.float32)


def _floored(config: ObjectiveConfig, reward: Array) -> Array:
    return reward if config.reward_floor is None else jnp.maximum(reward, config.reward_floor)


def posteriors(config: ObjectiveConfig, weights: Params, work: Work) -> NaturalPosterior:
    """q(z | D) per task."""
    encode = jax.vmap(lambda rows, mask: encoder.encode(config.architecture.encoder, weights, rows, mask))
    return encode(work.context, work.mask)


def latents_of(posterior: NaturalPosterior, work: Work) -> Array:
    """One posterior sample per task, repeated for each of its transitions, [transitions, latent]."""
    samples = jax.vmap(encoder.sample)(posterior, work.noise)
    return jnp.repeat(samples, work.observation.shape[0] // samples.shape[0], axis=0)


def conditions_of(config: ObjectiveConfig, latents: Array, work: Work) -> Array:
    """What actor and critics are conditioned on, [transitions, condition]."""
    return jax.vmap(lambda *example: architecture.condition(config.architecture, *example))(latents, work.risk_level)


class Query(NamedTuple):
    """Where both critics are asked, one row per transition."""

    observation: Array
    action: Array
    condition: Array
    fractions: Array
    """[REWARD or COST, transitions, fractions]."""


def ask(config: ObjectiveConfig, critics: Params, *queries: Query) -> list[Array]:
    """The critics' quantiles for each query, [REWARD or COST, heads, transitions, fractions], in one pass."""
    rows = [query.observation.shape[0] for query in queries]
    parts = [jnp.concatenate(part, axis=int(name == "fractions")) for name, part in _by_field(queries)]
    values = critic.pair_quantiles(config.architecture.critic, critics, *parts)
    ends = [sum(rows[: i + 1]) for i in range(len(rows))]
    return [values[:, :, end - count : end] for count, end in zip(rows, ends, strict=True)]


def _by_field(queries: tuple[Query, ...]) -> list[tuple[str, tuple[Array, ...]]]:
    return list(zip(Query._fields, zip(*queries, strict=True), strict=True))


def td_targets(config: ObjectiveConfig, actor_weights: Params, targets: Params, work: Work, latents: Array) -> Array:
    """Eqs 5 and 6: the online actor and the target critics at s', same z, [REWARD or COST, transitions, N']."""
    nets, conditions = config.architecture, conditions_of(config, latents, work)
    act = jax.vmap(lambda *example: actor.apply(nets.actor, actor_weights, *example))
    actions = act(work.next_observation, conditions)
    if config.target_noise > 0.0:
        limit = config.target_noise_clip
        actions = jnp.clip(actions + jnp.clip(config.target_noise * work.smoothing, -limit, limit), -1.0, 1.0)
    (values,) = ask(config, targets, Query(work.next_observation, actions, conditions, work.target_fractions))
    return bootstrap(reduced(config, values), work)


def bootstrap(values: Array, work: Work) -> Array:
    """Signal plus discounted value of what follows, without gradient, [REWARD or COST, transitions, N'].

    Args:
        values: of the next state and action, heads made one, [REWARD or COST, transitions, N'].
    """
    by_critic = jax.vmap(losses.td_target, in_axes=(0, 0, 0))
    return jax.vmap(by_critic, in_axes=(0, 0, 1), out_axes=1)(work.signals, work.discounts, values)


def taken_query(config: ObjectiveConfig, work: Work, latents: Array) -> Query:
    """The actions that were taken, in worlds described by z."""
    return Query(work.observation, work.action, conditions_of(config, latents, work), work.online_fractions)


def critic_losses(config: ObjectiveConfig, values: Array, work: Work, targets: Array) -> Array:
    """Eqs 7 and 8 averaged over the batch, [REWARD or COST].

    Args:
        values: the critics' answer to `taken_query`.
        targets: as `td_targets` made them.
    """

    def mean_loss(place: int, kappa: float) -> Array:
        def one(values: Array, fractions: Array, targets: Array) -> Array:
            return losses.critic_loss(values, fractions, targets, kappa, config.quantile_reduction)

        return jnp.mean(jax.vmap(one, in_axes=(1, 0, 0))(values[place], work.online_fractions[place], targets[place]))

    return jnp.stack([mean_loss(REWARD, config.kappa_reward), mean_loss(COST, config.kappa_cost)])


class Manners(NamedTuple):
    """How an actor acts, whatever that is worth; means over the batch."""

    saturation: Array
    roughness: Array
    """Squared change of the action from one decision to the next; zero where nobody asks."""


def manners_of(work: Work, conditions: Array, preactivation: Callable[[Array, Array], Array], raw: Array) -> Manners:
    """What `raw`, an actor's preactivations at the batch's observations, and those one decision later show.

    Args:
        preactivation: of the same actor, for one observation and condition.
    """
    saturation = jnp.mean(jax.vmap(losses.saturation)(raw))
    if work.following is None:
        return Manners(saturation, jnp.zeros((), jnp.float32))
    later = jax.vmap(preactivation)(work.following, conditions)
    return Manners(saturation, jnp.mean(jnp.sum(jnp.square(jnp.tanh(later) - jnp.tanh(raw)), axis=1)))


def discipline(config: ObjectiveConfig, manners: Manners) -> Array:
    """What an actor's loss adds for its manners."""
    smoothness = 0.0 if config.smoothness_weight is None else config.smoothness_weight
    return config.saturation_weight * manners.saturation + smoothness * manners.roughness


def actor_query(config: ObjectiveConfig, weights: Params, work: Work, latents: Array) -> tuple[Query, Manners]:
    """The actor's own actions, and its manners; at a risk level the cost is asked for its upper tail."""
    nets, conditions = config.architecture, conditions_of(config, latents, work)

    def preactivation(observation: Array, condition: Array) -> Array:
        return actor.preactivation(nets.actor, weights, observation, condition)

    raw = jax.vmap(preactivation)(work.observation, conditions)
    query = Query(work.observation, jnp.tanh(raw), conditions, actor_fractions(work))
    return query, manners_of(work, conditions, preactivation, raw)


def actor_fractions(work: Work) -> Array:
    """Fractions at which an actor asks: all of the reward, and of the cost its worst (1 - eta) share."""
    level = work.risk_level[:, None]
    tail = level + (1.0 - level) * work.actor_fractions[COST]
    return jnp.stack([work.actor_fractions[REWARD], tail])


def actor_loss(config: ObjectiveConfig, values: Array, work: Work, manners: Manners, multiplier: Array) -> Array:
    """Eq 11 averaged over the batch; at a risk level the cost is the mean of its worst (1 - eta) share.

    Args:
        values: the critics' answer to `actor_query`.
        manners: of the same actor.
    """

    def one(values: Array, level: Array) -> Array:
        pressed = risk.multiplier_at(config.risk, multiplier, level)
        return losses.actor_loss(values[REWARD], values[COST], pressed, config.normalise_actor_loss)

    by_transition = jax.vmap(one, in_axes=(1, 0))(reduced(config, values), work.risk_level)
    return jnp.mean(by_transition) + discipline(config, manners)


def reduced(config: ObjectiveConfig, values: Array) -> Array:
    """Both critics with their heads made one, [REWARD or COST, transitions, fractions]."""
    by_example = jax.vmap(losses.reduce_heads, in_axes=(1, None))
    return jnp.stack([by_example(values[REWARD], config.reward_heads), by_example(values[COST], config.cost_heads)])


def dynamics_loss(config: ObjectiveConfig, weights: Params, work: Work, latents: Array) -> Array:
    """Negative log-likelihood of what the batch's decisions did, given z."""
    net = config.architecture.dynamics

    def one(observation: Array, action: Array, latent: Array, target: Array) -> Array:
        prediction = dynamics_head.apply(net, weights, observation, action, latent)
        return dynamics_head.negative_log_likelihood(net, weights, prediction, target)

    return jnp.mean(jax.vmap(one)(work.observation, work.action, latents, work.dynamics_target))
