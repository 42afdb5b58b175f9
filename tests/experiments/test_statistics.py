"""Intervals that cover what they say they cover."""

import numpy as np
import pytest

from ashore.experiments.statistics import difference, estimate


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


def test_what_environments_have_in_common_cancels_and_what_seeds_have_not_stays():
    generator = np.random.default_rng(3)
    worlds = generator.normal(scale=10.0, size=(1, 64))
    pairs = difference(worlds + np.array([[1.0], [3.0]]), worlds)
    # Two seeds, 1 and 3 above: the mean is 2, and two draws of them are both low or both high once in four each.
    assert pairs.mean == pytest.approx(2.0) and pairs.deviation == pytest.approx(0.0, abs=1e-9)
    assert (pairs.low, pairs.high) == (pytest.approx(1.0), pytest.approx(3.0))
    alone = estimate(worlds)
    assert alone.high - alone.low > 3.0


def test_the_interval_of_a_difference_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(101)
    covered = []
    for trial in range(600):
        worlds = generator.normal(size=(1, 64))
        one, other = (worlds + generator.normal(size=(1, 64)) for _ in range(2))
        result = difference(one + 0.5, other, seed=trial)
        covered.append(result.low <= 0.5 <= result.high)
    # As above.
    assert 0.90 <= np.mean(covered) <= 0.97
