"""eta(N): the smallest risk level whose measured cost reduction makes up for what is not known yet.

    eta(N) = min { eta on the grid: Delta_c(eta | N) >= what it must reach at N },   never rising with N

The counts are gone through from the last to the first: each takes the smallest feasible level that is not below its
successor's. Delta_c need not rise with eta, so raising a level afterwards could lose what made it feasible. Where no
level is feasible, the one with the largest mean reduction is used and the count is marked. The mean and not the bound
decides there: a bound for nine worlds in ten can be negative for every level that helps most of them, and no caution at
all would then look best just where the most is needed.
"""

from typing import NamedTuple

import numpy as np

RULES = ("world", "budget", "max", "paper", "direct")
"""What caution must reach: see `world_schedule`, `within_budget`, and `required` for the last three."""


class Schedule(NamedTuple):
    """Risk level by count."""

    eta: np.ndarray
    infeasible: np.ndarray
    """Counts at which no level of the grid is enough: the level there is the best there is, and not enough."""


def required(rule: str, lipschitz_error: np.ndarray, direct: np.ndarray) -> np.ndarray:
    """What the cost reduction must reach, by count.

    Args:
        rule: `paper` asks for L_c epsilon, `direct` for the quantile of |dJ_c|, `max` for the greater of the two.
        lipschitz_error: L_c(N) epsilon(N).
        direct: |dJ_c|(N).
    """
    if rule == "paper":
        return lipschitz_error
    return direct if rule == "direct" else np.maximum(lipschitz_error, direct)


def smallest_feasible(
    etas: np.ndarray, gain: np.ndarray, needed: np.ndarray, mean_gain: np.ndarray | None = None
) -> Schedule:
    """The schedule.

    Args:
        etas: the grid, rising.
        gain: what each level gains at each count, [count, eta]: a bound.
        needed: what must be gained, [count]; infinite where nothing could be measured.
        mean_gain: what each level gains on average, [count, eta]; `gain` if left out.
    """
    expected = gain if mean_gain is None else mean_gain
    assert gain.shape == expected.shape == (len(needed), len(etas)), (gain.shape, expected.shape, needed.shape)
    chosen = np.zeros(len(needed), int)
    infeasible = np.zeros(len(needed), bool)
    least = 0
    for count in reversed(range(len(needed))):
        enough = np.flatnonzero(gain[count, least:] >= needed[count])
        infeasible[count] = not np.isfinite(needed[count]) or not len(enough)
        least += int(np.argmax(expected[count, least:]) if infeasible[count] else enough[0])
        chosen[count] = least
    return Schedule(np.asarray(etas)[chosen], infeasible)


def within_budget(etas: np.ndarray, costs: np.ndarray, budget: float, mean_gain: np.ndarray | None = None) -> Schedule:
    """Beyond the paper, the rule `budget`: the smallest level at which the cost itself stays under the budget.

    The paper's condition asks caution to make up for the whole effect of not knowing the world, as if the policy spent
    its budget to the last cent where it does know it. This one also counts what the policy leaves unspent.

    Args:
        costs: cost that an environment does not exceed, [count, eta], in the budget's unit.
        mean_gain: as in `smallest_feasible`.
    """
    return smallest_feasible(etas, -costs, np.full(len(costs), -budget), mean_gain)
