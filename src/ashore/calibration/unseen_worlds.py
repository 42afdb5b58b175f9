"""What a deployment in worlds that nobody has seen came to: coverage, cost by number of transitions, return."""

from typing import NamedTuple

import numpy as np

from ashore.budget import Budget
from ashore.calibration import conformal
from ashore.calibration.careful_deployment import CarefulDeployment
from ashore.calibration.config import CalibrationConfig
from ashore.calibration.coverage import Coverage, by_count, coverage
from ashore.calibration.realised_cost import discounted

COVERAGE_CONFIDENCE = 0.95


class Realised(NamedTuple):
    """A deployment in unseen worlds, costs in the discounted unit."""

    coverage: Coverage
    first_episode: Coverage
    """The same for the first episode alone, where least is known."""
    cost: np.ndarray
    """Mean cost of each world, [world]."""
    by_count: np.ndarray
    """Mean over worlds while N runs from each count to the next, [count]."""
    bound_by_count: np.ndarray
    """What a world does not exceed there, [count]."""
    episode_return: float
    triggered: float
    diverged: int


def judge(budget: Budget, config: CalibrationConfig, deployed: CarefulDeployment) -> Realised:
    """What the deployments of `contexts.deploy` came to."""
    length = budget.decisions_per_episode
    shape = (config.environments, -1, deployed.cost.shape[1])
    # Replicas of one world are averaged: the question is about the world, not about one deployment's luck.
    costs = discounted(np.asarray(deployed.cost, np.float64).reshape(shape).mean(axis=1), budget)
    parts = by_count(costs, config.counts)
    return Realised(
        coverage=coverage(costs.mean(axis=1), budget.discounted, COVERAGE_CONFIDENCE),
        first_episode=coverage(costs[:, :length].mean(axis=1), budget.discounted, COVERAGE_CONFIDENCE),
        cost=costs.mean(axis=1),
        by_count=parts.mean(axis=1),
        bound_by_count=np.array([conformal.upper(row, config.level) for row in parts]),
        episode_return=float(np.mean(deployed.reward) * length),
        triggered=float(np.mean(deployed.triggered)),
        diverged=int(np.sum(deployed.diverged)),
    )
