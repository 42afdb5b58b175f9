"""The robot moves as it should, at every time step and under every parameter."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from ashore.environments.point_goal import scene
from ashore.environments.point_goal.config import PRESETS
from ashore.environments.point_goal.parameters import PointGoalParameters
from ashore.environments.point_goal.task import PointGoal
from tests.environments.point_goal.conftest import batched, c_world, empty_floor, parameters, stacked, state_of


def drive(world, action, decisions: int) -> np.ndarray:
    """Velocities of a C world's robot at every physics step under a constant action, after a tiny kick."""
    world.data.qvel[2] = 1e-3
    seen = []
    for _ in range(decisions * 8):
        world._env_step(action[0] * world.config.throttle_scale, action[1])
        seen.append(world.data.qvel[:3].copy())
    return np.array(seen)


def lone_robot(preset: str, **values: float):
    # One physics step per env step: chatter flips at every physics step and is invisible at every second one.
    world = c_world(replace(PRESETS[preset], substeps=1), parameters(**values))
    empty_floor(world)
    mujoco.mj_step1(world.model, world.data)
    return world


def test_nominal_top_speed_is_one_and_a_half_metres_per_second(task, step):
    # Force limit 0.05 x gear 0.3 = 0.015 N against damping 0.01 N s/m: 1.5 m/s.
    world = lone_robot("default")
    speeds = np.linalg.norm(drive(world, (1.0, 0.0), 100)[:, :2], axis=1)
    assert speeds[-1] == pytest.approx(1.5, abs=0.01)
    world = lone_robot("default")
    state, full_ahead = stacked([state_of(world)]), jnp.array([[1.0, 0.0]])
    for _ in range(100):
        state = step(state, full_ahead, batched(parameters(), 1)).state
    assert float(jnp.linalg.norm(state.bodies.qvel[0, :2])) == pytest.approx(1.5, abs=0.01)


def test_yaw_is_quiet_by_default_and_chatters_in_the_spidr_preset():
    quiet = drive(lone_robot("default"), (0.0, 0.0), 50)[200:, 2]
    assert np.std(quiet) < 0.05  # measured 0.00
    chatter = drive(lone_robot("spidr"), (0.0, 0.0), 50)[200:, 2]
    assert np.std(chatter) == pytest.approx(1.46, abs=0.1)


@pytest.mark.parametrize("mass", [0.4, 1.0, 2.0])
@pytest.mark.parametrize("command", [0.1, 0.3, 0.5, -0.3, 1.0])
def test_steering_follows_its_command_for_every_mass(mass: float, command: float):
    # Servo force kv (u - g w), times gear g, balances damping d w: w = g u / (g^2 + d / kv), unless the force is at its
    # limit: then w = 0.05 g / d = 3 rad/s.
    gear, damping = 0.3, 0.005
    expected = min(gear * command / (gear**2 + damping), 0.05 * gear / damping, key=abs)
    rates = drive(lone_robot("default", mass=mass), (0.0, command), 25)[100:, 2]
    assert np.mean(rates) == pytest.approx(expected, rel=0.01)
    assert np.std(rates) < 0.01
    # MuJoCo's own servo, as in SPiDR's release, flips between its force limits instead of turning.
    if mass == 1.0 and command == 0.3:
        assert abs(np.mean(drive(lone_robot("spidr"), (0.0, command), 25)[100:, 2])) < 0.2 * expected


def test_a_vase_slides_to_rest_as_mujoco_lets_it(task):
    """The closed form for untouched vases against the full solver."""
    world = c_world(task.config, parameters())
    empty_floor(world)
    vases = world.data.qvel[3:].reshape(scene.VASES, 3)
    vases[:] = np.random.default_rng(0).normal(size=vases.shape) * np.logspace(-4, 1, scene.VASES)[:, None]
    bodies = state_of(world).bodies
    mujoco.mj_step1(world.model, world.data)
    for _ in range(10):
        world._env_step(0.0, 0.0)
        bodies = task.physics._slide_to_rest(bodies)
        np.testing.assert_allclose(bodies.qvel[3:], world.data.qvel[3:], atol=2e-5)
    # mu g = 9.81 m/s^2 takes 0.2 s to stop 1.96 m/s: the fastest vase moves on, the slow ones stand still.
    assert np.abs(world.data.qvel[3:]).max() > 0.1
    assert np.abs(np.asarray(bodies.qvel[3:]).reshape(scene.VASES, 3)[:5]).max() < 1e-5


