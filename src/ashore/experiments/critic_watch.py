"""Does the cost critic expect what is really paid? Asked while a run trains, of the numbers that it logs anyway.

A policy can look healthy with a cost critic that has died, where its actor is taught by something else: the returns are
fine, and what is careful by that critic afterwards is careful about nothing.
"""

from collections import deque
from typing import NamedTuple

from ashore.budget import Budget
from ashore.experiments.records import Row

FACTOR = 3.0
"""How many times too much or too little is worth a word. Runs that went well end between 0.8 and 1.6."""
_ROWS = 12
"""Rows over which both are averaged: a few episodes are noisy, and a policy that changes is ahead of its critic."""
_LITTLE = 0.1
"""Share of the budget below which both are too small to be compared."""


class Costs(NamedTuple):
    """Discounted cost of one seed in one row of metrics."""

    expected: float
    paid: float


def costs(row: Row, budget: Budget) -> list[Costs | None]:
    """What is expected and what is paid, per seed; None where one of them is not known yet.

    Args:
        row: one line of metrics.
        budget: discounted as the critic is.
    """
    if "q_cost" not in row:
        return []
    charged = row.get("penalty_rate", [0.0] * len(row["q_cost"]))
    per_episode = budget.decisions_per_episode * (1.0 - budget.discount)
    return [
        None if expected is None or cost is None or extra is None else Costs(expected, (cost + extra) / per_episode)
        for expected, cost, extra in zip(row["q_cost"], row["cost_rate"], charged, strict=True)
    ]


class CriticWatch:
    """Looks at every row and speaks once per seed, in the second half of a run."""

    def __init__(self, budget: Budget, decisions: int) -> None:
        """Args:
        budget: discounted as the critic is.
        decisions: how long the whole run is.
        """
        self._budget, self._decisions = budget, decisions
        self._recent: deque[list[Costs | None]] = deque(maxlen=_ROWS)
        self._told: set[int] = set()

    def sentences(self, row: Row) -> list[str]:
        """What there is to say after this row."""
        found = costs(row, self._budget)
        if not found:
            return []
        self._recent.append(found)
        if len(self._recent) < _ROWS or row["decisions"] < 0.5 * self._decisions:
            return []
        said = []
        for seed, values in enumerate(zip(*self._recent, strict=True)):
            known = [value for value in values if value is not None]
            if seed in self._told or len(known) < _ROWS:
                continue
            expected, paid = (sum(column) / _ROWS for column in zip(*known, strict=True))
            if max(expected, paid) < _LITTLE * self._budget.discounted:
                continue
            if not paid / FACTOR <= expected <= paid * FACTOR:
                self._told.add(seed)
                said.append(
                    f"The cost critic of seed {seed} expects {expected:.2g} (discounted) where {paid:.2g} is paid: do "
                    "not trust refinement or anything else that asks it; a lower learning_rate may help."
                )
        return said
