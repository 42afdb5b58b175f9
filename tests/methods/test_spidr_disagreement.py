"""What raw disagreement is made of on PointGoal2: eight models in C MuJoCo, each stepped from the same moments."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from ashore.environments import randomisation, tasks
from ashore.environments.point_goal.c_world import PointGoalCWorld
from ashore.environments.point_goal.config import PRESETS
from ashore.environments.point_goal.parameters import PointGoalParameters
from ashore.learning.disagreement import DisagreementConfig, disagreement
from ashore.learning.train_config import TrainConfig
from ashore.methods import spidr

MODELS, MOMENTS, HELD = 8, 60, 5


class Measured(NamedTuple):
    accelerometer: float
    """Its share of the variance over the models, summed over observed numbers and moments."""
    charged: float
    """The penalty per decision at SPiDR's weight, in budgets per decision."""


def one_decision(models: list[PointGoalCWorld], world: PointGoalCWorld, action: np.ndarray) -> np.ndarray:
    """What each model shows after the same moment and the same action, [model, number]."""
    for model in models:
        model.data.qpos[:], model.data.qvel[:] = world.data.qpos, world.data.qvel
        model.data.qacc_warmstart[:] = world.data.qacc_warmstart
        model.goal, model.hazards = world.goal, world.hazards
        mujoco.mj_step1(model.model, model.data)
    return np.array([model.step(action).observation for model in models])


def measure(preset: str, ranges: str, size: float = 1.0) -> Measured:
    task = tasks.TASKS["PointGoal2"].make(PRESETS[preset])
    config = DisagreementConfig(ranges=ranges)
    rows = spidr.ranges_of(task, TrainConfig(spidr=config))
    drawn = randomisation.sample(rows, PointGoalParameters, jax.random.key(0), MODELS)
    models = [
        PointGoalCWorld(PRESETS[preset], PointGoalParameters(*(float(field[i]) for field in drawn)))
        for i in range(MODELS)
    ]
    world = PointGoalCWorld(PRESETS[preset], PointGoalParameters(*(row.nominal for row in rows)))
    generator = np.random.default_rng(0)
    world.reset(generator)
    for model in models:
        model.reset(np.random.default_rng(0))
    seen = []
    action = np.zeros(2)
    for moment in range(MOMENTS):
        if moment % HELD == 0:
            action = size * generator.uniform(-1.0, 1.0, 2)
        seen.append(one_decision(models, world, action))
        world.step(action)
    variance = np.var(np.array(seen, np.float64), axis=1)
    names = [field.name for field in task.description.observation]
    mine = [name.startswith("accelerometer") for name in names]
    # The library's own figure for the first moment is the mean of these over the observed numbers.
    assert float(disagreement(jnp.asarray(seen[0]))) == pytest.approx(variance[0].mean(), rel=1e-4)
    return Measured(
        variance[:, mine].sum() / max(variance.sum(), np.finfo(np.float64).tiny),
        config.weight * variance.mean() / task.description.budget.per_decision,
    )


def test_in_its_own_worlds_the_accelerometer_decides():
    # Measured one env step at a time, not a decision, it was 98.4 % of the variance and a mean D of 1.60: 2.8 budgets.
    found = measure("spidr", "own")
    assert found.accelerometer > 0.97
    assert 2.0 < found.charged < 4.0


def test_under_wide_ranges_its_physics_leaves_room_for_nothing_else():
    # Inertia goes with the cube of the mass there and the yaw servo chatters: 99.8 % of the variance, and a charge of
    # dozens of budgets for whatever one does but stand still.
    found = measure("spidr", "train")
    assert found.accelerometer > 0.99
    assert found.charged > 30.0


def test_nothing_leads_to_standing_still_there_although_that_is_free():
    # Who does less is charged as much, until nothing is done at all: the servo chatters under any action but none.
    assert measure("spidr", "train", size=0.05).charged > 30.0
    assert measure("spidr", "train", size=0.0).charged < 1e-6


def test_in_our_physics_it_still_decides_and_charges_next_to_nothing():
    # Without the chatter disagreement is a thousand times smaller: raw observations at SPiDR's weight do not count.
    found = measure("default", "train")
    assert found.accelerometer > 0.95
    assert found.charged < 0.05


def test_compared_in_units_of_its_usual_change_it_has_no_say():
    description = tasks.TASKS["PointGoal2"].make(PRESETS["default"]).description
    compared = [description.observation[index].name for index in description.dynamics_features]
    assert compared == ["velocimeter_x", "velocimeter_y", "gyro_z"]
