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


class AboveCurve(NamedTuple):
    """How far a curve lies above a point, at the point's place along it."""

    place: float
    """Where the curve passes the point, by the numbers of its own points."""
    value: float
    """What the curve has there."""
    mean: float
    low: float
    high: float
    """How much more that is than the point has, and its bootstrap interval at 95 %."""


def above(
    numbers: np.ndarray,
    curve: tuple[np.ndarray, np.ndarray],
    point: tuple[np.ndarray, np.ndarray],
    *,
    paired: bool = False,
    seed: int = 0,
) -> AboveCurve | None:
    """How much more a curve of return over cost has than a single point, at the cost of the point.

    Means over environments make the curve, straight between two of its points, the cost of which must rise or fall all
    the way. Where a resampled point lies beyond the end, the last piece goes on for its own length. Environments are
    drawn for curve and point at once; training seeds for each, and one draw of them for all points of the curve, which
    are the same policies.

    Args:
        numbers: what the curve's points are called, such as their risk levels, [point].
        curve: cost and return, [point, seed, environment].
        point: cost and return, [seed, environment].
        paired: whether the point's seeds are those of the curve, and drawn with them.

    Returns:
        None where the curve does not reach the cost of the point.
    """
    costs, returns = (np.asarray(part, np.float64) for part in curve)
    cost, earned = (_by_seed(part) for part in point)
    assert costs.shape == returns.shape and cost.shape == earned.shape, (costs.shape, cost.shape)
    assert len(costs) == len(numbers) >= 2 and costs.shape[2] == cost.shape[1], (costs.shape, cost.shape)  # noqa: PLR2004
    means = costs.mean(axis=(1, 2))
    assert rises_or_falls(means), means
    if not means.min() <= cost.mean() <= means.max():
        return None
    generator = np.random.default_rng(seed)
    rows, point_rows, columns = (_drawn(count, generator) for count in (costs.shape[1], len(cost), cost.shape[1]))
    point_rows = rows if paired else point_rows
    drawn = [np.stack([_means(table, rows, columns) for table in part], axis=1) for part in (costs, returns)]
    at, beside = (_means(table, point_rows, columns) for table in (cost, earned))
    value = _read_off(means[None], returns.mean(axis=(1, 2))[None], cost.mean()[None])[0]
    place = _read_off(means[None], np.asarray(numbers, np.float64)[None], cost.mean()[None])[0]
    tail = 100.0 * (1.0 - LEVEL) / 2.0
    low, high = np.percentile(_read_off(drawn[0], drawn[1], at) - beside, [tail, 100.0 - tail])
    return AboveCurve(float(place), float(value), float(value - earned.mean()), float(low), float(high))


def rises_or_falls(values: np.ndarray) -> bool:
    """Whether every value is above the one before it, or every one below."""
    steps = np.diff(values)
    return bool(np.all(steps > 0.0) or np.all(steps < 0.0))


def _read_off(costs: np.ndarray, values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The values of piecewise straight curves, [curve, point], each at one cost, [curve]."""
    order = np.argsort(costs, axis=1, kind="stable")
    costs, values = np.take_along_axis(costs, order, axis=1), np.take_along_axis(values, order, axis=1)
    piece = np.clip((costs < at[:, None]).sum(axis=1), 1, costs.shape[1] - 1)[:, None]
    (left, right), (low, high) = (
        (np.take_along_axis(part, piece - 1, axis=1)[:, 0], np.take_along_axis(part, piece, axis=1)[:, 0])
        for part in (costs, values)
    )
    share = np.clip(np.divide(at - left, right - left, out=np.zeros_like(at), where=right > left), -1.0, 2.0)
    return low + share * (high - low)


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
