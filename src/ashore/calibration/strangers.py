"""How careful to be with strangers: the smallest level at which all simulated ones keep the budget.

A belief outside the box of the simulated worlds says that this world is none of them, and not which one it is. So it
gets one level, whatever it says, and that level is set by the dearest: a share of strangers that keep the budget would
promise nothing where only the dear ones occur. Simulated strangers are drawn from ranges that are wider than the
calibrated ones by one more width of training, and lie outside of the calibrated ones in at least one parameter. They
are deployed in at every level of the grid, from the lowest on, until none costs more than the budget. Where no level is
enough it is the highest, and says so.

At a level that is fixed beforehand the next stranger drawn like them exceeds the largest of n costs with a chance of at
most 1 / (n + 1). A real one need not be drawn like them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ashore.calibration import contexts, risk_level
from ashore.calibration.config import CalibrationConfig, Subject
from ashore.calibration.ledger import Ledger
from ashore.calibration.realised_cost import discounted
from ashore.environments import randomisation
from ashore.environments.base import Task
from ashore.types import Array, Parameters

_MOST_DRAWS = 200
"""Rounds of drawing before a task is said to have no strangers: where all ranges are points, no wider one is wider."""


class Strangers(NamedTuple):
    """What simulated strangers cost, level by level up to the one that is enough; costs in the discounted unit."""

    times: float
    """They are from ranges this many times as wide as those of training."""
    etas: np.ndarray
    """Levels that were tried, rising."""
    mean: np.ndarray
    """Mean cost over the strangers at each."""
    largest: np.ndarray
    """Cost of the dearest at each; the noise of its episodes is part of it."""
    diverged: int
    """How often a world was lost, all levels together."""
    level: float
    """What strangers call for: the last one tried."""
    enough: bool
    """Whether all of them keep the budget there."""


def measure(subject: Subject, config: CalibrationConfig, ledger: Ledger, key: Array) -> Strangers:
    """Deploy in simulated strangers at one level after the other until one is enough.

    Evidence counts as it is: strangers are met before tempering is known.
    """
    worlds_key, scenes_key = jax.random.split(key)
    worlds = draw(subject.task, config, worlds_key)
    limit = subject.budget.discounted
    means, largest, diverged = [], [], 0
    for place, eta in enumerate(config.etas):
        always = risk_level.throughout(config.etas, len(config.counts), subject.agent.latent, place)
        deployed = contexts.deploy(subject, config, ledger, f"strangers_{eta:g}", worlds, scenes_key, always, 1.0)
        spent = np.asarray(deployed.cost, np.float64).reshape(config.environments, -1).mean(axis=1)
        costs = discounted(spent, subject.budget)
        means.append(costs.mean())
        largest.append(costs.max())
        diverged += int(np.sum(deployed.diverged))
        if largest[-1] <= limit:
            break
    tried = np.array(config.etas[: len(largest)])
    enough = bool(largest[-1] <= limit)
    return Strangers(wider(config), tried, np.array(means), np.array(largest), diverged, float(tried[-1]), enough)


def wider(config: CalibrationConfig) -> float:
    """How many times as wide as those of training the ranges of strangers are."""
    return config.beyond + 1.0


def draw(task: Task, config: CalibrationConfig, key: Array) -> Parameters:
    """As many worlds as are calibrated with, each outside of the calibrated ranges in at least one parameter."""
    train = task.description.shifts["train"]
    calibrated = randomisation.widened(train, config.beyond)
    ranges = randomisation.widened(train, wider(config))
    found: list[Parameters] = []
    missing = config.environments
    for number in range(_MOST_DRAWS):
        round_key = jax.random.fold_in(key, number)
        some = randomisation.sample(ranges, task.parameters_type, round_key, config.environments)
        outside = np.flatnonzero(np.asarray(randomisation.leaves(calibrated, some)))[:missing]
        found.append(jax.tree.map(lambda values, kept=outside: values[kept], some))
        missing -= len(outside)
        if missing == 0:
            return jax.tree.map(lambda *parts: jnp.concatenate(parts), *found)
    raise ValueError(
        f"{task.description.name} has no worlds outside of its calibrated ranges to measure strangers with; choose "
        "strangers=start or strangers=highest."
    )
