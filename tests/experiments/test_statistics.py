"""Intervals that cover what they say they cover."""

import numpy as np
import pytest

from ashore.experiments.statistics import above, difference, estimate, rises_or_falls


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


LEVELS, CURVE = np.array([0.0, 0.5, 1.0]), np.array([20.0, 16.0, 10.0])
"""Costs at three levels; every unit of cost earns 10."""


def curve(worlds: np.ndarray, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    costs = CURVE[:, None, None] + worlds + seeds[:, None]
    return costs, 10.0 * costs + 5.0


def test_a_point_is_compared_with_the_curve_at_its_own_cost_by_hand():
    # A cost of 13 is halfway between the levels 0.5 and 1, where the curve has 135.
    flat = np.zeros((1, 8))
    found = above(LEVELS, curve(np.zeros(8), np.zeros(2)), (13.0 + flat, 130.0 + flat))
    assert found == pytest.approx((0.75, 135.0, 5.0, 5.0, 5.0))


def test_what_worlds_give_to_curve_and_point_alike_cancels():
    # Rich worlds and poor ones: drawn for each, they would make the interval tens wide.
    riches = np.random.default_rng(4).normal(scale=100.0, size=64)
    costs, returns = curve(np.zeros(64), np.zeros(1))
    flat = np.zeros((1, 64))
    found = above(LEVELS, (costs, returns + riches), (13.0 + flat, 130.0 + flat + riches))
    assert found is not None
    assert (found.mean, found.low, found.high) == (pytest.approx(5.0), pytest.approx(5.0), pytest.approx(5.0))


def test_all_points_of_the_curve_have_the_same_draw_of_seeds():
    # Three seeds that earn 1 less, as much, and 1 more everywhere. All draws are the poorest once in 27, which is more
    # than the 2.5 % beyond the interval's end; two points with draws of their own would both have them once in 729.
    costs, returns = curve(np.zeros(4), np.zeros(3))
    returns = returns + np.array([-1.0, 0.0, 1.0])[:, None]
    flat = np.zeros((1, 4))
    found = above(LEVELS, (costs, returns), (13.0 + flat, 130.0 + flat))
    assert found is not None and (found.low, found.high) == (pytest.approx(4.0), pytest.approx(6.0))


def test_seeds_of_the_point_are_drawn_with_the_curve_where_they_are_the_same():
    # The point is the curve's own at level 0.5.
    costs, returns = curve(np.zeros(4), np.zeros(2))
    returns = returns + np.array([-2.0, 2.0])[:, None]
    own = (costs[1], returns[1])
    paired, apart = (above(LEVELS, (costs, returns), own, paired=paired) for paired in (True, False))
    assert paired is not None and apart is not None
    assert paired == pytest.approx((0.5, 165.0, 0.0, 0.0, 0.0))
    assert (apart.mean, apart.low, apart.high) == (pytest.approx(0.0), pytest.approx(-4.0), pytest.approx(4.0))


def test_a_draw_beyond_the_end_goes_on_along_the_last_piece():
    # Half of the point's seeds pay 9, where the curve would have 95, and half 11.
    point = np.array([[9.0] * 4, [11.0] * 4]), np.full((2, 4), 100.0)
    found = above(LEVELS, curve(np.zeros(4), np.zeros(1)), point)
    assert found is not None and found.value == pytest.approx(105.0)
    assert (found.low, found.high) == (pytest.approx(-5.0), pytest.approx(15.0))


@pytest.mark.parametrize(
    ("values", "does"),
    [([1.0, 2.0, 3.0], True), ([3.0, 2.0, 0.0], True), ([1.0, 1.0], False), ([20.0, 14.0, 16.0], False)],
)
def test_a_curve_is_one_only_where_it_rises_or_falls(values, does):
    assert rises_or_falls(np.array(values)) == does


@pytest.mark.parametrize("cost", [9.9, 20.1])
def test_a_cost_that_the_curve_never_has_is_compared_with_nothing(cost):
    assert above(LEVELS, curve(np.zeros(4), np.zeros(1)), (np.full((1, 4), cost), np.ones((1, 4)))) is None


def test_the_interval_above_a_curve_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(102)
    covered = []
    for trial in range(300):
        worlds = generator.normal(size=64)
        costs, returns = curve(worlds, np.zeros(1))
        noisy = costs + generator.normal(size=costs.shape), returns + generator.normal(size=costs.shape)
        cost, earned = 13.0 + worlds[None], 130.0 + 10.0 * worlds[None]
        found = above(LEVELS, noisy, (cost + generator.normal(size=(1, 64)), earned), seed=trial)
        assert found is not None
        covered.append(found.low <= 5.0 <= found.high)
    # Three standard errors of 300 trials are 4 %.
    assert 0.89 <= np.mean(covered) <= 0.98
