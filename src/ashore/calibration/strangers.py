"""How careful to be with strangers: the level at which simulated ones keep the budget.

A belief outside the box of the simulated worlds says that this world is none of them, and not which one it is. So it
gets one level, whatever it says. Simulated strangers are drawn from ranges that are wider than the calibrated ones by
one more width of training, and lie outside of the calibrated ones in at least one parameter. They are deployed in at
every level of the grid, from the lowest on; the level that strangers call for is the first whose conformal bound, over
those whose beliefs left the box, is within the budget. Where none is, or where too few were recognised for a bound, it
is the highest, and not enough.

One level is set by strangers from all sides. Those of a shift that has only dear ones may cost more than the bound.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ashore.calibration import conformal, contexts, latent_error, risk_level
from ashore.calibration.careful_deployment import CarefulDeployment
from ashore.calibration.config import CalibrationConfig, Subject
from ashore.calibration.ledger import Ledger
from ashore.calibration.realised_cost import discounted
from ashore.environments import randomisation
from ashore.environments.base import Task
from ashore.types import Array, Parameters
from ashore_runtime.schema import WorldCalibration

_MOST_DRAWS = 200
"""Rounds of drawing before a task is said to have no strangers: where all ranges are points, no wider one is wider."""


class Strangers(NamedTuple):
    """What simulated strangers cost, level by level up to the one that is enough; costs in the discounted unit."""

    times: float
    """They are from ranges this many times as wide as those of training."""
    etas: np.ndarray
    """Levels that were tried, rising."""
    recognised: np.ndarray
    """Strangers whose beliefs left the box, at each level; the costs are theirs."""
    mean: np.ndarray
    """Mean cost at each; NaN where none was recognised."""
    bound: np.ndarray
    """What the next one does not exceed at each; infinite where too few were recognised."""
    level: float
    """What strangers call for: the last one tried."""
    enough: bool
    """Whether it keeps the budget."""


def measure(
    subject: Subject, config: CalibrationConfig, ledger: Ledger, key: Array, factor: float, box: WorldCalibration
) -> Strangers:
    """Deploy in simulated strangers at one level after the other until one is enough.

    Args:
        factor: on the evidence of every transition.
        box: the table with what was calibrated so far.
    """
    worlds_key, scenes_key = jax.random.split(key)
    worlds = draw(subject.task, config, worlds_key)
    limit = subject.budget.discounted
    rows: list[tuple[int, float, float]] = []
    for place, eta in enumerate(config.etas):
        always = risk_level.throughout(config.etas, len(config.counts), subject.agent.latent, place)
        stage = f"strangers_{eta:g}"
        deployed = contexts.deploy(subject, config, ledger, stage, worlds, scenes_key, always, factor)
        spent = np.asarray(deployed.cost, np.float64).reshape(config.environments, -1).mean(axis=1)
        costs = discounted(spent, subject.budget)[recognised(config, deployed, box)]
        bound = conformal.upper(costs, config.level)
        rows.append((len(costs), float(costs.mean()) if len(costs) else np.nan, bound))
        if bound <= limit:
            break
    counts, means, bounds = (np.array(column) for column in zip(*rows, strict=True))
    tried = np.array(config.etas[: len(rows)])
    return Strangers(wider(config), tried, counts, means, bounds, float(tried[-1]), bool(bounds[-1] <= limit))


def recognised(config: CalibrationConfig, deployed: CarefulDeployment, box: WorldCalibration) -> np.ndarray:
    """Whether the belief of each environment lies outside the box at the end of its first deployment."""
    ends = (np.asarray(sums, np.float64)[:, -1] for sums in (deployed.weighted_mean_sum, deployed.precision_sum))
    first = (sums.reshape(config.environments, -1, sums.shape[-1])[:, 0] for sums in ends)
    beliefs = latent_error.beliefs(*first)
    return np.any((beliefs < np.array(box.low)) | (beliefs > np.array(box.high)), axis=1)


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
