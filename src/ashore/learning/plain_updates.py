"""One update of an agent that has no latent: critics, actor, targets.

The steps are those of `updates.py` without its encoder: z is zero everywhere, no context is drawn, and neither the
encoder nor the dynamics head is evaluated. The networks keep their shapes, so that what is trained here is stored and
evaluated like any other policy, with an encoder that has no opinion; a bundle leaves both out.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from ashore.learning import augmented_lagrangian, objectives, updates
from ashore.learning.augmented_lagrangian import AugmentedConfig, AugmentedState
from ashore.learning.lagrangian import PIDConfig
from ashore.learning.objectives import Manners, Work
from ashore.learning.updates import LearnerConfig, LearnerState, Metrics
from ashore.networks.critic import COST, REWARD
from ashore.networks.layers import Params
from ashore.types import Array

SILENT = -50.0
"""Bias of the precision of an encoder without an opinion: softplus(-50) = 2e-22 is nothing beside the prior's 1."""


def init(config: LearnerConfig, multiplier: PIDConfig, key: Array) -> LearnerState:
    """A learner before its first update, whose encoder answers every transition with mean 0 and no precision."""
    state = updates.init(config, multiplier, key)
    encoder, latent = state.params["encoder"], config.objective.architecture.sizes.latent
    bias = jnp.concatenate([jnp.zeros(latent, jnp.float32), jnp.full(latent, SILENT, jnp.float32)])
    output = {"kernel": jnp.zeros_like(encoder["output"]["kernel"]), "bias": bias}
    return state._replace(params=state.params | {"encoder": encoder | {"output": output}})


def augmented_init(
    augmented: AugmentedConfig, config: LearnerConfig, multiplier: PIDConfig, key: Array
) -> LearnerState:
    """The same with an augmented Lagrangian in place of the PID."""
    return init(config, multiplier, key)._replace(multiplier=augmented_lagrangian.init(augmented))


def update_step(
    config: LearnerConfig, state: LearnerState, work: Work, multiplier: Array
) -> tuple[LearnerState, Metrics]:
    """One update; arguments and results are those of `updates.update_step`."""
    assert multiplier.ndim == 0, multiplier.shape

    def loss(values: Array, manners: Manners) -> tuple[Array, Array]:
        total = objectives.actor_loss(config.objective, values, work, manners, multiplier)
        return total, jnp.mean(objectives.reduced(config.objective, values)[COST])

    state, _, metrics = _update(config, state, work, loss)
    return state, metrics


def augmented_update_step(
    augmented: AugmentedConfig,
    limit: float,
    config: LearnerConfig,
    state: LearnerState,
    work: Work,
    multiplier: Array,
) -> tuple[LearnerState, Metrics]:
    """One update in which the multiplier follows the cost critic.

    Rewards enter the actor's loss in their own unit, whatever the critic's scale: the constants are made for that.

    Args:
        limit: d, the discounted budget.
    """
    del multiplier  # the learner's own, of which there is more than a number
    pressed = state.multiplier
    assert isinstance(pressed, AugmentedState), type(pressed)
    objective = config.objective

    def loss(values: Array, manners: Manners) -> tuple[Array, Array]:
        reward, cost = (jnp.mean(objectives.reduced(objective, values)[place]) for place in (REWARD, COST))
        charge = augmented_lagrangian.charge(pressed, cost - limit)
        return charge - reward / objective.reward_scale + objectives.discipline(objective, manners), cost

    state, predicted, metrics = _update(config, state, work, loss)
    moved = augmented_lagrangian.update(augmented, pressed, predicted - limit)
    return state._replace(multiplier=moved), metrics | {"curvature": moved.curvature}


def _update(
    config: LearnerConfig,
    state: LearnerState,
    work: Work,
    actor_loss: Callable[[Array, Manners], tuple[Array, Array]],
) -> tuple[LearnerState, Array, Metrics]:
    """Critics, actor unless it is taught elsewhere, targets.

    Args:
        actor_loss: of the critics' values at the actor's actions and of its manners; also says the mean cost.
    """
    objective = config.objective
    latents = jnp.zeros((work.observation.shape[0], objective.architecture.sizes.latent), jnp.float32)
    targets = objectives.td_targets(objective, state.params["actor"], state.targets, work, latents)
    state, critic_metrics = updates.critic_step(config, state, work, latents, targets)
    # The belief is the prior and stays it: its divergence from the prior is zero.
    nothing_learnt = {"kl": jnp.zeros((), jnp.float32)}
    if config.actor_steps is not None:
        state, count_metrics = updates.follow(config, state)
        return state, jnp.zeros((), jnp.float32), critic_metrics | count_metrics | nothing_learnt
    critics = state.params["critics"]

    def loss(weights: Params) -> tuple[Array, tuple[Array, Manners]]:
        query, manners = objectives.actor_query(objective, weights, work, latents)
        (values,) = objectives.ask(objective, critics, query)
        total, cost = actor_loss(values, manners)
        return total, (cost, manners)

    (total, (cost, manners)), gradients = jax.value_and_grad(loss, has_aux=True)(state.params["actor"])
    state, norm = updates.descend(config, state, "actor", gradients)
    state, count_metrics = updates.follow(config, state)
    actor_metrics = {"actor_loss": total, **manners._asdict(), "gradient_norm_actor": norm}
    return state, cost, critic_metrics | actor_metrics | count_metrics | nothing_learnt
