"""One update of the agent: the alternating frozen scheme, in one place.

With one posterior sample z per task, drawn from the encoder phi_k and used throughout:

    1. critics   theta_{k+1}: eqs 5-10 with z held fixed; nothing reaches the encoder
    2. encoder   phi_{k+1}:   eq 4 with the critics frozen at theta_{k+1}; the dynamics head learns along
    3. actor                  eq 11 with theta_{k+1} and z held fixed
    4. targets   follow the critics by Polyak averaging

phi does not change between 1 and 2 and z is the same sample, so the TD targets of step 1, into which no gradient flows,
are exactly those of step 2 and are computed once. Steps 2 and 3 ask the same frozen critics and train different
weights, so they share one pass. That makes an update three passes through the critics (target, online, and this one of
twice the size), of which only the online one is differentiated with respect to the critics' weights.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from ashore.learning import lagrangian, losses, objectives
from ashore.learning.augmented_lagrangian import AugmentedState
from ashore.learning.lagrangian import MultiplierState, PIDConfig
from ashore.learning.losses import ENCODER_OBJECTIVES, EncoderObjective
from ashore.learning.objectives import ObjectiveConfig, Work
from ashore.networks import architecture, encoder
from ashore.networks.critic import COST, REWARD
from ashore.networks.encoder import NaturalPosterior
from ashore.networks.layers import Params
from ashore.types import Array

Metrics = dict[str, Array]

ACTIVE_VARIANCE = 0.01
"""A latent dimension is active when its posterior mean varies more than this between tasks."""


@dataclass(frozen=True)
class LearnerConfig:
    """How the networks are trained; hashable, a static argument of `jit`."""

    objective: ObjectiveConfig
    encoder_objective: EncoderObjective = ENCODER_OBJECTIVES["critic+dynamics"]
    told: bool = True
    """Whether the actor is told the latent; otherwise it multiplies it by zero, for ever."""
    learning_rate: float = 3e-4
    actor_learning_rate: float | None = None
    """That of the actor, where it differs from the others."""
    encoder_learning_rate: float | None = None
    """That of encoder and dynamics head, where it differs from the others."""
    rate_left: float = 1.0
    """Share of the learning rates that is left after `total_updates`; they fall in a straight line."""
    total_updates: int = 1
    """How many updates there will be; only asked where the rates fall."""
    actor_steps: int | None = None
    """How many steps of its own the actor takes elsewhere (`through_physics`); where None, every update moves it."""
    weight_decay: float = 1e-4
    gradient_norm: float = 1.0
    """Gradients of each network are cut to this global norm; the two critics are cut separately."""
    target_rate: float = 0.005
    """Share of the online critics in each step of the targets."""


class LearnerState(NamedTuple):
    """All that learning changes; the normalisers and the replay belong to the loop."""

    params: Params
    targets: Params
    """Target critics, a pair like `params["critics"]`."""
    optimisers: dict[str, optax.OptState]
    """One per network; that of the critics has the pair's leading axis."""
    multiplier: MultiplierState | AugmentedState
    key: Array
    """Where the batches of the next updates come from."""
    updates: Array
    """Updates made, int32."""
    skipped: Array
    """Steps of single networks not made because a gradient was not finite, int32."""
    private: Params
    """Weights that learning needs and a deployed policy does not; they are never exported."""


def optimiser(config: LearnerConfig, name: str) -> optax.GradientTransformation:
    """The rule by which the network of this name descends."""
    encoder = config.encoder_learning_rate
    own_rate = {"actor": config.actor_learning_rate, "encoder": encoder, "dynamics": encoder}.get(name)
    rate = config.learning_rate if own_rate is None else own_rate
    own_steps = config.actor_steps if name == "actor" else None
    total = config.total_updates if own_steps is None else own_steps
    falling = optax.linear_schedule(rate, config.rate_left * rate, total)
    adamw = optax.adamw(rate if config.rate_left == 1.0 else falling, weight_decay=config.weight_decay)
    return optax.chain(optax.clip_by_global_norm(config.gradient_norm), adamw)


