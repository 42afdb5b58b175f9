import pytest

from ashore.budget import Budget


def test_the_three_units_of_the_papers_threshold():
    # 25 per 1000 env steps, action repeat 4: 250 decisions, 25 / 250 = 0.1 each, 0.1 / (1 - 0.99) = 10 discounted.
    budget = Budget(per_episode=25.0, decisions_per_episode=250, discount=0.99)
    assert budget.per_decision == pytest.approx(0.1)
    assert budget.discounted == pytest.approx(10.0)


def test_a_longer_episode_with_the_same_rate_has_the_same_discounted_budget():
    short, long = Budget(25.0, 250), Budget(100.0, 1000)
    assert short.per_decision == long.per_decision
    assert short.discounted == long.discounted


def test_the_discounted_budget_is_the_sum_of_spending_at_its_rate_for_ever():
    budget = Budget(per_episode=20.0, decisions_per_episode=1000, discount=0.9)
    spent = sum(budget.per_decision * 0.9**decision for decision in range(1000))
    assert budget.discounted == pytest.approx(spent)


@pytest.mark.parametrize(
    ("per_episode", "decisions", "discount", "complaint"),
    [
        (0.0, 250, 0.99, "must be positive"),
        (-1.0, 250, 0.99, "must be positive"),
        (float("nan"), 250, 0.99, "must be positive"),
        (25.0, 0, 0.99, "at least one decision"),
        (25.0, 250, 1.0, r"must be in \[0, 1\)"),
        (25.0, 250, -0.1, r"must be in \[0, 1\)"),
    ],
)
def test_a_budget_that_means_nothing_is_refused(per_episode, decisions, discount, complaint):
    with pytest.raises(ValueError, match=complaint):
        Budget(per_episode, decisions, discount)
