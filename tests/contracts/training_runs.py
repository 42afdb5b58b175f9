"""Methods trained at `smoke` size: compiled once per task and method for all the tests that look at the result."""

import functools
import itertools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ashore.environments import tasks
from ashore.environments.base import Task
from ashore.experiments import deployment, deployment_environment, presets, training
from ashore.experiments.deployment import Caution, Moment
from ashore.experiments.training import TrainingRun
from ashore.learning.train import TrainState
from ashore.learning.train_config import TrainConfig
from ashore.methods.registry import METHODS
from experiments import cart_run

TRAINED = [name for name, method in METHODS.items() if method.recipe is not None]
WORLD = "Platoon"
"""The world that is cheap to compile."""
OTHERS = [name for name in tasks.TASKS if name != WORLD]
TIMELESS = Caution(deadline=float("inf"))

# These programs run a few times and need no optimisation; the older code generator is twice as fast at that.
jit = functools.partial(jax.jit, compiler_options=cart_run.QUICKLY)


@functools.cache
def real_task(name: str) -> Task:
    family = tasks.TASKS[name]
    return family.make(family.presets[family.default_preset])


def smoke(task_name: str) -> TrainConfig:
    return presets.lookup(task_name, "smoke").train


@functools.cache
def program(task_name: str, name: str) -> Any:
    return jit(functools.partial(METHODS[name].train_chunk, real_task(task_name), smoke(task_name)))


@functools.cache
def starting(task_name: str, name: str) -> Any:
    return jit(functools.partial(METHODS[name].start, real_task(task_name), smoke(task_name)))


@functools.cache
def begin(task_name: str, name: str, seed: int) -> TrainState:
    return starting(task_name, name)(jax.random.key(seed))


def go_on(task_name: str, name: str, state: TrainState, chunks: int) -> tuple[TrainState, dict[str, Any]]:
    metrics: dict[str, Any] = {}
    for _ in range(chunks):
        state, metrics = program(task_name, name)(state)
    return state, metrics


@functools.cache
def trained(task_name: str, name: str) -> tuple[TrainState, dict[str, Any]]:
    config = smoke(task_name)
    return go_on(task_name, name, begin(task_name, name, 0), config.decisions // config.chunk)


def numbers(tree: Any) -> list[np.ndarray]:
    leaves = jax.tree.leaves(tree)
    return [
        np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)
        for leaf in leaves
    ]


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(numbers(one), numbers(other), strict=True))


def write_trained(task_name: str, name: str, folder: Path) -> Path:
    """What `ashore train` leaves."""
    config = smoke(task_name)
    training.begin(TrainingRun(task_name, tasks.TASKS[task_name].default_preset, name, config), folder)
    state, _ = trained(task_name, name)
    training._write_policy(folder, jax.tree.map(lambda leaf: leaf[None], state), config.decisions)
    return folder


def deployed(path: Path, task_name: str) -> list[Moment]:
    """The first decisions of a bundle in a world of another shift."""
    runtime = deployment.load_runtime(path, TIMELESS, freeze=False)
    shift = list(real_task(task_name).description.shifts)[-1]
    parameters = deployment_environment.draw_parameters(task_name, None, shift, 0, 1)[0]
    env = deployment_environment.world(runtime.bundle.manifest, task_name, None, parameters)
    seen = list(itertools.islice(deployment.moments(runtime, env, 1, seed=0), 30))
    runtime.close()
    return seen
