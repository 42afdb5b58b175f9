"""What every batched world promises."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.types import Reset, StepResult
from contracts.subjects import WORLDS, assert_inside, drawn, nominal, one_of, poisoned, random_actions

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_shapes_and_types_of_reset_and_step(declared):
    action = random_actions(declared.description, 0)
    first: Reset = jax.eval_shape(declared.task.reset, jax.random.key(0), nominal(declared))
    result: StepResult = jax.eval_shape(declared.task.step, first.state, action, nominal(declared))
    sight = (len(declared.description.observation),)
    for observation in (first.observation, result.observation):
        assert (observation.shape, observation.dtype) == (sight, jnp.float32)
    for number in (result.reward, result.cost, *result.reward_terms.values(), *result.cost_terms.values()):
        assert (number.shape, number.dtype) == ((), jnp.float32)
    for flag in (result.terminated, result.diverged):
        assert (flag.shape, flag.dtype) == ((), jnp.bool_)
    before, after = (
        jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), state) for state in (first.state, result.state)
    )
    assert before == after


def test_identifiable_combinations_are_finite_numbers(declared):
    combinations = declared.task.identifiable(nominal(declared))
    assert combinations
    for name, value in combinations.items():
        assert jnp.shape(value) == (), name
        assert np.isfinite(value), name


def test_every_parameter_changes_what_happens(subject):
    usual = nominal(subject)
    first = subject.reset(jax.random.key(3), usual)
    low, high = subject.description.action_bounds
    # Full ahead, then full back: a brake shows only when braking, a resistance only when moving, and a tyre's grip
    # only once a lagging brake has built up.
    script = [jnp.asarray(bound) for bound in [high] * 12 + [low] * 12]

    def run(parameters: Any) -> list[np.ndarray]:
        state, seen = first.state, []
        for action in script:
            result = subject.step(state, action, parameters)
            state = result.state
            seen.append(np.asarray(result.observation))
        return seen

    reference = run(usual)
    for index, name in enumerate(usual._fields):
        extremes = [
            bound for rows in subject.description.shifts.values() for bound in (rows[index].low, rows[index].high)
        ]
        others = [run(usual._replace(**{name: jnp.float32(value)})) for value in sorted(set(extremes))]
        assert any(not np.array_equal(reference, other) for other in others), f"{name} changes nothing"


def test_no_action_changes_the_reward_that_is_declared_unearned(subject):
    share = subject.description.unearned
    if share is None:
        pytest.skip("this world declares none")
    parameters = nominal(subject)

    def seen(bound: np.ndarray) -> list[float]:
        state, found = subject.reset(jax.random.key(3), parameters).state, []
        for _ in range(40):
            result = subject.step(state, jnp.asarray(bound), parameters)
            state = result.state
            found.append(float(result.observation[share.place]))
        return found

    low, high = (seen(bound) for bound in subject.description.action_bounds)
    # But for the last bits: positions are told from the policy's own.
    np.testing.assert_allclose(low, high, rtol=1e-4, atol=1e-5)
    assert len(set(low)) > 1


def test_terms_sum_to_reward_and_cost_and_everything_is_finite(batched):
    parameters = drawn(batched, "train")
    worlds = batched.start(jax.random.key(1), parameters)
    for decision in range(30):
        actions = random_actions(batched.description, decision, WORLDS)
        worlds, transition, finished = batched.advance(worlds, actions, parameters)
        for kind, total in (("reward_", transition.reward), ("cost_", transition.cost)):
            terms = [np.asarray(value) for name, value in finished.metrics.items() if name.startswith(kind)]
            np.testing.assert_allclose(np.sum(terms, axis=0), total, rtol=1e-5, atol=1e-6)
        assert ((transition.cost >= 0.0) & (transition.cost <= batched.description.max_cost)).all()
        assert np.isfinite(transition.next_observation).all()
        assert all(np.isfinite(value).all() for value in finished.metrics.values())
    assert not worlds.diverged.any()


def test_observations_stay_inside_their_declared_bounds(subject):
    for number, shift in enumerate(subject.description.shifts):
        parameters = drawn(subject, shift)
        worlds = subject.start(jax.random.key(number), parameters)
        assert_inside(worlds.observation, subject.description)
        for decision in range(40):
            # Held for a while, so that worlds reach the speeds that single random actions average away.
            actions = jnp.sign(random_actions(subject.description, 100 * number + decision // 8, WORLDS))
            worlds, transition, _ = subject.advance(worlds, actions, parameters)
            assert_inside(transition.next_observation, subject.description)
        assert not worlds.diverged.any()


def test_different_keys_give_different_scenes(batched):
    worlds = batched.start(jax.random.key(0), drawn(batched, "nominal"))
    assert len(np.unique(np.asarray(worlds.observation), axis=0)) == WORLDS


def test_the_same_keys_give_the_same_trajectory(subject):
    def run() -> np.ndarray:
        parameters = drawn(subject, "train")
        worlds = subject.start(jax.random.key(5), parameters)
        seen = []
        for decision in range(10):
            worlds, transition, _ = subject.advance(
                worlds, random_actions(subject.description, decision, WORLDS), parameters
            )
            seen.append(np.asarray(transition.next_observation))
        return np.array(seen)

    np.testing.assert_array_equal(run(), run())


def test_a_batched_step_is_a_single_step(subject):
    parameters = drawn(subject, "train")
    worlds = subject.start(jax.random.key(2), parameters)
    for decision in range(3):
        actions = random_actions(subject.description, decision, WORLDS)
        after, transition, _ = subject.advance(worlds, actions, parameters)
        alone = subject.step(one_of(worlds.state.inner, 1), actions[1], one_of(parameters, 1))
        np.testing.assert_allclose(transition.next_observation[1], alone.observation, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(transition.reward[1], alone.reward, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(transition.cost[1], alone.cost, rtol=1e-4, atol=1e-4)
        worlds = after


def test_episodes_are_cut_at_their_time_limit_and_begin_anew(batched):
    parameters = drawn(batched, "nominal")
    worlds = batched.start(jax.random.key(4), parameters)
    limit = batched.description.decisions_per_episode
    # The first half of the batch is about to take its last decision, the second half its last but one.
    late = jnp.array([limit - 1] * (WORLDS // 2) + [limit - 2] * (WORLDS // 2), jnp.int32)
    worlds = worlds._replace(decision=late)
    expected = np.arange(WORLDS) < WORLDS // 2
    actions = random_actions(batched.description, 0, WORLDS)
    after, transition, finished = batched.advance(worlds, actions, parameters)
    np.testing.assert_array_equal(transition.truncated, expected)
    np.testing.assert_array_equal(finished.done, expected)
    assert not transition.terminated.any()
    np.testing.assert_array_equal(after.decision, np.where(expected, 0, limit - 1))
    assert (finished.decisions[: WORLDS // 2] == limit).all()
    # What followed is kept, as if the episode had gone on; what goes on is another scene.
    _, in_time, _ = batched.advance(worlds._replace(decision=jnp.zeros_like(late)), actions, parameters)
    np.testing.assert_array_equal(transition.next_observation, in_time.next_observation)
    assert not np.array_equal(after.observation[0], transition.next_observation[0])
    assert not np.array_equal(after.observation[0], worlds.observation[0])
    np.testing.assert_array_equal(after.observation[-1], transition.next_observation[-1])


def test_a_world_that_turns_nan_is_reset_counted_and_charged(batched):
    parameters = drawn(batched, "nominal")
    worlds = batched.start(jax.random.key(6), parameters)
    sick = worlds._replace(state=poisoned(worlds.state, 2))
    actions = random_actions(batched.description, 1, WORLDS)
    after, transition, finished = batched.advance(sick, actions, parameters)
    healthy, _, _ = batched.advance(worlds, actions, parameters)
    only = np.arange(WORLDS) == 2
    np.testing.assert_array_equal(transition.diverged, only)
    np.testing.assert_array_equal(finished.done, only)
    np.testing.assert_array_equal(after.diverged, only.astype(np.int32))
    assert transition.cost[2] == batched.description.max_cost
    np.testing.assert_array_equal(transition.next_observation[2], worlds.observation[2])
    floats = [leaf for leaf in jax.tree.leaves(after) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    assert all(np.isfinite(leaf).all() for leaf in floats)
    np.testing.assert_array_equal(after.observation[~only], healthy.observation[~only])
    # The world that was reset goes on like any other.
    _, transition, _ = batched.advance(after, actions, parameters)
    assert not transition.diverged.any()
