"""The losses by hand, their minimisers in closed form, and a quantile network trained on a known distribution."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ashore.learning import losses
from ashore.learning.losses import ENCODER_OBJECTIVES
from ashore.networks import critic
from ashore.networks.critic import CriticConfig
from ashore.quantiles import expectation, midpoints, upper_tail_mean


@pytest.mark.parametrize(
    ("error", "kappa", "by_hand"),
    [
        (0.5, 1.0, 0.03125),  # inside, target above: 0.25 * 0.5^2 / 2
        (-0.5, 1.0, 0.09375),  # inside, target below: 0.75 * 0.5^2 / 2
        (3.0, 1.0, 0.625),  # outside, above: 0.25 * 1 * (3 - 0.5)
        (-3.0, 1.0, 1.875),  # outside, below: 0.75 * 2.5
        (1.0, 2.0, 0.0625),  # inside a wider kappa: 0.25 * (1 / 2) / 2
        (3.0, 2.0, 0.5),  # outside it: 0.25 * 2 * (3 - 1) / 2
        (-1.0, 1.0, 0.375),  # on the seam both branches agree: 0.75 * 0.5
    ],
)
def test_quantile_huber_of_one_pair(error, kappa, by_hand):
    value, target = jnp.array([2.0]), jnp.array([2.0 + error])
    assert losses.quantile_huber(value, jnp.array([0.25]), target, kappa) == pytest.approx(by_hand, rel=1e-6)


def test_quantile_huber_averages_over_both_kinds_of_fraction():
    # values 0 (tau 0.25) and 1 (tau 0.75), targets 0.5, 1, -1; delta = target - value, kappa 1:
    #   value 0: 0.5 -> 0.25 * 0.125 = 0.03125;  1 -> 0.25 * 0.5 = 0.125;  -1 -> 0.75 * 0.5 = 0.375        sum 0.53125
    #   value 1: -0.5 -> 0.25 * 0.125 = 0.03125; 0 -> 0;                   -2 -> 0.25 * 1.5 = 0.375        sum 0.40625
    # 1/(N N') = 1/6: 0.9375 / 6 = 0.15625. Summed over online fractions: 0.9375 / 3 = 0.3125.
    values, fractions = jnp.array([0.0, 1.0]), jnp.array([0.25, 0.75])
    targets = jnp.array([0.5, 1.0, -1.0])
    assert losses.quantile_huber(values, fractions, targets) == pytest.approx(0.15625)
    assert losses.quantile_huber(values, fractions, targets, reduction="sum") == pytest.approx(0.3125)


def test_quantile_huber_slope_is_the_quantile_condition():
    # Far outside kappa the slope in the value is (share of targets below) * (1 - tau) - (share above) * tau, which
    # vanishes exactly when the share below is tau: here 3 of 10 targets below, tau 0.3.
    targets = jnp.concatenate([jnp.full(3, -50.0), jnp.full(7, 50.0)])
    slope = jax.grad(lambda v: losses.quantile_huber(v, jnp.array([0.3]), targets))(jnp.zeros(1))
    assert slope[0] == pytest.approx(0.0, abs=1e-6)


def test_kappa_blurs_quantiles_by_a_known_amount():
    # Targets 1 with probability 0.7 and 5 with 0.3, tau 0.5. Just above the lower atom, at 1 + x with x < kappa, the
    # pull down 0.7 * 0.5 * x / kappa balances the pull up 0.3 * 0.5 at x = kappa * 3 / 7: with kappa 1 the "median" is
    # 1.43 instead of 1. Hence rewards must be scaled so that kappa is small beside what should be told apart.
    targets = jnp.concatenate([jnp.full(7, 1.0), jnp.full(3, 5.0)])
    grid = jnp.linspace(0.0, 6.0, 6001)
    for kappa in (1.0, 0.1):
        loss = jax.vmap(lambda v, k=kappa: losses.quantile_huber(v[None], jnp.array([0.5]), targets, k))(grid)
        assert grid[jnp.argmin(loss)] == pytest.approx(1.0 + kappa * 3.0 / 7.0, abs=2e-3)


def test_td_target_by_hand_and_without_gradient():
    next_values = jnp.array([10.0, 20.0])
    # 1 + 0.9 * (10, 20) = (10, 19); after a true end only the reward is left.
    one, going, ended = (jnp.float32(x) for x in (1.0, 0.9, 0.0))
    np.testing.assert_allclose(losses.td_target(one, going, next_values), [10.0, 19.0])
    np.testing.assert_allclose(losses.td_target(one, ended, next_values), [1.0, 1.0])
    slope = jax.grad(lambda v: jnp.sum(losses.td_target(one, going, v)))(next_values)
    np.testing.assert_array_equal(slope, [0.0, 0.0])


def test_heads_become_one():
    values = jnp.array([[1.0, 4.0], [3.0, 2.0]])
    np.testing.assert_allclose(losses.reduce_heads(values, "mean"), [2.0, 3.0])
    np.testing.assert_allclose(losses.reduce_heads(values, "min"), [1.0, 2.0])
    np.testing.assert_allclose(losses.reduce_heads(values, "max"), [3.0, 4.0])


def test_critic_loss_is_the_mean_of_its_heads():
    values, fractions, targets = jnp.array([[0.0], [1.0]]), jnp.array([0.25]), jnp.array([0.5])
    # Head 0: delta 0.5 -> 0.25 * 0.125 = 0.03125; head 1: delta -0.5 -> 0.75 * 0.125 = 0.09375; mean 0.0625.
    assert losses.critic_loss(values, fractions, targets) == pytest.approx(0.0625)


def test_actor_loss_by_hand():
    # Means 3 and 2, lambda 4: -(3 - 4 * 2) = 5, divided by 1 + 4 it is 1.
    reward, cost = jnp.array([2.0, 4.0]), jnp.array([1.0, 3.0])
    assert losses.actor_loss(reward, cost, jnp.float32(4.0), normalised=False) == pytest.approx(5.0)
    assert losses.actor_loss(reward, cost, jnp.float32(4.0)) == pytest.approx(1.0)
    assert losses.actor_loss(reward, cost, jnp.float32(0.0)) == pytest.approx(-3.0)


def test_encoder_loss_by_hand():
    terms = [jnp.float32(x) for x in (2.0, 3.0, 100.0, 7.0)]
    # Eq 4 with beta 1, 1, 1e-3: 2 + 3 + 0.1 = 5.1; the dynamics term has no weight.
    assert losses.encoder_loss(ENCODER_OBJECTIVES["critic"], *terms) == pytest.approx(5.1)
    # 0.1 * 2 + 0.1 * 3 + 0.1 = 0.6, and 7 for the dynamics.
    assert losses.encoder_loss(ENCODER_OBJECTIVES["critic+dynamics"], *terms) == pytest.approx(7.6)
    assert losses.potential(ENCODER_OBJECTIVES["critic+dynamics"], *terms[:3]) == pytest.approx(0.6)


def test_information_above_the_limit_has_another_price():
    limited = replace(ENCODER_OBJECTIVES["critic"], kl_limit=60.0)
    # 100 nats at 1e-3, and the 40 above the limit at 0.1 more; up to the limit nothing changes.
    assert losses.information_price(limited, jnp.float32(100.0)) == pytest.approx(0.1 + 4.0)
    assert losses.information_price(limited, jnp.float32(60.0)) == pytest.approx(0.06)
    # It is part of the potential and of the encoder's loss: 2 + 3 and 4.1.
    terms = [jnp.float32(x) for x in (2.0, 3.0, 100.0, 7.0)]
    assert losses.potential(limited, *terms[:3]) == pytest.approx(9.1)
    assert losses.encoder_loss(limited, *terms) == pytest.approx(9.1)
    slope = jax.grad(lambda kl: losses.information_price(limited, kl))
    assert slope(jnp.float32(59.0)) == pytest.approx(1e-3)
    assert slope(jnp.float32(61.0)) == pytest.approx(0.101)


LOW, HIGH, RARE = 1.0, 5.0, 0.3
"""A cost that is 5 three times out of ten and 1 otherwise."""
ATOMS = jnp.where(jnp.arange(10) < round(10 * RARE), HIGH, LOW)
TWO_POINT = CriticConfig(observation=1, action=1, condition=1, width=32)
SOMEWHERE = jnp.ones(1)


@functools.partial(jax.jit, static_argnums=1)
def train_on_two_points(key, steps):
    """A cost critic of one state, regressed on a target with the two costs in their proportion, as on N' quantiles."""
    init_key, key = jax.random.split(key)
    params = critic.init(init_key, TWO_POINT)
    optimiser = optax.adam(optax.cosine_decay_schedule(3e-3, steps))
    target = losses.td_target(jnp.float32(LOW), jnp.float32(1.0), ATOMS - LOW)

    def loss(params, fractions):
        values = critic.cost_quantiles(TWO_POINT, params, SOMEWHERE, SOMEWHERE, SOMEWHERE, fractions)
        return losses.critic_loss(values, fractions, target, kappa=0.02)

    def step(carry, _):
        params, memory, key = carry
        key, fraction_key = jax.random.split(key)
        gradients = jax.grad(loss)(params, jax.random.uniform(fraction_key, (256,)))
        with jax.numpy_dtype_promotion("standard"):
            change, memory = optimiser.update(gradients, memory, params)
        return (optax.apply_updates(params, change), memory, key), None

    (params, _, _), _ = jax.lax.scan(step, (params, optimiser.init(params), key), None, length=steps)
    return params


