"""Means with honest intervals."""

from typing import NamedTuple

import numpy as np

from ashore.types import Array

RESAMPLES = 2000
LEVEL = 0.95


class Estimate(NamedTuple):
    """A mean over environments and how sure of it we are."""

    mean: float
    deviation: float
    """Standard deviation across environments."""
    low: float
    high: float
    """Bootstrap interval of the mean at 95 %."""


def estimate(values: np.ndarray | Array, seed: int = 0) -> Estimate:
    """Mean, spread and bootstrap interval.

    Args:
        values: one number per environment, repetitions already averaged: [..., environment]. Leading axes (training
            seeds) are resampled together with the environments, so that both kinds of luck are in the interval.
    """
    table = _by_seed(values)
    generator = np.random.default_rng(seed)
    rows, columns = _drawn(table.shape[0], generator), _drawn(table.shape[1], generator)
    return _summary(float(table.mean()), table.mean(axis=0), _means(table, rows, columns))


def difference(first: np.ndarray | Array, second: np.ndarray | Array, seed: int = 0) -> Estimate:
    """How much greater the first mean is than the second, in the same environments.

    Environments are drawn for both at once, so that what they have in common cancels; training seeds, which have
    nothing in common, are drawn for each.

    Args:
        first, second: one number per environment, in the same order, as for `estimate`; seeds may differ in number.
    """
    one, other = _by_seed(first), _by_seed(second)
    assert one.shape[1] == other.shape[1], (one.shape, other.shape)
    generator = np.random.default_rng(seed)
    rows, other_rows, columns = (_drawn(count, generator) for count in (len(one), len(other), one.shape[1]))
    resampled = _means(one, rows, columns) - _means(other, other_rows, columns)
    return _summary(float(one.mean() - other.mean()), one.mean(axis=0) - other.mean(axis=0), resampled)


def _by_seed(values: np.ndarray | Array) -> np.ndarray:
    return np.asarray(values, np.float64).reshape(-1, np.shape(values)[-1])


def _drawn(count: int, generator: np.random.Generator) -> np.ndarray:
    """Places of `count` draws out of `count` with replacement, [resample, draw]."""
    return generator.integers(0, count, (RESAMPLES, count))


def _means(table: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    return table[rows[:, :, None], columns[:, None, :]].mean(axis=(1, 2))


def _summary(mean: float, by_environment: np.ndarray, resampled: np.ndarray) -> Estimate:
    tail = 100.0 * (1.0 - LEVEL) / 2.0
    low, high = np.percentile(resampled, [tail, 100.0 - tail])
    return Estimate(mean, float(by_environment.std()), float(low), float(high))
