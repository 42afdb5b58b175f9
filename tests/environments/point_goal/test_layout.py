"""Scenes: everything has its room, no two are alike, and rewards survive a change of goal."""

import jax
import jax.numpy as jnp
import numpy as np

from ashore.environments import rollout
from ashore.environments.point_goal import layout, scene
from ashore.environments.point_goal.config import PRESETS
from tests.compilation import jit
from tests.environments.point_goal.conftest import batched, c_world, parameters, stacked, state_of

GOAL_KEEPOUT = PRESETS["default"].goal_keepout
SCENES = 4000


@jit
def draw(key):
    return jax.vmap(lambda key: layout.draw_layout(key, GOAL_KEEPOUT))(jax.random.split(key, SCENES))


def test_objects_keep_their_distance_and_stay_on_the_floor():
    scenes = draw(jax.random.key(0))
    placed = np.concatenate([scenes.robot[:, None], scenes.goal[:, None], scenes.hazards, scenes.vases], axis=1)
    keepouts = layout.keepouts(GOAL_KEEPOUT)
    assert np.all(np.abs(placed) <= scene.EXTENT - keepouts[None, :, None] + 1e-6)
    distance = np.linalg.norm(placed[:, :, None] - placed[:, None, :], axis=3)
    needed = keepouts[:, None] + keepouts[None, :]
    upper = np.triu_indices(len(keepouts), k=1)
    clearance = (distance - needed[None])[:, upper[0], upper[1]]
    assert np.mean(clearance.min(axis=1) < -1e-5) == 0.0
    assert len(np.unique(placed[:, 0, 0])) == SCENES, "scenes repeat"


def test_robot_and_goals_are_spread_over_the_whole_floor():
    # The robot is placed first, so it is uniform on the square of half side 1.6: standard deviation 1.6 / sqrt(3).
    scenes = draw(jax.random.key(1))
    np.testing.assert_allclose(np.std(scenes.robot, axis=0), 1.6 / np.sqrt(3), rtol=0.03)
    np.testing.assert_allclose(np.mean(scenes.goal, axis=0), 0.0, atol=0.06)


def test_a_new_goal_never_appears_on_the_robot_nor_on_anything_else():
    keys = jax.random.split(jax.random.key(2), SCENES)

    def draw_twice(key):
        scene_key, goal_key = jax.random.split(key)
        placed = layout.draw_layout(scene_key, GOAL_KEEPOUT)
        # The robot stands where the last goal was.
        return placed, layout.draw_goal(goal_key, GOAL_KEEPOUT, placed.goal, placed.hazards, placed.vases)

    placed, goals = jit(jax.vmap(draw_twice))(keys)
    to_robot = np.linalg.norm(goals - placed.goal, axis=1)
    assert to_robot.min() >= layout.ROBOT_KEEPOUT + GOAL_KEEPOUT - 1e-5
    others = np.concatenate([placed.hazards, placed.vases], axis=1)
    room = np.array([layout.HAZARD_KEEPOUT] * scene.HAZARDS + [layout.VASE_KEEPOUT] * scene.VASES) + GOAL_KEEPOUT
    clearance = (np.linalg.norm(others - np.asarray(goals)[:, None], axis=2) - room).min(axis=1)
    assert np.mean(clearance < -1e-5) < 0.002  # measured: see the constant's comment in layout.py
    assert clearance.min() > -0.1


def test_reward_across_a_goal_is_progress_plus_one_and_starts_afresh(task, step):
    world = c_world(task.config, parameters(), seed=4)
    heading = np.array([np.cos(world.data.qpos[2]), np.sin(world.data.qpos[2])])
    world.goal = world.data.qpos[:2] + 0.31 * heading  # one centimetre short of the goal's edge, straight ahead
    world.hazards[:] = 50.0
    world.data.qpos[3:].reshape(scene.VASES, 3)[:, 0] = 60.0
    world.data.qvel[:2] = 1.0 * heading
    state = stacked([state_of(world)])
    physics, full_ahead = batched(parameters(), 1), jnp.array([[1.0, 0.0]])

    first = step(state, full_ahead, physics)
    start, end = world.data.qpos[:2], np.asarray(first.state.bodies.qpos[0, :2])
    new_goal = np.asarray(first.state.goal[0])
    assert float(first.reward_terms["goal"][0]) == 1.0
    assert int(first.state.goals_reached[0]) == 1
    assert np.linalg.norm(new_goal - end) >= 0.7 - 0.1  # 0.705 m when it was drawn, up to three env steps ago
    # Progress is measured against the old goal until it is reached and against the new one afterwards: it is never
    # the jump between the two goals.
    assert abs(float(first.reward_terms["progress"][0])) < np.linalg.norm(end - start) + 1e-5

    second = step(first.state, full_ahead, physics)
    before = np.linalg.norm(new_goal - end)
    after = np.linalg.norm(new_goal - np.asarray(second.state.bodies.qpos[0, :2]))
    np.testing.assert_allclose(float(second.reward[0]), before - after, atol=1e-5)


def test_reward_across_a_reset_does_not_remember_the_last_episode(task):
    physics = batched(parameters(), 2)
    worlds = jit(lambda key: rollout.start(task, key, physics))(jax.random.key(0))
    # Episodes end at different times, so that one world is reset while the other goes on.
    last = task.description.decisions_per_episode - 1
    worlds = worlds._replace(decision=jnp.array([last, 0], jnp.int32))
    advance = jit(lambda worlds, actions: rollout.advance(task, worlds, actions, physics))
    stand_still = jnp.zeros((2, 2))

    worlds_after, transition, finished = advance(worlds, stand_still)
    np.testing.assert_array_equal(transition.truncated, [True, False])
    np.testing.assert_array_equal(finished.done, [True, False])
    # A new scene, not the cached first one, and the final observation is that of the old scene.
    assert not np.allclose(worlds_after.state.hazards[0], worlds.state.hazards[0])
    np.testing.assert_array_equal(worlds_after.state.hazards[1], worlds.state.hazards[1])
    np.testing.assert_allclose(transition.next_observation[0, 12:], worlds.observation[0, 12:], atol=1e-4)
    assert np.abs(np.asarray(worlds_after.observation[0] - transition.next_observation[0])).max() > 0.1
    # Nobody moves, so nobody earns anything: neither at the reset nor after it.
    _, later, _ = advance(worlds_after, stand_still)
    np.testing.assert_allclose(transition.reward, 0.0, atol=1e-6)
    np.testing.assert_allclose(later.reward, 0.0, atol=1e-6)
    np.testing.assert_array_equal(worlds_after.decision, [0, 1])
