"""MJX against C MuJoCo: the same world under the same actions."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from ashore.environments import randomisation
from ashore.environments.base import CStep
from ashore.environments.point_goal import scene
from ashore.environments.point_goal.c_world import PointGoalCWorld
from ashore.environments.point_goal.config import PRESETS
from ashore.environments.point_goal.parameters import SHIFTS, PointGoalParameters
from ashore.environments.point_goal.physics import Bodies, Physics
from ashore.environments.point_goal.task import PointGoal
from ashore.types import StepResult
from tests.compilation import jit
from tests.environments.point_goal.conftest import c_world, empty_floor, stacked, state_of

WORLDS = 8
DECISIONS = 100
# float32 against float64 over 400 env steps of free driving. Measured: 4e-6 m, 1e-5 rad, 3e-6 reward.
POSITION_TOLERANCE = 5e-5
REWARD_TOLERANCE = 5e-5


def draws(count: int) -> PointGoalParameters:
    return randomisation.sample(SHIFTS["high"], PointGoalParameters, jax.random.key(7), count)


def test_engines_agree_over_a_hundred_decisions_without_contact(task: PointGoal, step):
    """Eight worlds of the widest shift on an empty floor, compared at every decision."""
    physics = draws(WORLDS)
    worlds = [c_world(task.config, PointGoalParameters(*(part[i] for part in physics)), i) for i in range(WORLDS)]
    for world in worlds:
        empty_floor(world)
        mujoco.mj_step1(world.model, world.data)
    states = stacked([state_of(world, seed) for seed, world in enumerate(worlds)])
    actions = np.random.default_rng(0).uniform(-1, 1, (DECISIONS, WORLDS, 2)).astype(np.float32)
    for decision in range(DECISIONS):
        # A reached goal is replaced by a random one, and the two engines draw from different generators.
        states = states._replace(goal=jnp.asarray(np.stack([world.goal for world in worlds]), jnp.float32))
        batch = step(states, jnp.asarray(actions[decision]), physics)
        singles = [world.step(action) for world, action in zip(worlds, actions[decision], strict=True)]
        _check(decision, batch, singles, worlds)
        states = batch.state
    travelled = [np.linalg.norm(world.data.qpos[:2]) for world in worlds]
    assert max(travelled) > 1.0, "nobody went anywhere: the comparison would be empty"


def _check(decision: int, batch: StepResult, singles: list[CStep], worlds: list[PointGoalCWorld]) -> None:
    reached = np.array([single.reward_terms["goal"] > 0 for single in singles])
    here = np.stack([world.data.qpos[:3] for world in worlds])
    np.testing.assert_allclose(batch.state.bodies.qpos[:, :3], here, atol=POSITION_TOLERANCE, err_msg=str(decision))
    np.testing.assert_allclose(batch.cost, [single.cost for single in singles])
    for index in np.flatnonzero(~reached):
        np.testing.assert_allclose(batch.reward[index], singles[index].reward, atol=REWARD_TOLERANCE)
        # Lidar bins jump where an object crosses a bin's edge, everything else is smooth.
        difference = np.abs(np.asarray(batch.observation[index]) - singles[index].observation)
        assert difference[3:12].max() < 2e-4
        assert np.sort(difference[12:])[:-3].max() < 1e-3


def test_only_the_nearest_vases_need_to_be_in_the_model():
    """Four active vases give the trajectory of all ten, contacts included."""
    config = PRESETS["default"]
    few, all_of_them = Physics(config), Physics(replace(config, active_vases=scene.VASES))
    generator = np.random.default_rng(1)
    qpos = np.zeros((16, 33), np.float32)
    qpos[:, 3:].reshape(16, 10, 3)[:, :, :2] = _spread(generator, 16)
    commands = np.stack([np.full((16, 50), 0.04), np.repeat(generator.uniform(-1, 1, (16, 5)), 10, axis=1)], axis=2)

    def drive(physics: Physics):
        def one_world(qpos, commands):
            def one_step(bodies, command):
                bodies = physics.env_step(bodies, command, PointGoalParameters(*(jnp.float32(1),) * 5))
                return bodies, bodies.qpos

            still = jnp.zeros(33, jnp.float32)
            return jax.lax.scan(one_step, Bodies(qpos, still, still), commands)[1]

        return np.asarray(jit(jax.vmap(one_world))(jnp.asarray(qpos), jnp.asarray(commands, jnp.float32)))

    reference, ours = drive(all_of_them), drive(few)
    pushed = np.abs(reference[:, -1, 3:] - qpos[:, 3:]).max()
    assert pushed > 0.05, "no vase was pushed: the comparison would be empty"
    # Contact amplifies rounding; the median world shows whether the physics is the same.
    assert np.median(np.abs(ours[:, -1] - reference[:, -1]).max(axis=1)) < 1e-3


def _spread(generator: np.random.Generator, worlds: int) -> np.ndarray:
    """Ten vases per world within a metre, none on the robot at the origin."""
    angle, radius = generator.uniform(0, 2 * np.pi, (worlds, 10)), generator.uniform(0.3, 1.0, (worlds, 10))
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=2)
