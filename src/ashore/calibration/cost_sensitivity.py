"""L_c(N) and |dJ_c|(N): what acting on the belief after N transitions costs, compared with acting on the reference.

In a single environment L_c epsilon is the difference itself. Over environments the product of two quantiles is not the
quantile of the product, so the difference gets a table of its own, the direct one.
"""

from typing import NamedTuple

import numpy as np

from ashore.calibration import conformal
from ashore.calibration.latent_error import Table

SMALLEST_ERROR = 1e-3
"""Environments whose belief is nearer to the reference than this say nothing about a ratio."""


class Differences(NamedTuple):
    """J_c fed z_ref against J_c fed z_N, in the same scenes, [count, environment] each."""

    signed: np.ndarray
    """J_c(z_N) - J_c(z_ref)."""
    standard_error: np.ndarray
    """Of the difference, over episodes; NaN for a single one."""


def differences(costs: np.ndarray, reference: np.ndarray) -> Differences:
    """Costs fed z_N, [count, environment, episode], against costs fed z_ref in the same scenes."""
    assert costs.shape[1:] == reference.shape, (costs.shape, reference.shape)
    return Differences(np.mean(costs - reference, axis=2), paired_error(costs - reference))


def paired_error(paired: np.ndarray) -> np.ndarray:
    """Standard error of the mean over the last axis; NaN where there is but one episode."""
    episodes = paired.shape[-1]
    if episodes == 1:
        return np.full(paired.shape[:-1], np.nan)
    return np.std(paired, axis=-1, ddof=1) / np.sqrt(episodes)


def noise_floor(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """|J_c(z_ref) - J_c(z_ref)| in two sets of scenes, [environment]: what chance alone would make of `differences`.

    With common random numbers a difference has less noise than this: the floor is reported and never subtracted.
    """
    return np.abs(np.mean(first, axis=1) - np.mean(second, axis=1))


def direct(differences: np.ndarray, level: float) -> Table:
    """The difference that an environment does not exceed at this level, by count."""
    value = np.array([conformal.upper(row, level) for row in differences])
    return Table(value, np.array([conformal.standard_error(row, level) for row in differences]))


def lipschitz(differences: np.ndarray, errors: np.ndarray, level: float) -> tuple[Table, np.ndarray]:
    """The ratio |dJ_c| / epsilon that an environment does not exceed at this level, by count.

    Returns:
        The table, and how many environments each of its rows rests on.
    """
    assert differences.shape == errors.shape, (differences.shape, errors.shape)
    rows = [
        difference[error >= SMALLEST_ERROR] / error[error >= SMALLEST_ERROR]
        for difference, error in zip(differences, errors, strict=True)
    ]
    value = np.array([conformal.upper(row, level) for row in rows])
    spread = np.array([conformal.standard_error(row, level) for row in rows])
    return Table(value, spread), np.array([len(row) for row in rows])


def lipschitz_error(lipschitz: np.ndarray, epsilon: np.ndarray, direct: np.ndarray) -> np.ndarray:
    """L_c(N) epsilon(N), by count.

    Where too few environments are far enough from their reference for a ratio, the direct difference takes its place:
    in one environment the product is that difference.
    """
    known = np.isfinite(lipschitz)
    return np.where(known, np.where(known, lipschitz, 0.0) * epsilon, direct)
