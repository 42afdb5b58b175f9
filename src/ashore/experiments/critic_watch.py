"""Does the cost critic expect what is really paid? Asked while a run trains, of the numbers that it logs anyway.

A policy can look healthy with a cost critic that has died, where its actor is taught by something else: the returns are
fine, and what is careful by that critic afterwards is careful about nothing.
"""

from collections import deque

from ashore.budget import Budget
from ashore.experiments.records import Row

FACTOR = 3.0
"""How many times too much or too little is worth a word. Runs that went well end between 0.8 and 1.6."""
_ROWS = 5
"""Rows over which both are averaged: the cost of a few episodes is noisy."""


def ratio(row: Row, budget: Budget) -> list[float | None]:
    """Expected over paid cost, per seed; None where nothing is paid or nothing is expected yet.

    Args:
        row: one line of metrics.
        budget: discounted as the critic is.
    """
    if "q_cost" not in row:
        return []
    charged = row.get("penalty_rate", [0.0] * len(row["q_cost"]))
    per_episode = budget.decisions_per_episode * (1.0 - budget.discount)
    found = []
    for expected, cost, extra in zip(row["q_cost"], row["cost_rate"], charged, strict=True):
        if expected is None or cost is None or extra is None or cost + extra <= 0.0:
            found.append(None)
        else:
            found.append(expected * per_episode / (cost + extra))
    return found


class CriticWatch:
    """Looks at every row and speaks once per seed, in the second half of a run."""

    def __init__(self, budget: Budget, decisions: int) -> None:
        """Args:
        budget: discounted as the critic is.
        decisions: how long the whole run is.
        """
        self._budget, self._decisions = budget, decisions
        self._recent: deque[list[float | None]] = deque(maxlen=_ROWS)
        self._told: set[int] = set()

    def sentences(self, row: Row) -> list[str]:
        """What there is to say after this row."""
        self._recent.append(ratio(row, self._budget))
        if len(self._recent) < _ROWS or row["decisions"] < 0.5 * self._decisions:
            return []
        said = []
        for seed, values in enumerate(zip(*self._recent, strict=True)):
            known = [value for value in values if value is not None]
            if seed in self._told or len(known) < _ROWS:
                continue
            mean = sum(known) / _ROWS
            if not 1.0 / FACTOR <= mean <= FACTOR:
                self._told.add(seed)
                said.append(
                    f"The cost critic of seed {seed} expects {mean:.2g} times what is paid: do not trust refinement "
                    "or anything else that asks it; a lower learning_rate may help."
                )
        return said
