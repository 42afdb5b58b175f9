"""Who is held to the contract: every task of the registry in every preset, the toy, and the example of the docs.

A world that is added to `TASKS` is held to all of it without another line of test.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.environments import gymnasium_vector, randomisation, tasks
from ashore.environments.base import Task, TaskDescription
from ashore.environments.reported_terms import ReportsTerms
from ashore.environments.task_family import TaskFamily
from ashore.types import Array
from docs_example import ROOMS
from toy_world import CARTS

_TOYS = {"Cart": CARTS, "Room": ROOMS}
assert not _TOYS.keys() & tasks.TASKS.keys(), "A toy of the tests has the name of a task, which would not be tested."
FAMILIES = {**tasks.TASKS, **_TOYS}


def _parameter(name: str, preset: str) -> Any:
    return pytest.param((name, preset), id=f"{name}-{preset}")


# Compiling is what takes the time. `long` differs from the default in a counter alone; `free` has the boxes of `spidr`
# and the rules of the default, and the engine tests look at it besides.
COVERED = {("PointGoal2", "long"), ("PointGoal2", "free")}

EVERY = [(name, preset) for name, family in FAMILIES.items() for preset in family.presets]
PRESETS = [_parameter(*pair) for pair in EVERY]
PROGRAMS = [_parameter(*pair) for pair in EVERY if pair not in COVERED]
DEFAULTS = [_parameter(name, family.default_preset) for name, family in FAMILIES.items()]
WORLDS = 6


class Subject(NamedTuple):
    """One preset of one family, compiled once for all the tests that look at it, and only as far as they look."""

    family: TaskFamily
    config: Any
    task: Task
    description: TaskDescription
    reset: Any
    step: Any
    start: Any
    """A batch of the task with its terms reported, as Gymnasium's vector environment starts it."""
    advance: Any


@functools.cache
def subject_of(name: str, preset: str) -> Subject:
    family = FAMILIES[name]
    config = family.presets[preset]
    task = family.make(config)
    reporting = ReportsTerms(task)
    return Subject(
        family,
        config,
        task,
        task.description,
        jax.jit(task.reset),
        jax.jit(task.step),
        functools.partial(gymnasium_vector._start, reporting),
        functools.partial(gymnasium_vector._advance, reporting),
    )


def nominal(subject: Subject) -> Any:
    return randomisation.nominal(subject.description.shifts["nominal"], subject.task.parameters_type)


def drawn(subject: Subject, shift: str, count: int = WORLDS) -> Any:
    rows = subject.description.shifts[shift]
    return randomisation.sample(rows, subject.task.parameters_type, jax.random.key(7), count)


def random_actions(description: TaskDescription, seed: int, count: int | None = None) -> Array:
    low, high = description.action_bounds
    shape = low.shape if count is None else (count, *low.shape)
    return jnp.asarray(np.random.default_rng(seed).uniform(low, high, shape), jnp.float32)


def one_of(batch: Any, index: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], batch)


def poisoned(state: Any, world: int) -> Any:
    def poison(leaf: Array) -> Array:
        return leaf.at[world].set(jnp.nan) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(poison, state)


def assert_inside(observation: Any, description: TaskDescription) -> None:
    low, high = description.observation_bounds
    observation = np.asarray(observation)
    slack = 1e-5 * np.maximum(np.abs(low), np.abs(high))
    for index in np.flatnonzero(
        ((observation < low - slack) | (observation > high + slack)).reshape(-1, len(low)).any(0)
    ):
        field = description.observation[index]
        values = observation.reshape(-1, len(low))[:, index]
        pytest.fail(f"{field.name} ran over [{values.min()}, {values.max()}], declared [{field.low}, {field.high}]")