def test_quantile_network_learns_a_two_point_cost():
    params = train_on_two_points(jax.random.key(0), 2000)

    @jax.jit
    def quantile_function(fractions):
        values = critic.cost_quantiles(TWO_POINT, params, SOMEWHERE, SOMEWHERE, SOMEWHERE, fractions)
        return losses.reduce_heads(values, "mean")

    assert quantile_function(jnp.array([0.5]))[0] == pytest.approx(LOW, rel=0.02)
    whole = midpoints(0.0, 256)
    # Mean 0.7 * 1 + 0.3 * 5 = 2.2.
    assert expectation(quantile_function(whole)) == pytest.approx(2.2, rel=0.02)
    tail_means = []
    for level in (0.0, 0.25, 0.5, 0.6, 0.75, 0.9):
        # Above 0.7 only the high cost is left; below, the 0.7 - eta that remain of the low one dilute it:
        # eta 0.25 -> (0.45 * 1 + 1.5) / 0.75 = 2.6; 0.5 -> (0.2 + 1.5) / 0.5 = 3.4; 0.6 -> (0.1 + 1.5) / 0.4 = 4.
        by_hand = (max(1.0 - RARE - level, 0.0) * LOW + min(RARE, 1.0 - level) * HIGH) / (1.0 - level)
        fractions = midpoints(level, 256)
        tail_means.append(float(upper_tail_mean(fractions, quantile_function(fractions), level)))
        assert tail_means[-1] == pytest.approx(by_hand, rel=0.02)
    assert tail_means == sorted(tail_means)
