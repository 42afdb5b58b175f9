"""Fuel, jerk and oscillation against hand-computed points and an analytic speed trace."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.environments.platoon import metrics
from ashore.environments.platoon.c_rules import episode_metrics
from ashore.environments.platoon.rules import Moment
from ashore.types import Array

PERIOD = 0.05


@pytest.mark.parametrize(
    ("speed", "acceleration", "rate"),
    [
        (0.0, 0.0, 0.1569),
        # 0.1569 + 0.245 - 0.07415 + 0.05975
        (10.0, 0.0, 0.3875),
        # ... + 1 x (0.07224 + 0.9681 + 0.1075)
        (10.0, 1.0, 1.53534),
        # 0.1569 + 0.49 - 0.2966 + 0.478, and 2 x (0.07224 + 1.9362 + 0.43)
        (20.0, 2.0, 5.70518),
        # No more than idling while slowing down.
        (20.0, -0.01, 0.1),
        # A rounding error is no slowing down: 0.1569 + 0.49 - 0.2966 + 0.478.
        (20.0, -1e-5, 0.8283),
    ],
)
def test_fuel_by_hand(speed: float, acceleration: float, rate: float) -> None:
    measured = float(metrics.fuel_rate(jnp.float32(speed), jnp.float32(acceleration)))
    assert measured == pytest.approx(rate, rel=1e-5)


def moments_of(ego: np.ndarray, lead: np.ndarray, gap: np.ndarray) -> np.ndarray:
    """Moments [decisions, 9] after each decision, from speeds that also hold the start."""
    columns: list[np.ndarray] = []
    for speed in (ego, lead):
        acceleration = np.diff(speed) / PERIOD
        jerk = np.diff(acceleration, prepend=acceleration[0]) / PERIOD
        columns += [speed[1:], acceleration, jerk]
    return np.stack([*columns, gap, ego[1:], np.full_like(gap, 50.0)], axis=1)


@jax.jit
def summary(moments: Array) -> dict[str, Array]:
    first = Moment(*moments[0])
    totals, _ = jax.lax.scan(
        lambda totals, row: (metrics.add(totals, Moment(*row), PERIOD), None), metrics.begin(first), moments
    )
    return metrics.summarise(totals)


def test_a_sine_speed_trace() -> None:
    # v = 10 + A sin(w t) with w = 2 pi / 10 s over five periods; the car ahead swings twice as far.
    times = PERIOD * np.arange(1001)
    omega = 2 * np.pi / 10
    swing = np.sin(omega * times)
    gap = 20.0 + 21.0 * np.cos(omega * times[1:])
    moments = moments_of(10 + 2 * swing, 10 + 4 * swing, gap)
    figures = summary(jnp.asarray(moments, jnp.float32))
    assert float(figures["oscillation_ratio"]) == pytest.approx(0.5, rel=1e-4)
    # j = -A w^2 sin(w t): the integral of j^2 is A^2 w^4 T / 2 = 4 x 0.155855 x 25, that of |j| is A w^2 T 2 / pi.
    assert float(figures["jerk_squared_integral"]) == pytest.approx(15.585, rel=4e-3)
    assert float(figures["jerk_abs_integral"]) == pytest.approx(25.133, rel=4e-3)
    assert float(figures["mean_speed"]) == pytest.approx(10.0, abs=1e-4)
    assert float(figures["min_gap"]) == pytest.approx(-1.0, abs=1e-4)
    # cos < -20 / 21 for a share acos(20 / 21) / pi = 0.0986 of the time: 19.7 of 200 decisions, in each of 5 periods.
    assert float(figures["collisions"]) == pytest.approx(98.6, abs=5)
    again = episode_metrics(moments, 41.0, PERIOD)
    assert set(again) == set(figures)
    for name, figure in figures.items():
        assert float(figure) == pytest.approx(again[name], rel=2e-4), name


def test_a_small_swing_at_a_high_speed_survives_float32() -> None:
    # The difference of two float32 sums of squares near 1000 x 30^2 resolves a variance no better than 6e-5; the ratio
    # of these two, 5e-5 and 2e-4, would be noise.
    swing = np.sin(2 * np.pi * PERIOD * np.arange(1001) / 10)
    moments = moments_of(30 + 0.01 * swing, 30 + 0.02 * swing, np.full(1000, 20.0))
    figures = summary(jnp.asarray(moments, jnp.float32))
    assert float(figures["oscillation_ratio"]) == pytest.approx(0.5, rel=2e-3)


def test_nothing_has_happened_yet() -> None:
    moment = Moment(*(jnp.float32(value) for value in (5, 0, 0, 5, 0, 0, 9, 5, 8)))
    figures = metrics.summarise(metrics.begin(moment))
    assert all(np.isfinite(float(figure)) for figure in figures.values())
    assert float(figures["min_gap"]) == 8.0
