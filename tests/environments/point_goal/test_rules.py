"""Observation, reward and cost against a plain transcription of the rules, contacts included."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from ashore.environments.point_goal import rules, scene
from ashore.environments.point_goal.config import PRESETS
from ashore.environments.point_goal.lidar import lidar
from ashore.environments.point_goal.task import PointGoal
from tests.compilation import jit
from tests.environments.point_goal.conftest import c_world, parameters, stacked, state_of

STATES = 1000
BEFORE = 1.0
"""Distance to the goal one env step earlier, in metres."""


def random_states(preset: str):
    """C worlds thrown into 1000 random moments, a third of them with a vase within the robot's reach."""
    generator = np.random.default_rng(5)
    world = c_world(PRESETS[preset], parameters())
    for _ in range(STATES):
        world.reset(generator)
        vases = world.data.qpos[3:].reshape(scene.VASES, -1)
        if generator.random() < 0.33:
            vases[0, :2] = world.data.qpos[:2] + generator.uniform(-0.3, 0.3, 2)
        if generator.random() < 0.3:
            world.goal = world.data.qpos[:2] + generator.uniform(-0.3, 0.3, 2)
        if generator.random() < 0.2:
            world.hazards[0] = world.data.qpos[:2] + generator.uniform(-0.3, 0.3, 2)
        if preset != "default":
            vases[:, 3:] += generator.normal(0.0, 0.05, (scene.VASES, 4))  # tilted boxes
            vases[:, 3:] /= np.linalg.norm(vases[:, 3:], axis=1, keepdims=True)
        still = generator.random() < 0.5
        world.data.qvel[:3] = generator.normal(size=3)
        world.data.qvel[3:] = (
            0.0 if still else generator.normal(size=world.model.nv - 3) * 10 ** generator.uniform(-6, 0)
        )
        world.data.qacc[:] = generator.normal(size=world.model.nv)
        mujoco.mj_kinematics(world.model, world.data)
        mujoco.mj_collision(world.model, world.data)
        yield world


@pytest.mark.parametrize("preset", ["default", "free", "spidr"])
def test_reward_cost_and_observation_agree_with_mujocos_contacts_on_random_states(preset: str):
    task = PointGoal(PRESETS[preset])
    states, costs, rewards, observations = [], [], [], []
    for world in random_states(preset):
        states.append(state_of(world))
        costs.append(list(world.cost_terms().values()))
        rewards.append(list(world.reward_terms(BEFORE).values()))
        observations.append(world.observe())
    batch, expected = stacked(states), np.array(costs)

    def judge(state):
        positions, rotations, velocities = task._vases(state.bodies)
        cost = rules.cost_terms(task.config, state.bodies.qpos[:3], state.hazards, positions, rotations, velocities)
        distance = jnp.linalg.norm(state.bodies.qpos[:2] - state.goal)
        reward = rules.reward_terms(jnp.float32(BEFORE), distance, distance <= task.config.goal_distance)
        return jnp.stack(list(cost.values())), jnp.stack(list(reward.values())), task._observe(state)

    ours, earned, sights = jit(jax.vmap(judge))(batch)
    for cause, share in zip(("hazard", "contact", "motion"), (expected > 0).mean(axis=0), strict=True):
        assert 0.05 < share < 0.95, f"{cause} holds in {share:.0%} of the states: the comparison would be one-sided"
    # Grazing contacts are decided by rounding: at most 2 in 1000 may differ.
    assert np.mean(np.abs(np.asarray(ours) - expected).max(axis=1) > 1e-3) <= 0.002
    assert 0.05 < np.mean(np.array(rewards)[:, 1] > 0) < 0.95, "the comparison of goals would be one-sided"
    np.testing.assert_allclose(earned, np.array(rewards), atol=1e-5)
    difference = np.abs(np.asarray(sights) - np.stack(observations))
    assert np.mean(difference.max(axis=1) > 1e-3) <= 0.005, "only objects on a bin's edge may differ"


