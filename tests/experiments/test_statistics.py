"""Intervals that cover what they say they cover."""

import numpy as np
import pytest

from ashore.experiments.statistics import estimate


def test_mean_and_spread_across_environments_by_hand():
    # Two seeds, three environments: means per environment 2, 3, 4; their standard deviation sqrt(2/3).
    result = estimate(np.array([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]]))
    assert result.mean == pytest.approx(3.0)
    assert result.deviation == pytest.approx(np.sqrt(2.0 / 3.0))
    assert result.low < 3.0 < result.high


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(100)
    covered = []
    for trial in range(600):
        result = estimate(generator.normal(size=(1, 64)), seed=trial)
        covered.append(result.low <= 0.0 <= result.high)
    # The percentile bootstrap of 64 numbers is a little too narrow: 93.4 % in 2400 trials. Three standard errors of 600
    # trials are 3 %.
    assert 0.90 <= np.mean(covered) <= 0.97


def test_no_spread_gives_no_width():
    result = estimate(np.full((2, 8), 7.0))
    assert (result.mean, result.deviation, result.low, result.high) == (7.0, 0.0, 7.0, 7.0)
