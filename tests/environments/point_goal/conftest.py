"""Worlds shared by the PointGoal2 tests: compiling one takes longer than testing it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.environments import randomisation
from ashore.environments.point_goal import scene
from ashore.environments.point_goal.c_world import PointGoalCWorld
from ashore.environments.point_goal.config import PRESETS, PointGoalConfig
from ashore.environments.point_goal.parameters import SHIFTS, PointGoalParameters
from ashore.environments.point_goal.physics import Bodies
from ashore.environments.point_goal.task import PointGoal, PointGoalState
from tests.compilation import jit


@pytest.fixture(scope="session")
def task() -> PointGoal:
    return PointGoal(PRESETS["default"])


@pytest.fixture(scope="session")
def step(task: PointGoal):
    """Step up to eight worlds: (states, actions, parameters) -> results. Always eight inside: one compilation."""
    compiled = jit(jax.vmap(task.step))

    def pad_and_step(states, actions, physics):
        count = actions.shape[0]
        rows = jnp.minimum(jnp.arange(8), count - 1)
        results = compiled(*jax.tree.map(lambda part: part[rows], (states, actions, physics)))
        return jax.tree.map(lambda part: part[:count], results)

    return pad_and_step


@pytest.fixture(scope="session")
def nominal() -> PointGoalParameters:
    return parameters()


def parameters(**values: float) -> PointGoalParameters:
    return randomisation.from_names(SHIFTS["nominal"], PointGoalParameters, values)


def batched(single: PointGoalParameters, count: int) -> PointGoalParameters:
    return PointGoalParameters(*(jnp.full(count, value, jnp.float32) for value in single))


def c_world(config: PointGoalConfig, physics: PointGoalParameters, seed: int = 0) -> PointGoalCWorld:
    world = PointGoalCWorld(config, physics)
    world.reset(np.random.default_rng(seed))
    return world


def state_of(world: PointGoalCWorld, seed: int = 0) -> PointGoalState:
    """The batched task's state that stands where a C world stands."""
    bodies = Bodies(*(jnp.asarray(part, jnp.float32) for part in (world.data.qpos, world.data.qvel, world.data.qacc)))
    goal, hazards = jnp.asarray(world.goal, jnp.float32), jnp.asarray(world.hazards, jnp.float32)
    return PointGoalState(bodies, goal, hazards, jax.random.key(seed), jnp.int32(0))


def empty_floor(world: PointGoalCWorld) -> None:
    """Move every vase and hazard far away, so that nothing can be touched."""
    vases = world.data.qpos[3:].reshape(scene.VASES, -1)
    vases[:, 0] = 100.0 + np.arange(scene.VASES)
    world.hazards = np.full_like(world.hazards, 100.0)


def stacked(states: list[PointGoalState]) -> PointGoalState:
    return jax.tree.map(lambda *parts: jnp.stack(parts), *states)