def init(config: LearnerConfig, multiplier: PIDConfig, key: Array) -> LearnerState:
    """A learner before its first update; targets start as copies of the critics."""
    params_key, key = jax.random.split(key)
    params = architecture.init(params_key, config.objective.architecture)
    params |= {"actor": as_told(config, params["actor"])}
    optimisers = {name: optimiser(config, name).init(params[name]) for name in ("actor", "encoder", "dynamics")}
    optimisers["critics"] = jax.vmap(optimiser(config, "critics").init)(params["critics"])
    return LearnerState(
        params=params,
        targets=jax.tree.map(jnp.copy, params["critics"]),
        optimisers=optimisers,
        multiplier=lagrangian.init(multiplier),
        key=key,
        updates=jnp.zeros((), jnp.int32),
        skipped=jnp.zeros((), jnp.int32),
        private={},
    )


def update_step(
    config: LearnerConfig,
    state: LearnerState,
    work: Work,
    multiplier: Array,
) -> tuple[LearnerState, dict[str, Array]]:
    """One alternating frozen update.

    Args:
        work: a batch with one context per task and all randomness of the update, as `objectives.prepare` makes it.
        multiplier: lambda, given from outside: an update never moves it.

    Returns:
        The learner afterwards and float32 scalars to log.
    """
    assert multiplier.ndim == 0, multiplier.shape
    posterior = objectives.posteriors(config.objective, state.params["encoder"], work)
    latents = jax.lax.stop_gradient(objectives.latents_of(posterior, work))
    targets = objectives.td_targets(config.objective, state.params["actor"], state.targets, work, latents)

    state, critic_metrics = critic_step(config, state, work, latents, targets)
    state, other_metrics = encoder_and_actor_step(config, state, work, latents, targets, multiplier)
    state, count_metrics = follow(config, state)
    return state, critic_metrics | other_metrics | posterior_metrics(posterior) | count_metrics


def critic_step(
    config: LearnerConfig, state: LearnerState, work: Work, latents: Array, targets: Array
) -> tuple[LearnerState, Metrics]:
    """theta_{k+1}: one step on eqs 7 and 8. z is a constant here, so phi cannot move."""

    query = objectives.taken_query(config.objective, work, latents)

    def loss(critics: Params) -> tuple[Array, tuple[Array, Array]]:
        (values,) = objectives.ask(config.objective, critics, query)
        per_critic = objectives.critic_losses(config.objective, values, work, targets)
        # A plain sum: the two critics share no weight, so each gets the gradient of its own loss.
        return jnp.sum(per_critic), (per_critic, jnp.mean(values, axis=(1, 2, 3)))

    gradients, (per_critic, means) = jax.grad(loss, has_aux=True)(state.params["critics"])
    state, norms = descend(config, state, "critics", gradients)
    return state, critic_metrics(config, per_critic, means, norms)


def critic_metrics(config: LearnerConfig, losses: Array, values: Array, norms: Array) -> Metrics:
    """What a step of the critics has to say; each argument is [REWARD or COST]."""
    return {
        "critic_loss_reward": losses[REWARD],
        "critic_loss_cost": losses[COST],
        "q_reward": values[REWARD] / config.objective.reward_scale,
        "q_cost": values[COST],
        "gradient_norm_critic_reward": norms[REWARD],
        "gradient_norm_critic_cost": norms[COST],
    }


