import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.environments import rollout
from tests.compilation import jit
from toy_world import PERIOD, TRACK_END, Cart, CartConfig, CartParameters

CART = Cart()
DECISIONS = CART.config.decisions
start = jit(rollout.start, static_argnums=0)
advance = jit(rollout.advance, static_argnums=0)
go_on = jit(rollout.go_on, static_argnums=0)
roll = jit(rollout.rollout, static_argnums=(0, 1, 5))


def _carts(count: int, mass: float = 1.0) -> CartParameters:
    return CartParameters(jnp.full(count, mass, jnp.float32), jnp.zeros(count, jnp.float32))


@functools.cache
def _push(force: float):
    return lambda observation, key: jnp.array([force], jnp.float32)


def _wander(observation, key):
    return jax.random.uniform(key, (1,), jnp.float32, -1.0, 1.0)


def test_a_constant_push_follows_the_closed_form():
    worlds = start(CART, jax.random.key(0), _carts(3, mass=2.0))
    first = worlds.observation[:, 0]
    after, _, _ = roll(CART, _push(0.5), worlds, _carts(3, mass=2.0), jax.random.key(1), 10)
    # a = 0.5 / 2: v_10 = 10 h a = 0.25, x_10 = x_0 + h^2 a 10 * 11 / 2 = x_0 + 0.1375.
    np.testing.assert_allclose(after.observation[:, 1], 0.25, rtol=1e-5)
    np.testing.assert_allclose(after.observation[:, 0], first + 0.1375, rtol=1e-5)


def test_the_time_limit_truncates_and_keeps_the_final_observation():
    worlds = start(CART, jax.random.key(0), _carts(2))
    first = worlds.observation[:, 0]
    _, transitions, finished = roll(CART, _push(0.5), worlds, _carts(2), jax.random.key(1), DECISIONS + 3)
    ends = np.zeros(DECISIONS + 3, bool)
    ends[DECISIONS - 1] = True
    np.testing.assert_array_equal(transitions.truncated, np.tile(ends[:, None], (1, 2)))
    assert not transitions.terminated.any()
    np.testing.assert_array_equal(finished.done, transitions.truncated)
    # x_20 = x_0 + h^2 a 20 * 21 / 2 = x_0 + 1.05: what really followed, not the next episode's start.
    np.testing.assert_allclose(transitions.next_observation[DECISIONS - 1, :, 0], first + 1.05, rtol=1e-5)
    np.testing.assert_array_equal(transitions.observation[DECISIONS, :, 1], [0.0, 0.0])
    np.testing.assert_array_equal(finished.decisions[DECISIONS - 1], [DECISIONS, DECISIONS])


def test_returns_and_costs_of_an_episode_are_its_sums():
    worlds = start(CART, jax.random.key(0), _carts(4))
    _, transitions, finished = roll(CART, _wander, worlds, _carts(4), jax.random.key(1), DECISIONS)
    assert finished.done[-1].all()
    np.testing.assert_allclose(finished.episode_return[-1], transitions.reward.sum(axis=0), rtol=1e-5)
    np.testing.assert_allclose(finished.episode_cost[-1], transitions.cost.sum(axis=0), rtol=1e-5)
    way = jnp.abs(transitions.next_observation - transitions.observation)[:, :, 0]
    np.testing.assert_allclose(finished.metrics["distance"][-1], way.sum(axis=0), rtol=1e-4)


def test_sums_start_again_with_every_episode():
    worlds = start(CART, jax.random.key(0), _carts(2))
    # At full force v_n = n / 10, above 1.05 from the 11th decision on: 10 of 20 decisions cost 1.
    _, _, finished = roll(CART, _push(1.0), worlds, _carts(2), jax.random.key(1), 2 * DECISIONS)
    np.testing.assert_allclose(finished.episode_cost[DECISIONS - 1], [10.0, 10.0])
    np.testing.assert_allclose(finished.episode_cost[2 * DECISIONS - 1], [10.0, 10.0])


def test_every_reset_draws_a_new_scene():
    worlds = start(CART, jax.random.key(0), _carts(16))
    starts = [np.asarray(worlds.observation[:, 0])]
    for _ in range(3):
        worlds, _, finished = roll(CART, _push(0.0), worlds, _carts(16), jax.random.key(1), DECISIONS)
        assert finished.done[-1].all()
        starts.append(np.asarray(worlds.observation[:, 0]))
    assert len(np.unique(np.concatenate(starts))) == 4 * 16


def test_a_task_that_ends_itself_terminates_and_is_not_truncated():
    far = Cart(CartConfig(decisions=10_000))
    _, transitions, finished = roll(
        far, _push(1.0), start(far, jax.random.key(0), _carts(2)), _carts(2), jax.random.key(1), 200
    )
    assert transitions.terminated.any(axis=0).all()
    assert not transitions.truncated.any()
    where = np.asarray(transitions.terminated)
    assert (np.abs(np.asarray(transitions.next_observation)[where][:, 0]) > TRACK_END).all()
    np.testing.assert_array_equal(finished.done, where)


def test_an_end_at_the_time_limit_counts_as_the_tasks_own():
    # One decision per episode, and one that ends the task: terminated wins, so that no value is bootstrapped.
    task = Cart(CartConfig(decisions=1))
    worlds = start(task, jax.random.key(0), _carts(1))
    worlds = worlds._replace(state=worlds.state._replace(position=jnp.array([TRACK_END], jnp.float32)))
    _, transition, _ = advance(task, worlds, jnp.ones((1, 1), jnp.float32), _carts(1))
    assert transition.terminated.all()
    assert not transition.truncated.any()


