"""Risk levels: how they are drawn, what they ask of the critics, and what they do to the multiplier."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.learning.small_learner import (
    BATCH,
    CONFIG,
    CONTEXT,
    NETS,
    NORMALISERS,
    PER_TASK,
    TASKS,
    alone,
    jit,
    start,
)

from ashore.learning import objectives, risk
from ashore.learning.risk import RiskConfig
from ashore.networks import actor, architecture
from ashore.networks.critic import COST, REWARD

CONDITIONED = dataclasses.replace(
    CONFIG.objective,
    architecture=dataclasses.replace(NETS, risk_conditioned=True),
    risk=RiskConfig(conditioned=True, neutral_share=0.25, highest=0.8, pressure=1.0),
)

GOOD_MANNERS = objectives.Manners(saturation=jnp.float32(0.0), roughness=jnp.float32(0.0))


@functools.cache
def prepared(objective):
    prepare = jit(objectives.prepare, static_argnums=0)
    return prepare(objective, jax.random.key(3), NORMALISERS, BATCH, alone(BATCH), CONTEXT)


def test_neutral_share_is_at_zero_and_the_rest_uniform():
    levels = np.asarray(risk.levels(CONDITIONED.risk, jax.random.key(0), 100_000))
    # A quarter at 0; the others uniform on [0, 0.8], mean 0.4: three standard errors are about 0.004 and 0.003.
    assert np.mean(levels == 0.0) == pytest.approx(0.25, abs=0.004)
    assert levels[levels > 0].mean() == pytest.approx(0.4, abs=0.003)
    assert levels.max() < 0.8
    assert not np.any(risk.levels(RiskConfig(), jax.random.key(0), 5))


def test_spread_levels_have_one_in_every_share():
    # Of eight shares two are neutral; the k-th of the other six lies between 0.8 k / 6 and 0.8 (k + 1) / 6.
    levels = np.asarray(risk.spread_levels(CONDITIONED.risk, jax.random.key(1), 8))
    edges = 0.8 * np.arange(7) / 6
    np.testing.assert_array_equal(levels[:2], 0.0)
    assert np.all((levels[2:] >= edges[:-1]) & (levels[2:] <= edges[1:]))
    assert not np.any(risk.spread_levels(RiskConfig(), jax.random.key(1), 5))


def test_worlds_are_as_strange_as_the_policy_is_careful():
    levels = jnp.array([0.0, 0.4, 0.8])
    np.testing.assert_allclose(risk.strangeness(CONDITIONED.risk, jax.random.key(0), levels), [0.0, 0.5, 1.0])
    # Without levels chance decides: uniform, so that three standard errors of the mean are 0.003.
    anything = np.asarray(risk.strangeness(RiskConfig(), jax.random.key(0), jnp.zeros(100_000)))
    assert anything.mean() == pytest.approx(0.5, abs=0.003)
    assert 0.0 <= anything.min() < 0.001 and 0.999 < anything.max() <= 1.0


def test_multiplier_by_hand():
    # 3 / (1 - 0.75) = 12; with the square root 3 / 0.5 = 6; with p = 0 it stays.
    three, level = jnp.float32(3.0), jnp.float32(0.75)
    for pressure, expected in ((1.0, 12.0), (0.5, 6.0), (0.0, 3.0)):
        assert risk.multiplier_at(RiskConfig(pressure=pressure), three, level) == pytest.approx(expected)
    assert risk.multiplier_at(RiskConfig(pressure=1.0), three, jnp.float32(0.0)) == three


def test_condition_carries_the_level_and_a_policy_without_one_ignores_it():
    latent = jnp.array([1.0, 2.0, 3.0])
    with_level = architecture.condition(CONDITIONED.architecture, latent, 0.5)
    np.testing.assert_array_equal(with_level, [1.0, 2.0, 3.0, 0.5])
    np.testing.assert_array_equal(architecture.condition(NETS, latent, 0.5), latent)


def test_cost_is_asked_for_its_upper_tail_and_the_reward_for_all_of_it():
    work = prepared(CONDITIONED)
    weights = actor.init(jax.random.key(4), CONDITIONED.architecture.actor)
    query, _ = objectives.actor_query(CONDITIONED, weights, work, jnp.zeros((TASKS * PER_TASK, 3)))
    level = np.asarray(work.risk_level)
    assert np.any(level > 0) and np.any(level == 0)
    # tau -> eta + (1 - eta) tau, by hand for every row.
    np.testing.assert_allclose(
        query.fractions[COST], level[:, None] + (1 - level[:, None]) * work.actor_fractions[COST], rtol=1e-6
    )
    np.testing.assert_array_equal(query.fractions[REWARD], work.actor_fractions[REWARD])
    np.testing.assert_array_equal(query.condition[:, -1], level)


def test_actor_loss_at_a_level_by_hand():
    # Reward 2 everywhere, tail cost 5, lambda 1, level 0.5: lambda_eta = 2, loss (2 * 5 - 2) / 3 = 8/3.
    # At level 0 with cost 5: (5 - 2) / 2 = 1.5.
    work = prepared(CONDITIONED)
    values = jnp.stack([jnp.full((2, TASKS * PER_TASK, 4), 2.0), jnp.full((2, TASKS * PER_TASK, 4), 5.0)])
    for level, expected in ((0.5, 8 / 3), (0.0, 1.5)):
        at = work._replace(risk_level=jnp.full(TASKS * PER_TASK, level))
        loss = objectives.actor_loss(CONDITIONED, values, at, GOOD_MANNERS, jnp.float32(1.0))
        assert loss == pytest.approx(expected, rel=1e-6)


def test_saturated_actor_is_pulled_back_where_the_critics_gradient_is_gone():
    weights = jax.tree.map(lambda leaf: leaf, start().params["actor"])
    weights["output"] = weights["output"] | {"bias": jnp.array([20.0, 0.0])}
    work = prepared(CONFIG.objective)

    @jit
    def gradients(weights):
        def action(weights):
            query, _ = objectives.actor_query(CONFIG.objective, weights, work, jnp.zeros((TASKS * PER_TASK, 3)))
            return jnp.sum(query.action[:, 0])

        def saturation(weights):
            _, manners = objectives.actor_query(CONFIG.objective, weights, work, jnp.zeros((TASKS * PER_TASK, 3)))
            return manners.saturation

        return jax.grad(action)(weights)["output"]["bias"][0], jax.grad(saturation)(weights)["output"]["bias"][0]

    through_tanh, through_saturation = gradients(weights)
    assert abs(through_tanh) < 1e-4
    # d/du (u - 3)^2 = 2 (u - 3) with u near 20.
    assert through_saturation == pytest.approx(34.0, rel=0.1)