def encoder_and_actor_step(
    config: LearnerConfig, state: LearnerState, work: Work, latents: Array, targets: Array, multiplier: Array
) -> tuple[LearnerState, Metrics]:
    """phi_{k+1} by eq 4, where z carries the gradient, and the actor by eq 11, where z is the constant from before.

    The critics are constants at theta_{k+1} to both. The two losses share no weight, so each network gets the gradient
    of its own. An actor that is taught elsewhere is left alone.
    """
    objective, critics = config.objective, state.params["critics"]
    learns_dynamics, learns_actor = config.encoder_objective.beta_dynamics > 0.0, config.actor_steps is None

    def loss(trained: Params) -> tuple[Array, Metrics]:
        posterior = objectives.posteriors(objective, trained["encoder"], work)
        fresh_latents = objectives.latents_of(posterior, work)
        queries = [objectives.taken_query(objective, work, fresh_latents)]
        if learns_actor:
            own, manners = objectives.actor_query(objective, trained["actor"], work, latents)
            queries.append(own)
        taken_values, *own_values = objectives.ask(objective, critics, *queries)

        per_critic = objectives.critic_losses(objective, taken_values, work, targets)
        kl = jnp.mean(jax.vmap(encoder.kl_to_prior)(posterior))
        dynamics = jnp.zeros((), jnp.float32)
        if learns_dynamics:
            dynamics = objectives.dynamics_loss(objective, trained["dynamics"], work, fresh_latents)
        terms = (per_critic[REWARD], per_critic[COST], kl)
        encoder_loss = losses.encoder_loss(config.encoder_objective, *terms, dynamics)
        metrics = {
            "encoder_loss": encoder_loss,
            "dynamics_loss": dynamics,
            "kl": kl,
            "potential": losses.potential(config.encoder_objective, *terms),
        }
        if not learns_actor:
            return encoder_loss, metrics
        actor_loss = objectives.actor_loss(objective, own_values[0], work, manners, multiplier)
        return encoder_loss + actor_loss, metrics | {"actor_loss": actor_loss, **manners._asdict()}

    owners = ("encoder", *(("dynamics",) if learns_dynamics else ()), *(("actor",) if learns_actor else ()))
    gradients, metrics = jax.grad(loss, has_aux=True)({name: state.params[name] for name in owners})
    for name in owners:
        state, metrics[f"gradient_norm_{name}"] = descend(config, state, name, gradients[name])
    return state, metrics


def follow(config: LearnerConfig, state: LearnerState) -> tuple[LearnerState, Metrics]:
    """The end of an update: the targets follow by Polyak averaging, and the update is counted."""
    followed = optax.incremental_update(state.params["critics"], state.targets, config.target_rate)
    state = state._replace(targets=followed, updates=state.updates + 1)
    return state, {"skipped_steps": state.skipped.astype(jnp.float32)}


def descend(config: LearnerConfig, state: LearnerState, name: str, gradients: Params) -> tuple[LearnerState, Array]:
    """One clipped AdamW step of one network; a step whose gradient is not finite is not made, and counted."""
    rule, place = optimiser(config, name), "params" if name in state.params else "private"
    if name == "actor":
        gradients = as_told(config, gradients)
    weights: Params = getattr(state, place)

    def step(gradients: Params, memory: optax.OptState, params: Params) -> tuple[tuple, Array]:
        norm = optax.tree.norm(gradients)
        # optax raises a float to its int32 count, which strict promotion forbids; only its own lines are excused.
        with jax.numpy_dtype_promotion("standard"):
            change, new_memory = rule.update(gradients, memory, params)
        stepped = (optax.apply_updates(params, change), new_memory)
        return jax.tree.map(lambda new, old: jnp.where(jnp.isfinite(norm), new, old), stepped, (params, memory)), norm

    # The pair's leading axis: each critic has its own norm, moments and decision to skip.
    step = jax.vmap(step) if name == "critics" else step
    (params, memory), norm = step(gradients, state.optimisers[name], weights[name])
    state = state._replace(
        **{place: weights | {name: params}},
        optimisers=state.optimisers | {name: memory},
        skipped=state.skipped + jnp.sum((~jnp.isfinite(norm)).astype(jnp.int32)),
    )
    return state, norm


def as_told(config: LearnerConfig, actor: Params) -> Params:
    """Weights of the actor, or their gradient: zero for what it is not told."""
    return actor if config.told else architecture.deaf_to_latent(config.objective.architecture, actor)


def posterior_metrics(posterior: NaturalPosterior) -> Metrics:
    """What the latents of this batch carry, over the tasks with any context at all."""
    used = (posterior.count > 0).astype(jnp.float32)
    share = used / jnp.maximum(jnp.sum(used), 1.0)
    means = jax.vmap(encoder.mean)(posterior)
    centre = jnp.sum(share[:, None] * means, axis=0)
    spread = jnp.sum(share[:, None] * jnp.square(means - centre[None]), axis=0)
    deviation = jnp.mean(jnp.sqrt(jax.vmap(encoder.variance)(posterior)), axis=1)
    return {
        "active_dimensions": jnp.sum((spread > ACTIVE_VARIANCE).astype(jnp.float32)),
        "posterior_deviation": jnp.sum(share * deviation),
        "context_size": jnp.mean(posterior.count.astype(jnp.float32)),
    }
