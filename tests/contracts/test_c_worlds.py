"""What every single world in C promises, and what it shares with its batched twin."""

import jax
import numpy as np

from contracts.subjects import assert_inside, nominal, random_actions


def test_the_c_world_keeps_the_same_promises(declared):
    description = declared.description
    world = declared.family.make_c_world(declared.config, nominal(declared))
    sights = [world.reset(np.random.default_rng(0))]
    for decision in range(60):
        result = world.step(np.asarray(random_actions(description, decision)))
        assert not result.diverged
        sights.append(np.asarray(result.observation))
        rewards, costs = (sum(float(v) for v in terms.values()) for terms in (result.reward_terms, result.cost_terms))
        np.testing.assert_allclose(rewards, result.reward, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(costs, result.cost, rtol=1e-5, atol=1e-6)
        assert 0.0 <= float(result.cost) <= description.max_cost
    assert all(sight.dtype == np.float32 and sight.shape == (len(description.observation),) for sight in sights)
    assert_inside(np.array(sights), description)


def test_both_engines_name_the_same_terms_and_metrics(declared):
    action = random_actions(declared.description, 0)
    first = jax.eval_shape(declared.task.reset, jax.random.key(0), nominal(declared))
    batched = jax.eval_shape(declared.task.step, first.state, action, nominal(declared))
    metrics = jax.eval_shape(declared.task.episode_metrics, batched.state)
    world = declared.family.make_c_world(declared.config, nominal(declared))
    world.reset(np.random.default_rng(0))
    single = world.step(np.asarray(action))
    assert set(single.reward_terms) == set(batched.reward_terms)
    assert set(single.cost_terms) == set(batched.cost_terms)
    assert set(world.episode_metrics()) == set(metrics)


def test_the_c_world_repeats_itself_under_the_same_seed(declared):
    def run(seed: int) -> np.ndarray:
        world = declared.family.make_c_world(declared.config, nominal(declared))
        first = world.reset(np.random.default_rng(seed))
        rest = [world.step(np.asarray(random_actions(declared.description, step))).observation for step in range(10)]
        return np.array([first, *rest])

    np.testing.assert_array_equal(run(0), run(0))
    assert not np.array_equal(run(0), run(1))


def test_the_c_world_can_be_seen_and_the_picture_follows_the_world(subject):
    world = subject.family.make_c_world(subject.config, nominal(subject))
    world.reset(np.random.default_rng(0))
    before = world.picture()
    for _ in range(10):
        world.step(subject.description.action_bounds[1])
    after = world.picture()
    for picture in (before, after):
        assert picture.dtype == np.uint8
        assert picture.ndim == 3
        assert picture.shape[2] == 3
    assert not np.array_equal(before, after)


def test_the_scripted_controller_gives_valid_actions(declared):
    description = declared.description
    controller = declared.family.scripted(description)
    world = declared.family.make_c_world(declared.config, nominal(declared))
    observation = world.reset(np.random.default_rng(0))
    low, high = description.action_bounds
    for _ in range(20):
        action = np.asarray(controller(observation))
        assert action.shape == low.shape
        assert ((low <= action) & (action <= high)).all()
        observation = np.asarray(world.step(action).observation)
