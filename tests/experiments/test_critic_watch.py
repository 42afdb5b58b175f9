"""A cost critic that has died is noticed, and one that is about right is not talked about."""

from collections.abc import Sequence

import pytest

from ashore.budget import Budget
from ashore.experiments import critic_watch, records
from ashore.experiments.critic_watch import CriticWatch

# 20 per 1000 decisions at 0.99: 2 discounted, a tenth of what an episode costs.
BUDGET = Budget(20.0, 1000, 0.99)


def row(
    decisions: int, expected: Sequence[float | None], paid: Sequence[float | None], **more: list[float]
) -> records.Row:
    return {"decisions": decisions, "q_cost": expected, "cost_rate": paid, **more}


def test_expected_and_paid_are_in_one_unit() -> None:
    found = critic_watch.costs(row(1, [1.8, 0.1], [18.0, 20.0]), BUDGET)
    assert found == [pytest.approx((1.8, 1.8)), pytest.approx((0.1, 2.0))]


def test_what_a_method_charges_beside_the_cost_counts_as_paid() -> None:
    assert critic_watch.costs(row(1, [1.8], [12.0], penalty_rate=[6.0]), BUDGET) == [pytest.approx((1.8, 1.8))]


def test_nothing_is_said_where_a_number_is_missing() -> None:
    assert critic_watch.costs(row(1, [None, 1.0], [10.0, None]), BUDGET) == [None, None]
    watch = CriticWatch(BUDGET, 1000)
    rows = [{"decisions": 1000}, row(1000, [0.1], [18.0])] * 11
    assert [sentence for one in rows for sentence in watch.sentences(one)] == []


def told(expected: list[float], paid: list[float], rows: int = 20) -> list[str]:
    watch = CriticWatch(BUDGET, 1000)
    return [sentence for index in range(rows) for sentence in watch.sentences(row(50 * (index + 1), expected, paid))]


def test_a_dead_critic_is_named_once_by_its_seed() -> None:
    sentences = told([1.8, 0.1], [18.0, 18.0])
    assert len(sentences) == 1
    assert "seed 1 expects 0.1 (discounted) where 1.8 is paid" in sentences[0]


@pytest.mark.parametrize("expected", [0.61, 1.8, 5.3])
def test_a_critic_within_a_factor_of_three_is_left_alone(expected: float) -> None:
    assert told([expected], [18.0]) == []


def test_one_that_expects_too_much_is_named_too() -> None:
    assert "expects 5.6 (discounted) where 1.8" in told([5.6], [18.0])[0]


def test_a_policy_that_pays_next_to_nothing_is_left_alone() -> None:
    # A tenth of the budget of 2 is 0.2.
    assert told([0.15], [0.0]) == [] and told([0.002], [0.005]) == []
    assert "expects 0.25 (discounted) where 0 is paid" in told([0.25], [0.0])[0]


def test_a_critic_that_has_not_had_time_to_learn_is_given_it() -> None:
    assert told([0.01], [18.0], rows=11) == []
    assert len(told([0.01], [18.0], rows=12)) == 1


@pytest.mark.parametrize(("expected", "paid"), [(20.0, 18.0), (1.8, 0.5)])
def test_one_row_out_of_line_is_noise(expected: float, paid: float) -> None:
    watch = CriticWatch(BUDGET, 100)
    assert not any(watch.sentences(row(100, [1.8], [18.0])) for _ in range(11))
    assert watch.sentences(row(100, [expected], [paid])) == []
