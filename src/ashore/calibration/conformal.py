"""Quantiles that hold for the next environment and not only for those that were measured.

Of n exchangeable numbers and one more, the next is at most the ceil((n + 1) q)-th smallest of the n with probability at
least q, whatever the distribution. The plain empirical quantile promises less. Where that rank exceeds n there are too
few numbers for any promise at this level, and the bound is infinite.
"""

import math

import numpy as np

RESAMPLES = 400
_ROUNDING = 1e-9
"""(n + 1) q that should be whole may come out a little above."""


def rank(samples: int, level: float) -> int | None:
    """Which of the sorted samples bounds the next one at this level, counted from 1; None if there are too few."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"A level must lie between 0 and 1, not {level}.")
    wanted = math.ceil((samples + 1) * level - _ROUNDING)
    return wanted if wanted <= samples else None


def fewest(level: float) -> int:
    """The smallest number of samples for which there is a bound at this level."""
    return math.ceil(level / (1.0 - level) - _ROUNDING)


def upper(values: np.ndarray, level: float) -> float:
    """What the next value does not exceed with probability `level`; infinite where there are too few values."""
    place = rank(len(values), level)
    return float(np.sort(values)[place - 1]) if place is not None else math.inf


def lower(values: np.ndarray, level: float) -> float:
    """What the next value does not fall below with probability `level`; minus infinite where there are too few."""
    return -upper(-np.asarray(values), level)


def standard_error(values: np.ndarray, level: float, seed: int = 0) -> float:
    """Bootstrap standard error of `upper` over environments; NaN where there is no bound.

    `lower` is `upper` of the negated values, and so is its standard error.
    """
    place = rank(len(values), level)
    if place is None:
        return math.nan
    chosen = np.random.default_rng(seed).integers(0, len(values), (RESAMPLES, len(values)))
    return float(np.std(np.sort(np.asarray(values)[chosen], axis=1)[:, place - 1], ddof=1))


def joint_coverage(level: float, events: int) -> float:
    """What can be promised of several events together, each of which holds at `level`: 1 - events (1 - level).

    The union bound. The smallest of the levels, as the paper has it, is a promise only if one event implies the others.
    """
    return max(0.0, 1.0 - events * (1.0 - level))
