"""Algorithm 1 on values with known optima: where it ends, when it stops, and that no caution changes no bit."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.calibration import refinement
from ashore.calibration.refinement import AS_PRINTED, ActionValues, RefinementConfig
from ashore.networks import architecture, critic
from ashore.networks.architecture import Architecture, Sizes
from tests.compilation import jit

SLOPE = jnp.array([0.6, -0.8])
NOMINAL = jnp.array([0.5, -0.5])
"""Costs 0.7 by `PLANE`."""


def stays(action):
    """Reward that is highest at the nominal action."""
    return -jnp.sum(jnp.square(action - NOMINAL))


PLANE = ActionValues(stays, lambda action: jnp.dot(SLOPE, action))
FINE = RefinementConfig(steps=200, reward_step=0.002, cost_step=0.01, variant="unit", weight="full")


@pytest.mark.parametrize("keep", ["last", "best"])
def test_it_ends_at_the_constrained_optimum_of_a_linear_cost(keep):
    refined = refinement.refine(replace(FINE, keep=keep), PLANE, NOMINAL, jnp.float32(0.5), 0.3)
    # Nearest point of the half-plane: 0.4 down the slope, which has unit length.
    np.testing.assert_allclose(refined.action, NOMINAL - 0.4 * SLOPE, atol=0.012)
    assert bool(refined.triggered) and refined.cost_before == pytest.approx(0.7)
    # It stops with the first step that fits, 40 and a few for what the reward pulls back.
    assert 0.285 < float(refined.cost_after) <= 0.3
    assert 40 <= int(refined.steps) <= 60


def test_it_ends_at_the_constrained_optimum_of_a_round_cost():
    # |a|^2 <= 0.25 from (0.8, 0.6), length 1: the nearest point is half-way to the origin.
    nominal = jnp.array([0.8, 0.6])
    values = ActionValues(lambda a: -jnp.sum(jnp.square(a - nominal)), lambda a: jnp.sum(jnp.square(a)))
    refined = refinement.refine(FINE, values, nominal, jnp.float32(0.9), 0.25)
    np.testing.assert_allclose(refined.action, [0.4, 0.3], atol=0.01)


def test_one_step_is_the_printed_one():
    config = RefinementConfig(steps=1, reward_step=0.1, cost_step=0.2, proximal=2.0, keep="last")
    values = ActionValues(lambda a: jnp.dot(jnp.array([1.0, 2.0]), a), lambda a: 3.0 * a[0] ** 2 + a[1])
    refined = refinement.refine(config, values, jnp.array([0.5, 0.95]), jnp.float32(0.25), 0.0)
    # Reward: (0.5, 0.95) + 0.1 (1, 2) = (0.6, 1.15), clipped (0.6, 1). Cost gradient there (3.6, 1): (-0.12, 0.8).
    # A quarter of the way: (0.5, 0.95) + 0.25 (-0.62, -0.15) = (0.345, 0.9125); cost 3 * 0.345^2 + 0.9125.
    np.testing.assert_allclose(refined.action, [0.345, 0.9125], rtol=1e-5)
    assert float(refined.cost_after) == pytest.approx(1.269575, rel=1e-5)
    assert float(refined.cost_before) == pytest.approx(1.7, rel=1e-5) and int(refined.steps) == 1


@pytest.mark.parametrize(("weight", "share"), [("eta", 0.64), ("sqrt", 0.8), ("full", 1.0)])
def test_the_weight_is_the_share_of_the_way(weight, share):
    config = RefinementConfig(steps=3, reward_step=0.0, cost_step=0.1, weight=weight, keep="last")
    refined = refinement.refine(config, PLANE, NOMINAL, jnp.float32(0.64), -5.0)
    np.testing.assert_allclose(refined.action, NOMINAL - share * 0.3 * SLOPE, rtol=1e-5)
    assert int(refined.steps) == 3


def test_the_best_action_is_kept_where_steps_overshoot():
    # From 0.5 a unit step of 0.4 goes to 0.1, the next to -0.3: the second is worse than the first.
    values = ActionValues(lambda a: jnp.float32(0.0) * a[0], lambda a: jnp.square(a[0]))
    config = RefinementConfig(steps=2, reward_step=0.0, cost_step=0.4, variant="unit", weight="full")
    last = refinement.refine(replace(config, keep="last"), values, jnp.array([0.5]), jnp.float32(0.5), 0.0)
    best = refinement.refine(config, values, jnp.array([0.5]), jnp.float32(0.5), 0.0)
    np.testing.assert_allclose(last.action, [-0.3], atol=1e-6)
    np.testing.assert_allclose(best.action, [0.1], atol=1e-6)
    assert float(best.cost_after) == pytest.approx(0.01, rel=1e-4)


@pytest.mark.parametrize("config", [AS_PRINTED, RefinementConfig(), RefinementConfig(weight="full")])
@pytest.mark.parametrize(("eta", "threshold"), [(0.0, -5.0), (0.7, 5.0)])
def test_without_caution_or_need_the_nominal_action_comes_back_bit_for_bit(config, eta, threshold):
    nominal = jnp.array([-0.0, 0.1], jnp.float32)
    refined = refinement.refine(config, PLANE, nominal, jnp.float32(eta), threshold)
    assert np.asarray(refined.action).tobytes() == np.asarray(nominal).tobytes()
    assert not bool(refined.triggered) and int(refined.steps) == 0
    assert float(refined.cost_after) == float(refined.cost_before)


NETS = Architecture(4, 2, (0,), Sizes(critic_width=16, fractions=8, hidden=(8,), latent=3, critic_blocks=1))


@pytest.fixture(scope="session")
def trained():
    params = jit(architecture.init, static_argnums=1)(jax.random.key(0), NETS)
    keys = jax.random.split(jax.random.key(1), 3)
    states = jax.random.normal(keys[0], (64, 4))
    latents = jax.random.normal(keys[1], (64, 3))
    return params["critics"], states, latents, jnp.tanh(jax.random.normal(keys[2], (64, 2)))


def test_the_values_are_the_greatest_head_of_the_tail_and_the_mean_of_all(trained):
    everywhere = jnp.asarray((np.arange(8) + 0.5) / 8, jnp.float32)
    fractions = jnp.asarray(0.6 + 0.4 * (np.arange(8) + 0.5) / 8, jnp.float32)

    @jit
    def ask(critics, state, latent, action):
        values = refinement.critic_values(NETS, critics, state, latent, jnp.float32(0.6))
        reward, cost = (critic.one_of(critics, place) for place in (critic.REWARD, critic.COST))
        quantiles = (
            critic.reward_quantiles(NETS.critic, reward, state, action, latent, everywhere),
            critic.cost_quantiles(NETS.critic, cost, state, action, latent, fractions),
        )
        return (values.reward(action), values.cost(action)), quantiles

    critics, *examples = trained
    (reward, cost), (everything, tail) = ask(critics, *(rows[0] for rows in examples))
    assert float(cost) == pytest.approx(float(np.asarray(tail).mean(axis=1).max()), rel=1e-5)
    assert float(reward) == pytest.approx(float(np.asarray(everything).mean()), rel=1e-5)


def test_a_batch_refines_each_example_as_if_it_were_alone(trained):
    critics, states, latents, actions = trained
    config = RefinementConfig(cost_step=0.2, variant="unit", weight="full")

    def one(state, latent, action, eta):
        values = refinement.critic_values(NETS, critics, state, latent, eta)
        return refinement.refine(config, values, action, eta, 0.6)

    # Both kinds in one batch: some at eta = 0, some that fit at once, some that need all their steps.
    etas = jnp.where(jnp.arange(64) % 3 == 0, 0.0, 0.9)
    together = jit(jax.vmap(one))(states, latents, actions, etas)
    assert set(np.unique(together.steps)) >= {0, 5}
    np.testing.assert_array_equal(together.action[::3], actions[::3])
    apart = jit(one)
    for index in (0, 1, 2, 40):
        alone = apart(states[index], latents[index], actions[index], etas[index])
        np.testing.assert_allclose(together.action[index], alone.action, atol=1e-5)
    # What is sent has been judged, and is never predicted to be worse than the nominal action.
    assert np.all(np.asarray(together.cost_after <= together.cost_before))
    assert np.all(np.abs(together.action) <= 1.0)


@pytest.mark.parametrize(
    "changes", [{"steps": -1}, {"threshold_scale": 0.0}, {"variant": "x"}, {"weight": "x"}, {"keep": "x"}]
)
def test_settings_that_cannot_be_are_refused(changes):
    with pytest.raises(ValueError, match="refinement|Refinement"):
        RefinementConfig(**changes)
