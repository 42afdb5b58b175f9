"""The paper's losses, for one transition each; batches are made outside with `jax.vmap`.

Equation numbers are the paper's. N and N' count the quantile fractions of the online and of the target critic; they
have nothing to do with the N transitions of a context.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from ashore import quantiles
from ashore.types import Array

REDUCTIONS = ("mean", "sum")
"""Over online fractions: `mean` is the paper's 1/(N N'); `sum` is N times that, as IQN implementations have it."""


def huber(error: Array, kappa: float) -> Array:
    """l(delta) = delta^2 / 2 within kappa, kappa (|delta| - kappa / 2) outside (eq 10)."""
    size = jnp.abs(error)
    return jnp.where(size < kappa, 0.5 * jnp.square(error), kappa * (size - 0.5 * kappa))


def quantile_huber(
    values: Array, fractions: Array, targets: Array, kappa: float = 1.0, reduction: str = "mean"
) -> Array:
    """1/(N N') sum_ij |tau_i - 1(delta_ij < 0)| l(delta_ij) / kappa, delta_ij = target_j - value_i (eqs 7-9).

    A minimiser over values is the tau_i-quantile of the targets, blurred over a distance of about kappa.

    Args:
        values: online quantiles, [N].
        fractions: their fractions, [N].
        targets: samples or quantiles of the target, [N']; no gradient flows into them.
        reduction: `mean` or `sum` over the online fractions.
    """
    assert values.ndim == 1 and values.shape == fractions.shape, (values.shape, fractions.shape)
    assert targets.ndim == 1 and reduction in REDUCTIONS, (targets.shape, reduction)
    errors = jax.lax.stop_gradient(targets)[None, :] - values[:, None]
    weights = jnp.abs(fractions[:, None] - jax.lax.stop_gradient(errors < 0.0).astype(jnp.float32))
    per_fraction = jnp.mean(weights * huber(errors, kappa) / kappa, axis=1)
    return jnp.mean(per_fraction) if reduction == "mean" else jnp.sum(per_fraction)


def td_target(signal: Array, discount: Array, next_values: Array) -> Array:
    """r + gamma Z_tau_j(s', pi(s', z), z) for every target fraction, without gradient (eqs 5, 6).

    Args:
        signal: the reward or the cost, or its discounted sum over several decisions, scalar.
        discount: gamma to the power of their number; 0 after a true end. An episode cut by its time limit has not
            ended: it bootstraps like any other step.
        next_values: target quantiles at the state reached, heads already reduced, [N'].
    """
    assert signal.ndim == 0 and discount.ndim == 0 and next_values.ndim == 1, (signal.shape, next_values.shape)
    return jax.lax.stop_gradient(signal + discount * next_values)


SATURATED = 3.0
"""tanh(3) = 0.995."""

HEAD_REDUCTIONS = {"mean": jnp.mean, "min": jnp.min, "max": jnp.max}


def reduce_heads(values: Array, how: str) -> Array:
    """One quantile function out of the heads' [heads, fractions]: `mean` while training, `max` for a careful cost."""
    assert values.shape == (values.shape[0], values.shape[-1]), values.shape
    return HEAD_REDUCTIONS[how](values, axis=0)


def critic_loss(values: Array, fractions: Array, targets: Array, kappa: float = 1.0, reduction: str = "mean") -> Array:
    """Eq 7 (reward) or 8 (cost), averaged over the heads [heads, N], which share fractions and targets."""
    assert values.shape == (values.shape[0], *fractions.shape), (values.shape, fractions.shape)
    return jnp.mean(jax.vmap(lambda head: quantile_huber(head, fractions, targets, kappa, reduction))(values))


def actor_loss(reward_values: Array, cost_values: Array, multiplier: Array, normalised: bool = True) -> Array:
    """-(1/K sum_k Z_r - lambda 1/K sum_k Z_c), divided by 1 + lambda when normalised (eq 11).

    The division keeps the size of the actor's step the same for every multiplier; the paper writes the loss without.

    Args:
        reward_values: return quantiles at the actor's own action, heads reduced, [K].
        cost_values: cost quantiles there, [K].
    """
    assert multiplier.ndim == 0, multiplier.shape
    loss = multiplier * quantiles.expectation(cost_values) - quantiles.expectation(reward_values)
    return loss / (1.0 + multiplier) if normalised else loss


def saturation(preactivation: Array) -> Array:
    """sum_j max(0, |u_j| - 3)^2: grows where tanh(u) is past 0.995 and its gradient all but gone.

    Without it an actor that the first, ignorant critics push to the edge of the box can stay there for ever: seen with
    learning rates of 6e-4 and more, where the actor's gradient became exactly zero within 100 decisions.
    """
    assert preactivation.ndim == 1, preactivation.shape
    return jnp.sum(jnp.square(jnp.maximum(jnp.abs(preactivation) - SATURATED, 0.0)))


@dataclass(frozen=True)
class EncoderObjective:
    """Weights of the encoder's loss."""

    beta_reward: float
    beta_cost: float
    beta_kl: float
    """Weight of the KL, summed over latent dimensions and averaged over tasks."""
    beta_dynamics: float
    """Weight of the dynamics head's likelihood; at zero the head is neither evaluated nor trained."""
    kl_limit: float | None = None
    """Nats from which on every further one costs `EXCESS` more; none if left out."""


EXCESS = 0.1
"""Far more than a nat earns: of two runs of PointGoal2 the one without a limit has 6 to 8 nats more at the end, and a
dynamics loss that is lower by 0.001 to 0.002 for each (results/point_goal2_kl_limit)."""


ENCODER_OBJECTIVES = {
    # The paper's eq 4: the critics alone say what z should carry.
    "critic": EncoderObjective(beta_reward=1.0, beta_cost=1.0, beta_kl=1e-3, beta_dynamics=0.0),
    # Measured: identifies the physics, which the critics alone do not.
    "critic+dynamics": EncoderObjective(beta_reward=0.1, beta_cost=0.1, beta_kl=1e-3, beta_dynamics=1.0),
}


def potential(objective: EncoderObjective, reward_loss: Array, cost_loss: Array, kl: Array) -> Array:
    """J = beta_r L_r + beta_c L_c + beta_KL L_KL: eq 4, and the function of the stability theorem, without a limit.

    Args:
        kl: L_KL, `encoder.kl_to_prior` averaged over tasks.
    """
    return objective.beta_reward * reward_loss + objective.beta_cost * cost_loss + information_price(objective, kl)


def information_price(objective: EncoderObjective, kl: Array) -> Array:
    """beta_KL L_KL; beyond the paper, more for what is above the limit, so that the KL settles there."""
    price = objective.beta_kl * kl
    return price if objective.kl_limit is None else price + EXCESS * jnp.maximum(kl - objective.kl_limit, 0.0)


def encoder_loss(
    objective: EncoderObjective, reward_loss: Array, cost_loss: Array, kl: Array, dynamics_loss: Array
) -> Array:
    """Eq 4, plus the likelihood of what happened under the dynamics head."""
    return potential(objective, reward_loss, cost_loss, kl) + objective.beta_dynamics * dynamics_loss