def test_a_world_that_diverges_is_reset_counted_and_charged():
    worlds = start(CART, jax.random.key(0), _carts(3))
    poisoned = worlds.state._replace(speed=worlds.state.speed.at[1].set(jnp.nan))
    actions = jnp.full((3, 1), 0.5, jnp.float32)
    after, transition, finished = advance(CART, worlds._replace(state=poisoned), actions, _carts(3))
    healthy, _, _ = advance(CART, worlds, actions, _carts(3))
    np.testing.assert_array_equal(transition.diverged, [False, True, False])
    np.testing.assert_array_equal(finished.done, [False, True, False])
    assert transition.cost[1] == CART.description.max_cost
    assert transition.reward[1] == 0.0
    np.testing.assert_array_equal(transition.next_observation[1], worlds.observation[1])
    np.testing.assert_array_equal(after.diverged, [0, 1, 0])
    np.testing.assert_array_equal(after.decision, [1, 0, 1])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after.state, after.observation)))
    for world in (0, 2):
        np.testing.assert_array_equal(after.observation[world], healthy.observation[world])


def test_the_same_keys_give_the_same_rollout_and_other_keys_another():
    def run(seed: int):
        worlds = start(CART, jax.random.key(seed), _carts(4))
        return roll(CART, _wander, worlds, _carts(4), jax.random.key(seed + 1), 30)[1]

    np.testing.assert_array_equal(run(0).next_observation, run(0).next_observation)
    assert not np.array_equal(run(0).next_observation, run(5).next_observation)


def test_worlds_do_not_share_their_policys_draws():
    worlds = start(CART, jax.random.key(0), _carts(8))
    _, transitions, _ = roll(CART, _wander, worlds, _carts(8), jax.random.key(1), 5)
    assert len(np.unique(transitions.action)) == 8 * 5


@pytest.mark.parametrize("count", [1, 5])
def test_a_batch_is_its_worlds_one_by_one(count):
    worlds = start(CART, jax.random.key(3), _carts(count))
    actions = jnp.linspace(-1.0, 1.0, count, dtype=jnp.float32)[:, None]
    _, transition, _ = advance(CART, worlds, actions, _carts(count))
    speed = PERIOD * np.linspace(-1.0, 1.0, count)
    np.testing.assert_allclose(transition.next_observation[:, 1], speed, atol=1e-6)


def test_an_episode_without_resets_is_the_same_episode_and_nothing_follows_it():
    worlds = reset = start(CART, jax.random.key(0), _carts(3))
    for number in range(DECISIONS + 2):
        actions = jax.random.uniform(jax.random.key(number), (3, 1), jnp.float32, -1.0, 1.0)
        worlds, here = go_on(CART, worlds, actions, _carts(3))
        if number < DECISIONS:
            reset, there, _ = advance(CART, reset, actions, _carts(3))
            jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-6), here, there)
            last = worlds
        else:
            np.testing.assert_array_equal(here.reward, 0.0)
            np.testing.assert_array_equal(here.cost, 0.0)
            assert not (here.terminated | here.truncated | here.diverged).any()
            before, after = ((met.state, met.observation, met.decision) for met in (last, worlds))
            jax.tree.map(np.testing.assert_array_equal, before, after)


def test_who_terminates_without_a_reset_is_paid_for_that_and_for_nothing_more():
    worlds = start(CART, jax.random.key(0), _carts(2))
    worlds = worlds._replace(state=worlds.state._replace(position=jnp.array([TRACK_END, 0.0], jnp.float32)))
    actions = jnp.ones((2, 1), jnp.float32)
    worlds, first = go_on(CART, worlds, actions, _carts(2))
    np.testing.assert_array_equal(first.terminated, [True, False])
    assert first.reward[0] != 0.0
    after, second = go_on(CART, worlds, actions, _carts(2))
    assert second.reward[0] == second.cost[0] == 0.0
    assert second.reward[1] != 0.0
    assert after.state.position[0] == worlds.state.position[0]
    assert after.state.position[1] != worlds.state.position[1]


def test_who_diverges_without_a_reset_is_charged_once_and_stays_at_the_last_good_state():
    worlds = start(CART, jax.random.key(0), _carts(2))
    massless = CartParameters(jnp.array([1.0, jnp.nan], jnp.float32), jnp.zeros(2, jnp.float32))
    actions = jnp.full((2, 1), 0.5, jnp.float32)
    after, transition = go_on(CART, worlds, actions, massless)
    np.testing.assert_array_equal(transition.diverged, [False, True])
    assert (transition.cost[1], transition.reward[1]) == (CART.description.max_cost, 0.0)
    for before, now in zip(jax.tree.leaves(worlds.state), jax.tree.leaves(after.state), strict=True):
        assert now[0] != before[0]
        assert now[1] == before[1]
    np.testing.assert_array_equal(after.observation[1], worlds.observation[1])
    np.testing.assert_array_equal(after.diverged, [0, 1])
    last, later = go_on(CART, after, actions, massless)
    assert later.reward[1] == later.cost[1] == 0.0
    np.testing.assert_array_equal(last.diverged, [0, 1])
