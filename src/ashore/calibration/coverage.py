"""Does it hold? The share of unseen worlds whose realised cost stays under the budget, and what that share proves."""

import math
from typing import NamedTuple

import numpy as np

_HALVINGS = 200


class Coverage(NamedTuple):
    """How many held-out worlds stayed under the budget."""

    worlds: int
    covered: int
    share: float
    lower_bound: float
    """The true share is at least this, at the stated confidence."""
    confidence: float


def coverage(costs: np.ndarray, budget: float, confidence: float) -> Coverage:
    """Count the worlds whose mean cost is within the budget.

    Args:
        costs: realised mean cost of each world, in the budget's unit, [world].
    """
    covered = int(np.sum(costs <= budget))
    bound = clopper_pearson_lower(covered, len(costs), confidence)
    return Coverage(len(costs), covered, covered / len(costs), bound, confidence)


def clopper_pearson_lower(successes: int, trials: int, confidence: float) -> float:
    """The smallest success probability that is not refuted: P(X >= successes | p) = 1 - confidence, one-sided."""
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"{successes} successes in {trials} trials cannot be.")
    if successes == 0:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if _at_least(successes, trials, middle) < 1.0 - confidence:
            low = middle
        else:
            high = middle
    return low


def _at_least(successes: int, trials: int, chance: float) -> float:
    """P(X >= successes) of a binomial; in logarithms, because the coefficients overflow."""
    if chance in (0.0, 1.0):
        return chance
    return math.fsum(
        math.exp(
            math.lgamma(trials + 1)
            - math.lgamma(count + 1)
            - math.lgamma(trials - count + 1)
            + count * math.log(chance)
            + (trials - count) * math.log1p(-chance)
        )
        for count in range(successes, trials + 1)
    )


def by_count(costs: np.ndarray, counts: tuple[int, ...]) -> np.ndarray:
    """Mean cost while N runs from each count to the next, [count, world].

    Args:
        costs: cost of every decision, [world, decision]; decision i is taken after i transitions.
    """
    ends = [*counts[1:], max(costs.shape[1], counts[-1] + 1)]
    parts = [costs[:, begin:end] for begin, end in zip(counts, ends, strict=True)]
    return np.stack([part.mean(axis=1) if part.shape[1] else np.full(len(costs), np.nan) for part in parts])
