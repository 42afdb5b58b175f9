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
    table = np.asarray(values, np.float64).reshape(-1, np.shape(values)[-1])
    generator = np.random.default_rng(seed)
    rows = generator.integers(0, table.shape[0], (RESAMPLES, table.shape[0]))
    columns = generator.integers(0, table.shape[1], (RESAMPLES, table.shape[1]))
    means = table[rows[:, :, None], columns[:, None, :]].mean(axis=(1, 2))
    tail = 100.0 * (1.0 - LEVEL) / 2.0
    low, high = np.percentile(means, [tail, 100.0 - tail])
    return Estimate(float(table.mean()), float(table.mean(axis=0).std()), float(low), float(high))
