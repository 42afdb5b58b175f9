"""How fast the worlds are: steps per second by task, engine and batch size."""

import functools
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from ashore import names
from ashore.environments import randomisation, rollout, tasks
from ashore.environments.base import CWorld, Task, TaskDescription
from ashore.environments.task_family import TaskFamily
from ashore.experiments.machine import this_machine
from ashore.types import Array, Policy

DECISIONS_PER_CALL = 10
"""Decisions in one compiled call, as a learner would take them."""


@dataclass(frozen=True)
class EnvBenchmark:
    """Measure how many steps per second the worlds make under random actions, resets included."""

    task: str | None = None
    """Task to measure; all of them if left out."""
    preset: str | None = None
    """Preset of the task; its default one if left out."""
    engine: Literal["jax", "c", "both"] = "both"
    """`jax` steps batches on JAX's device, `c` one world on one CPU core."""
    batch: tuple[int, ...] = (64, 1024)
    """Batch sizes in JAX."""
    seconds: float = 3.0
    """Least time to measure each row for, after compilation."""
    out: Path = Path("runs/bench_env.json")
    """File for the results, with the machine they were measured on."""

    def __post_init__(self) -> None:
        if not self.batch or min(self.batch) < 1:
            raise ValueError("Batch sizes must be given and positive.")
        if not self.seconds > 0:
            raise ValueError(f"Measuring takes more than {self.seconds} seconds.")


@dataclass(frozen=True)
class EnvSpeed:
    """One row: how fast one world or batch was."""

    task: str
    preset: str
    engine: str
    batch: int
    decisions_per_second: float
    env_steps_per_second: float
    compile_seconds: float
    """Time until the compiled program was ready; 0 for C."""


def measure_environments(config: EnvBenchmark) -> Iterator[EnvSpeed]:
    """Measure what the configuration asks for, row by row."""
    chosen = tasks.TASKS if config.task is None else {config.task: tasks.lookup(config.task)}
    for task, family in chosen.items():
        preset = family.default_preset if config.preset is None else config.preset
        settings = names.lookup("preset", preset, family.presets)
        row = functools.partial(_row, task, preset, family.describe(settings))
        if config.engine in ("c", "both"):
            yield row("c", 1, measure_c(_nominal_world(family, settings), config.seconds), 0.0)
        if config.engine in ("jax", "both"):
            for batch in config.batch:
                yield row("jax", batch, *measure_batch(family.make(settings), batch, config.seconds))


def write_speeds(path: Path, speeds: list[EnvSpeed]) -> Path:
    """Write the rows as JSON, with the machine they were measured on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": this_machine().as_dict(), "speeds": [asdict(speed) for speed in speeds]}
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def measure_batch(task: Task, batch: int, seconds: float) -> tuple[float, float]:
    """Decisions per second of a batch over all its worlds, and the seconds that compilation took."""
    description = task.description
    key = jax.random.key(0)
    physics = randomisation.sample(description.shifts["train"], task.parameters_type, key, batch)
    worlds = jax.jit(functools.partial(rollout.start, task))(key, physics)
    run = jax.jit(lambda worlds, physics, key: _without_records(task, worlds, physics, key))
    begin = time.perf_counter()
    compiled = run.lower(worlds, physics, key).compile()
    compile_seconds = time.perf_counter() - begin
    worlds = jax.block_until_ready(compiled(worlds, physics, key))
    calls, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds:
        key, call_key = jax.random.split(key)
        worlds = jax.block_until_ready(compiled(worlds, physics, call_key))
        calls += 1
    return calls * DECISIONS_PER_CALL * batch / elapsed, compile_seconds


def measure_c(world: CWorld, seconds: float) -> float:
    """Decisions per second of one world on one core."""
    description = world.description
    generator = np.random.default_rng(0)
    low, high = description.action_bounds
    world.reset(generator)
    decisions, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds:
        result = world.step(generator.uniform(low, high).astype(np.float32))
        decisions += 1
        if result.terminated or result.diverged or decisions % description.decisions_per_episode == 0:
            world.reset(generator)
    return decisions / elapsed


def _without_records(task: Task, worlds: rollout.Worlds, physics: object, key: Array) -> rollout.Worlds:
    """The rollout alone: transitions are dropped, so that the figure is the world's and not the memory's."""
    return rollout.rollout(task, _random_policy(task.description), worlds, physics, key, DECISIONS_PER_CALL)[0]


def _random_policy(description: TaskDescription) -> Policy:
    low, high = (jnp.asarray(bound) for bound in description.action_bounds)

    def act(observation: Array, key: Array) -> Array:
        del observation
        return jax.random.uniform(key, low.shape, jnp.float32, low, high)

    return act


def _nominal_world(family: TaskFamily, settings: object) -> CWorld:
    rows = family.describe(settings).shifts["nominal"]
    return family.make_c_world(settings, randomisation.from_names(rows, family.parameters_type, {}))


def _row(
    task: str, preset: str, description: TaskDescription, engine: str, batch: int, decisions: float, compiling: float
) -> EnvSpeed:
    return EnvSpeed(task, preset, engine, batch, decisions, decisions * description.action_repeat, compiling)
