"""Is this world unlike all that were simulated? A running mean of log surprise above every one seen in simulation.

Surprise is the squared error of the dynamics head in the head's own scale. A change makes the posterior wrong for a
while; a strange world stays surprising however long it is learnt, and nothing that was calibrated speaks of it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite, isnan, log
from typing import Any

MEMORY = 64
"""Transitions that the running mean remembers, and that it must have seen before it counts."""
LEAST_SURPRISE, MOST_SURPRISE = 1e-8, 1e12
"""A perfect prediction has no logarithm, and even an overflow is one transition of many."""


@dataclass(frozen=True)
class Strangeness:
    """The running mean; plain numbers, so that it can be kept in a journal."""

    mean: float = 0.0
    seen: int = 0

    def to_json(self) -> dict[str, float | int]:
        return asdict(self)

    def above(self, level: float | None) -> bool:
        """Whether surprise has been above this level for as long as the mean remembers; no level is never passed."""
        return level is not None and self.seen >= MEMORY and self.mean > level


def from_json(content: Mapping[str, Any]) -> Strangeness:
    """The inverse of `to_json`; a ValueError, KeyError or TypeError if it is not one."""
    found = Strangeness(float(content["mean"]), int(content["seen"]))
    if not isfinite(found.mean) or found.seen < 0:
        raise ValueError("The running mean is not one.")
    return found


def after(state: Strangeness, surprise: float) -> Strangeness:
    """The state after one more transition; a surprise that is not a number says nothing."""
    if isnan(surprise):
        return state
    value = log(min(max(surprise, LEAST_SURPRISE), MOST_SURPRISE))
    # The plain mean until the memory is full: the first transition is one of many and not a level to start from.
    rate = 1.0 / min(state.seen + 1, MEMORY)
    return Strangeness(state.mean + rate * (value - state.mean), state.seen + 1)
