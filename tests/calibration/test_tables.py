"""Quantiles, bounds and schedules against numbers worked out by hand."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from ashore.calibration import (
    conformal,
    cost_reduction,
    cost_sensitivity,
    estimation_noise,
    latent_error,
    risk_schedule,
)
from ashore.calibration.coverage import by_count, clopper_pearson_lower, coverage
from ashore.calibration.latent_error import Table
from ashore.calibration.risk_level import level_at


def test_a_conformal_quantile_is_an_order_statistic_of_n_plus_one():
    values = np.arange(9.0, 0.0, -1.0)
    # ceil(10 * 0.9) = 9: the largest of nine. ceil(10 * 0.5) = 5: their median. ceil(10 * 0.51) = 6.
    assert conformal.upper(values, 0.9) == 9.0
    assert conformal.upper(values, 0.5) == 5.0
    assert conformal.upper(values, 0.51) == 6.0
    # The mirror image: nine tenths of the next values are not below the smallest of nine.
    assert conformal.lower(values, 0.9) == 1.0
    assert conformal.lower(values, 0.5) == 5.0


def test_too_few_samples_promise_nothing_and_say_so():
    assert conformal.rank(8, 0.9) is None and conformal.rank(9, 0.9) == 9
    assert conformal.fewest(0.9) == 9 and conformal.fewest(0.95) == 19 and conformal.fewest(0.5) == 1
    assert conformal.upper(np.arange(8.0), 0.9) == math.inf
    assert conformal.lower(np.arange(8.0), 0.9) == -math.inf
    assert math.isnan(conformal.standard_error(np.arange(8.0), 0.9))


def test_the_promise_of_a_conformal_quantile_is_kept():
    generator = np.random.default_rng(0)
    draws = generator.exponential(size=(4000, 21))
    kept = [draw[-1] <= conformal.upper(draw[:-1], 0.8) for draw in draws]
    # ceil(21 * 0.8) / 21 = 17 / 21 exactly, for any distribution without ties.
    assert np.mean(kept) == pytest.approx(17 / 21, abs=0.02)


def test_events_together_are_promised_less_than_each_alone():
    assert conformal.joint_coverage(0.9, 3) == pytest.approx(0.7)
    assert conformal.joint_coverage(0.5, 3) == 0.0


@pytest.mark.parametrize(
    ("successes", "trials", "expected"),
    # p^10 = 0.05; p = 0.05^(1/10). The others from tables of the beta distribution: B(0.05; 9, 2), B(0.05; 1, 20).
    [(10, 10, 0.7411), (9, 10, 0.6058), (1, 20, 0.00256), (0, 20, 0.0), (200, 200, 0.98513)],
)
def test_clopper_pearson_has_its_known_values(successes, trials, expected):
    assert clopper_pearson_lower(successes, trials, 0.95) == pytest.approx(expected, abs=5e-5)


def test_worlds_under_the_budget_are_counted():
    found = coverage(np.array([1.0, 2.0, 2.0, 2.5]), 2.0, 0.95)
    assert (found.worlds, found.covered, found.share) == (4, 3, 0.75)
    assert 0.0 < found.lower_bound < 0.75
    with pytest.raises(ValueError, match="cannot be"):
        clopper_pearson_lower(3, 2, 0.95)


def test_costs_are_averaged_between_counts():
    costs = np.arange(12.0).reshape(2, 6)
    # Decisions 0 | 1 | 2, 3 | 4, 5 for the counts 0, 1, 2, 4.
    np.testing.assert_array_equal(by_count(costs, (0, 1, 2, 4)), [[0.0, 6.0], [1.0, 7.0], [2.5, 8.5], [4.5, 10.5]])
    assert np.isnan(by_count(costs, (0, 6))[1]).all()


def test_errors_differences_and_ratios_by_hand():
    latents = np.array([[[0.0, 0.0], [3.0, 4.0]], [[1.0, 1.0], [3.0, 4.0]]])
    reference = np.array([[3.0, 4.0], [3.0, 4.0]])
    errors = latent_error.errors(latents, reference)
    np.testing.assert_allclose(errors, [[5.0, 0.0], [math.sqrt(13.0), 0.0]])
    costs = np.array([[[1.0, 3.0], [2.0, 2.0]], [[2.0, 2.0], [2.0, 2.0]]])
    apart = cost_sensitivity.differences(costs, np.array([[4.0, 4.0], [2.0, 2.0]]))
    np.testing.assert_allclose(apart.signed, [[-2.0, 0.0], [-2.0, 0.0]])
    np.testing.assert_allclose(apart.standard_error, [[1.0, 0.0], [0.0, 0.0]])
    # The second world's belief is the reference: it says nothing about a ratio.
    table, used = cost_sensitivity.lipschitz(np.abs(apart.signed), errors, 0.5)
    np.testing.assert_array_equal(used, [1, 1])
    np.testing.assert_allclose(table.value, [0.4, 2.0 / math.sqrt(13.0)])
    assert np.isnan(cost_sensitivity.differences(costs[..., :1], costs[0][..., :1]).standard_error).all()


def test_an_unknown_ratio_gives_way_to_the_difference_itself():
    ratio, error, direct = np.array([2.0, np.inf]), np.array([3.0, 0.0]), np.array([5.0, 0.25])
    np.testing.assert_array_equal(cost_sensitivity.lipschitz_error(ratio, error, direct), [6.0, 0.25])


def test_reductions_are_paired_and_may_be_negative():
    neutral = np.array([[[3.0, 5.0], [1.0, 1.0]]])
    careful = np.stack([neutral, neutral - 1.0, neutral + np.array([0.0, 2.0])], axis=1)
    gains, error = cost_reduction.reductions(neutral, careful)
    np.testing.assert_allclose(gains, [[[0.0, 0.0], [1.0, 1.0], [-1.0, -1.0]]])
    np.testing.assert_allclose(error[0, :2], 0.0)
    np.testing.assert_allclose(cost_reduction.table(gains, 0.5).value, [[0.0, 1.0, -1.0]])


def test_between_measured_counts_the_smaller_reduction_is_taken():
    measured = Table(np.array([[0.0, 2.0], [0.0, 1.0]]), np.array([[0.0, 0.2], [0.0, 0.1]]))
    everywhere = cost_reduction.at_all_counts(measured, (0, 4), (0, 1, 2, 4, 8))
    np.testing.assert_array_equal(everywhere.value[:, 1], [2.0, 1.0, 1.0, 1.0, 1.0])
    np.testing.assert_array_equal(everywhere.standard_error[:, 1], [0.2, 0.1, 0.1, 0.1, 0.1])


def test_noise_of_measurement_is_taken_out_of_the_spread_between_worlds():
    generator = np.random.default_rng(0)
    worlds = generator.normal(1.0, 0.5, 4000)
    episodes = worlds[:, None] + generator.normal(0.0, 2.0, (4000, 4))
    estimates, errors = episodes.mean(axis=1)[None], cost_sensitivity.paired_error(episodes)[None]
    # The worlds' own 10 % quantile is 1 - 1.2816 * 0.5; that of the estimates has sqrt(0.25 + 1) in its place.
    assert conformal.lower(estimates[0], 0.9) == pytest.approx(1.0 - 1.2816 * math.sqrt(1.25), abs=0.1)
    cleaned = estimation_noise.removed(estimates, errors)
    assert conformal.lower(cleaned[0], 0.9) == pytest.approx(1.0 - 1.2816 * 0.5, abs=0.1)
    assert cleaned.mean() == pytest.approx(estimates.mean())
    # Nothing but noise: what is left is the mean. Unknown noise, or none to be seen: nothing is taken away.
    np.testing.assert_allclose(estimation_noise.removed(np.array([1.0, 3.0]), np.array([9.0, 9.0])), [2.0, 2.0])
    np.testing.assert_array_equal(estimation_noise.removed(np.array([1.0, 3.0]), np.full(2, np.nan)), [1.0, 3.0])
    np.testing.assert_array_equal(estimation_noise.removed(np.ones(2), np.ones(2)), [1.0, 1.0])


ETAS = np.array([0.0, 0.3, 0.6, 0.9])


def test_the_schedule_takes_the_smallest_level_that_is_enough():
    gain = np.tile([0.0, 1.0, 2.0, 3.0], (3, 1))
    schedule = risk_schedule.smallest_feasible(ETAS, gain, np.array([2.5, 0.5, 0.0]))
    np.testing.assert_array_equal(schedule.eta, [0.9, 0.3, 0.0])
    assert not schedule.infeasible.any()


def test_the_schedule_never_rises_and_stays_feasible_where_it_is_raised():
    # At the second count only 0.9 is enough; at the first 0.3 would do, but must not be below its successor's, and 0.6
    # would not do there.
    gain = np.array([[0.0, 1.0, 0.5, 1.5], [0.0, 0.1, 0.2, 1.0]])
    schedule = risk_schedule.smallest_feasible(ETAS, gain, np.array([1.0, 1.0]))
    np.testing.assert_array_equal(schedule.eta, [0.9, 0.9])
    assert not schedule.infeasible.any()


def test_where_nothing_is_enough_the_best_is_used_and_said_to_be_infeasible():
    gain = np.array([[0.0, 2.0, 1.0, -1.0], [0.0, 1.0, 0.5, 0.2], [0.0, -1.0, -2.0, -3.0]])
    schedule = risk_schedule.smallest_feasible(ETAS, gain, np.array([3.0, 0.9, 0.1]))
    # Last count: all caution does harm, so none is used. First: 0.3 gains most.
    np.testing.assert_array_equal(schedule.eta, [0.3, 0.3, 0.0])
    np.testing.assert_array_equal(schedule.infeasible, [True, False, True])
    # A bound that is negative for every level does not mean that caution helps nobody.
    helps = np.array([[0.0, 0.5, 1.0, 0.8]])
    mean_decides = risk_schedule.smallest_feasible(ETAS, gain[2:], np.array([0.1]), helps)
    assert mean_decides.eta.tolist() == [0.6] and mean_decides.infeasible.all()
    unknown = risk_schedule.smallest_feasible(ETAS, gain[:1], np.array([np.inf]))
    assert unknown.infeasible.all()


def test_what_must_be_made_up_for_depends_on_the_rule():
    product, direct = np.array([3.0, 1.0]), np.array([2.0, 2.0])
    np.testing.assert_array_equal(risk_schedule.required("paper", product, direct), product)
    np.testing.assert_array_equal(risk_schedule.required("direct", product, direct), direct)
    np.testing.assert_array_equal(risk_schedule.required("max", product, direct), [3.0, 2.0])


def test_the_budget_rule_reads_the_cost_itself():
    costs = np.array([[12.0, 11.0, 9.0, 8.0], [9.5, 9.0, 8.0, 7.0], [12.0, 12.0, 12.0, 11.0]])
    schedule = risk_schedule.within_budget(ETAS, costs[:2], 10.0)
    np.testing.assert_array_equal(schedule.eta, [0.6, 0.0])
    assert risk_schedule.within_budget(ETAS, costs, 10.0).infeasible.tolist() == [False, False, True]


def test_a_level_is_held_until_the_next_count_is_reached():
    levels, belief = jnp.array([0.9, 0.6, 0.3]), jnp.zeros(2)
    held = [float(level_at((0, 4, 16), levels, jnp.int32(seen), belief)) for seen in (0, 3, 4, 15, 16, 1000)]
    assert held == pytest.approx([0.9, 0.9, 0.6, 0.6, 0.3, 0.3])
