"""One update of the agent: the alternating frozen scheme, in one place.

With one posterior sample z per task, drawn from the encoder phi_k and used throughout:

    1. critics   theta_{k+1}: eqs 5-10 with z held fixed; nothing reaches the encoder
    2. encoder   phi_{k+1}:   eq 4 with the critics frozen at theta_{k+1}; the dynamics head learns along
    3. actor                  eq 11 with theta_{k+1} and z held fixed
    4. targets   follow the critics by Polyak averaging

phi does not change between 1 and 2 and z is the same sample, so the TD targets of step 1, into which no gradient flows,
are exactly those of step 2 and are computed once. That makes an update four passes through the critics (target, online,
encoder, actor), of which only the online one is differentiated with respect to the critics' weights.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from ashore.learning import lagrangian, losses, objectives
from ashore.learning.lagrangian import MultiplierState, PIDConfig
from ashore.learning.losses import ENCODER_OBJECTIVES, EncoderObjective
from ashore.learning.normalisation import Normalisers
from ashore.learning.objectives import ObjectiveConfig, Work
from ashore.learning.replay import Context, Experience
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
    learning_rate: float = 3e-4
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
    multiplier: MultiplierState
    key: Array
    updates: Array
    """Updates made, int32."""
    skipped: Array
    """Steps of single networks not made because a gradient was not finite, int32."""


def _optimiser(config: LearnerConfig) -> optax.GradientTransformation:
    adamw = optax.adamw(config.learning_rate, weight_decay=config.weight_decay)
    return optax.chain(optax.clip_by_global_norm(config.gradient_norm), adamw)


def init(config: LearnerConfig, multiplier: PIDConfig, key: Array) -> LearnerState:
    """A learner before its first update; targets start as copies of the critics."""
    params_key, key = jax.random.split(key)
    params = architecture.init(params_key, config.objective.architecture)
    optimiser = _optimiser(config)
    optimisers = {name: optimiser.init(params[name]) for name in ("actor", "encoder", "dynamics")}
    optimisers["critics"] = jax.vmap(optimiser.init)(params["critics"])
    return LearnerState(
        params=params,
        targets=jax.tree.map(jnp.copy, params["critics"]),
        optimisers=optimisers,
        multiplier=lagrangian.init(multiplier),
        key=key,
        updates=jnp.zeros((), jnp.int32),
        skipped=jnp.zeros((), jnp.int32),
    )


def update_step(
    config: LearnerConfig,
    state: LearnerState,
    normalisers: Normalisers,
    batch: Experience,
    contexts: Context,
    multiplier: Array,
) -> tuple[LearnerState, dict[str, Array]]:
    """One alternating frozen update on a batch [tasks, transitions per task] and one context per task.

    Args:
        multiplier: lambda, given from outside: an update never moves it.

    Returns:
        The learner afterwards and float32 scalars to log.
    """
    assert contexts.mask.shape[0] == batch.reward.shape[0], (contexts.mask.shape, batch.reward.shape)
    assert multiplier.ndim == 0, multiplier.shape
    key, draw_key = jax.random.split(state.key)
    work = objectives.prepare(config.objective, draw_key, normalisers, batch, contexts)
    posterior = objectives.posteriors(config.objective, state.params["encoder"], work)
    latents = jax.lax.stop_gradient(objectives.latents_of(posterior, work))
    targets = objectives.td_targets(config.objective, state.params["actor"], state.targets, work, latents)

    state, critic_metrics = _critic_step(config, state, work, latents, targets)
    state, encoder_metrics = _encoder_step(config, state, work, targets)
    state, actor_metrics = _actor_step(config, state, work, latents, multiplier)

    followed = optax.incremental_update(state.params["critics"], state.targets, config.target_rate)
    state = state._replace(targets=followed, key=key, updates=state.updates + 1)
    skipped = {"skipped_steps": state.skipped.astype(jnp.float32)}
    return state, critic_metrics | encoder_metrics | actor_metrics | _posterior_metrics(posterior) | skipped


def _critic_step(
    config: LearnerConfig, state: LearnerState, work: Work, latents: Array, targets: Array
) -> tuple[LearnerState, Metrics]:
    """theta_{k+1}: one step on eqs 7 and 8. z is a constant here, so phi cannot move."""

    def loss(critics: Params) -> tuple[Array, tuple[Array, Array]]:
        per_critic, means = objectives.critic_losses(config.objective, critics, work, latents, targets)
        # A plain sum: the two critics share no weight, so each gets the gradient of its own loss.
        return jnp.sum(per_critic), (per_critic, means)

    gradients, (per_critic, means) = jax.grad(loss, has_aux=True)(state.params["critics"])
    state, norms = _descend(config, state, "critics", gradients)
    return state, {
        "critic_loss_reward": per_critic[REWARD],
        "critic_loss_cost": per_critic[COST],
        "q_reward": means[REWARD] / config.objective.reward_scale,
        "q_cost": means[COST],
        "gradient_norm_critic_reward": norms[REWARD],
        "gradient_norm_critic_cost": norms[COST],
    }


def _encoder_step(
    config: LearnerConfig, state: LearnerState, work: Work, targets: Array
) -> tuple[LearnerState, Metrics]:
    """phi_{k+1}: one step on eq 4. The critics are constants at theta_{k+1}; z carries the gradient."""
    critics = state.params["critics"]
    learns_dynamics = config.encoder_objective.beta_dynamics > 0.0

    def loss(trained: Params) -> tuple[Array, Metrics]:
        posterior = objectives.posteriors(config.objective, trained["encoder"], work)
        latents = objectives.latents_of(posterior, work)
        per_critic, _ = objectives.critic_losses(config.objective, critics, work, latents, targets)
        kl = jnp.mean(jax.vmap(encoder.kl_to_prior)(posterior))
        dynamics = jnp.zeros((), jnp.float32)
        if learns_dynamics:
            dynamics = objectives.dynamics_loss(config.objective, trained["dynamics"], work, latents)
        terms = (per_critic[REWARD], per_critic[COST], kl)
        total = losses.encoder_loss(config.encoder_objective, *terms, dynamics)
        potential = losses.potential(config.encoder_objective, *terms)
        return total, {"encoder_loss": total, "dynamics_loss": dynamics, "kl": kl, "potential": potential}

    trained = {name: state.params[name] for name in ("encoder", "dynamics")}
    gradients, metrics = jax.grad(loss, has_aux=True)(trained)
    state, metrics["gradient_norm_encoder"] = _descend(config, state, "encoder", gradients["encoder"])
    if learns_dynamics:
        state, metrics["gradient_norm_dynamics"] = _descend(config, state, "dynamics", gradients["dynamics"])
    return state, metrics


def _actor_step(
    config: LearnerConfig, state: LearnerState, work: Work, latents: Array, multiplier: Array
) -> tuple[LearnerState, Metrics]:
    """One step on eq 11, through the critics at theta_{k+1}, with z a constant."""
    critics = state.params["critics"]

    def loss(weights: Params) -> Array:
        return objectives.actor_loss(config.objective, weights, critics, work, latents, multiplier)

    value, gradients = jax.value_and_grad(loss)(state.params["actor"])
    state, norm = _descend(config, state, "actor", gradients)
    return state, {"actor_loss": value, "gradient_norm_actor": norm}


def _descend(config: LearnerConfig, state: LearnerState, name: str, gradients: Params) -> tuple[LearnerState, Array]:
    """One clipped AdamW step of one network; a step whose gradient is not finite is not made, and counted."""
    optimiser = _optimiser(config)

    def step(gradients: Params, memory: optax.OptState, params: Params) -> tuple[tuple, Array]:
        norm = optax.tree.norm(gradients)
        # optax raises a float to its int32 count, which strict promotion forbids; only its own lines are excused.
        with jax.numpy_dtype_promotion("standard"):
            change, new_memory = optimiser.update(gradients, memory, params)
        stepped = (optax.apply_updates(params, change), new_memory)
        return jax.tree.map(lambda new, old: jnp.where(jnp.isfinite(norm), new, old), stepped, (params, memory)), norm

    # The pair's leading axis: each critic has its own norm, moments and decision to skip.
    step = jax.vmap(step) if name == "critics" else step
    (params, memory), norm = step(gradients, state.optimisers[name], state.params[name])
    state = state._replace(
        params=state.params | {name: params},
        optimisers=state.optimisers | {name: memory},
        skipped=state.skipped + jnp.sum((~jnp.isfinite(norm)).astype(jnp.int32)),
    )
    return state, norm


def _posterior_metrics(posterior: NaturalPosterior) -> Metrics:
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