def test_lidar_agrees_with_a_plain_loop_on_random_states():
    generator = np.random.default_rng(0)
    robots = generator.uniform(-2, 2, (STATES, 3))
    objects = generator.uniform(-3, 3, (STATES, 10, 2))
    ours = jax.jit(jax.vmap(lidar))(
        jnp.asarray(robots[:, :2], jnp.float32),
        jnp.asarray(robots[:, 2], jnp.float32),
        jnp.asarray(objects, jnp.float32),
    )
    expected = np.array([_plain_lidar(robot, things) for robot, things in zip(robots, objects, strict=True)])
    assert np.mean(np.abs(np.asarray(ours) - expected).max(axis=1) > 1e-4) <= 0.002


def _plain_lidar(robot: np.ndarray, objects: np.ndarray) -> np.ndarray:
    """One object at a time, with a rotation matrix: Safety-Gymnasium's definition read aloud."""
    reading = [0.0] * 16
    cos, sin = np.cos(robot[2]), np.sin(robot[2])
    for x, y in objects - robot[:2]:
        ahead, left = cos * x + sin * y, -sin * x + cos * y
        closeness = max(0.0, 3.0 - np.hypot(ahead, left)) / 3.0
        turns = (np.arctan2(left, ahead) % (2 * np.pi)) / (2 * np.pi) * 16
        own, passed = int(turns) % 16, turns % 1.0
        for index, share in ((own, 1.0), ((own + 1) % 16, passed), ((own - 1) % 16, 1.0 - passed)):
            reading[index] = max(reading[index], share * closeness)
    return np.array(reading)


def test_lidar_by_hand():
    # One object 1.5 m straight ahead: closeness (3 - 1.5) / 3 = 0.5 in bin 0, nothing of bin 0 passed yet, so
    # everything bleeds into the previous bin (15) and nothing into the next.
    ahead = lidar(jnp.zeros(2), jnp.float32(0.0), jnp.array([[1.5, 0.0]]))
    expected = np.zeros(16)
    expected[[0, 15]] = 0.5
    np.testing.assert_allclose(ahead, expected, atol=1e-6)
    # The same object seen by a robot that faces away is in the middle of the circle: bin 8, bleeding into 7.
    behind = lidar(jnp.zeros(2), jnp.float32(np.pi), jnp.array([[1.5, 1e-6]]))
    assert int(np.argmax(behind)) in (7, 8)
    # Beyond three metres nothing is seen.
    np.testing.assert_array_equal(lidar(jnp.zeros(2), jnp.float32(0.0), jnp.array([[3.1, 0.0]])), np.zeros(16))


def test_observation_is_safety_gymnasiums_sixty_numbers_in_its_order():
    names = [field.name for field in PointGoal().description.observation]
    assert len(names) == 60
    assert names[:3] == ["accelerometer_x", "accelerometer_y", "accelerometer_z"]
    assert names[3:12:3] == ["velocimeter_x", "gyro_x", "magnetometer_x"]
    assert names[12::16] == ["goal_lidar_0", "hazards_lidar_0", "vases_lidar_0"]
    assert len(PointGoal(PRESETS["spidr"]).description.observation) == 39


def test_sensors_agree_with_mujocos():
    """The closed forms against MuJoCo's own sensors, on the same robot."""
    spec = mujoco.MjSpec.from_string(scene._robot_xml(PRESETS["default"]))
    for kind in ("ACCELEROMETER", "VELOCIMETER", "GYRO", "MAGNETOMETER"):
        sensor_type = getattr(mujoco.mjtSensor, f"mjSENS_{kind}")
        spec.add_sensor(type=sensor_type, objtype=mujoco.mjtObj.mjOBJ_SITE, objname="robot")
    model = spec.compile()
    data = mujoco.MjData(model)
    generator = np.random.default_rng(2)
    for _ in range(50):
        data.qpos[:], data.qvel[:], data.ctrl[:] = (generator.normal(size=3), generator.normal(size=3), [0.03, 0.02])
        mujoco.mj_forward(model, data)
        ours = rules.sensors(*(jnp.asarray(part, jnp.float32) for part in (data.qpos, data.qvel, data.qacc)))
        np.testing.assert_allclose(ours, data.sensordata, atol=2e-3)  # yaw accelerations reach 1e3 rad/s^2