def test_every_parameter_changes_the_next_state(task, step):
    names = PointGoalParameters._fields
    variants = [parameters()] + [parameters(**{name: 0.7 if name != "gear_x" else 0.1}) for name in names]
    physics = PointGoalParameters(*(jnp.stack(parts) for parts in zip(*variants, strict=True)))
    world = lone_robot("default")
    world.data.qvel[:3] = (0.5, 0.2, 0.4)
    states = stacked([state_of(world)] * len(variants))
    after = step(states, jnp.tile(jnp.array([[0.6, 0.5]]), (len(variants), 1)), physics).state.bodies
    for index, name in enumerate(names, start=1):
        change = np.abs(np.asarray(after.qvel[index, :3] - after.qvel[0, :3]))
        assert change.max() > 1e-3, f"{name} changed nothing"
    # Yaw parameters act on yaw, and the drive's gear and the sliding damping on motion in the plane.
    yaw_change = np.abs(np.asarray(after.qvel[1:, 2] - after.qvel[0, 2]))
    assert yaw_change[names.index("damping_z")] > 0.01
    assert yaw_change[names.index("gear_z")] > 0.01


@pytest.mark.parametrize(
    ("changed", "top_speed"),
    # gear_x + 0.1: 0.05 x 0.4 / 0.01 = 2 m/s. damping_xy x 0.5: 0.015 / 0.005 = 3 m/s. Mass leaves top speed alone.
    [({"gear_x": 0.1}, 2.0), ({"damping_xy": 0.5}, 3.0), ({"mass": 2.0}, 1.5)],
)
def test_parameters_move_the_top_speed_as_computed_by_hand(changed: dict[str, float], top_speed: float):
    speeds = np.linalg.norm(drive(lone_robot("default", **changed), (1.0, 0.0), 200)[:, :2], axis=1)
    assert speeds[-1] == pytest.approx(top_speed, rel=0.01)


def test_mass_scales_the_time_to_speed():
    # v(t) = 1.5 (1 - exp(-t d / m)): after one nominal time constant (0.519 s) a robot of mass s has 1 - exp(-1/s).
    for scale in (0.5, 1.0, 2.0):
        speeds = np.linalg.norm(drive(lone_robot("default", mass=scale), (1.0, 0.0), 10)[:, :2], axis=1)
        assert speeds[51] == pytest.approx(1.5 * (1 - np.exp(-0.52 / (0.519 * scale))), rel=0.02)


def test_identifiable_ratios_by_hand():
    ratios = PointGoal().identifiable(parameters(gear_x=0.1, mass=0.5, damping_xy=0.8))
    assert float(ratios["thrust_per_mass"]) == pytest.approx(0.4 / 0.5)
    assert float(ratios["damping_per_mass"]) == pytest.approx(1.6)
    assert float(ratios["thrust_per_damping"]) == pytest.approx(0.5)


def test_a_world_that_turns_nan_says_so(task, step):
    state = stacked([state_of(lone_robot("default"))] * 2)
    qpos = state.bodies.qpos.at[0, 0].set(jnp.nan)
    broken = state._replace(bodies=state.bodies._replace(qpos=qpos))
    result = step(broken, jnp.zeros((2, 2)), batched(parameters(), 2))
    np.testing.assert_array_equal(result.diverged, [True, False])


def test_two_tasks_of_one_config_share_their_program():
    assert PointGoal() == PointGoal(PRESETS["default"])
    assert hash(PointGoal()) == hash(PointGoal(PRESETS["default"]))
    assert PointGoal() != PointGoal(PRESETS["spidr"])
    assert jax.tree.structure(PointGoal().parameters_type(*range(5))).num_leaves == 5
