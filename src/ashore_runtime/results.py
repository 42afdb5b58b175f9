"""What a runtime answers: one decision, and what became of one transition."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ashore_runtime import journal
from ashore_runtime.modes import Mode
from ashore_runtime.reasons import Reason

NOMINAL, REFINED, HELD, FALLBACK = "nominal", "refined", "held", "fallback"
SOURCES = (NOMINAL, REFINED, HELD, FALLBACK)
"""Where an action can come from."""


@dataclass(frozen=True)
class ActResult:
    """One decision. `np.asarray(result)` is its action."""

    action: np.ndarray
    source: str
    """`nominal`, `refined`, `held` or `fallback`."""
    reasons: Reason
    q_c: float
    """Q_c^eta of `action`, discounted cost; NaN where nothing was evaluated."""
    q_c_nominal: float
    eta: float
    z_mean: np.ndarray
    z_std: np.ndarray
    n_real: int
    """Transitions behind the posterior."""
    k_used: int
    k_max: int
    t_total_ns: int
    deadline_ns: int
    """Monotonic instant; a very large number is no deadline."""
    mode: Mode

    @property
    def missed(self) -> bool:
        """Whether the answer came after the deadline."""
        return Reason.DEADLINE_MISSED in self.reasons

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The action; `copy` is for NumPy 2, and without it a view may be given."""
        action = self.action if dtype is None else self.action.astype(dtype)
        return action.copy() if copy else action

    def pack(self, begun: int, observation: np.ndarray) -> bytes:
        """The decision as a journal keeps it; `recorded_decisions` reads it back."""
        numbers = (begun, self.eta, self.q_c, self.k_used, SOURCES.index(self.source), int(self.reasons))
        return journal.pack(*numbers, observation, self.action)


class RecordedDecision(NamedTuple):
    """What a journal knows about one decision."""

    begun: int
    """Monotonic time in ns."""
    eta: float
    q_c: float
    k_used: int
    source: str
    reasons: Reason
    observation: np.ndarray
    """The last good observation when it was made; the one it rests on, unless the source is `held`."""
    action: np.ndarray


def recorded_decisions(path: Path, observation: int) -> Iterator[RecordedDecision]:
    """All decisions in a journal, for observations of this length."""
    for record in journal.records(path):
        if record.kind == journal.DECISION:
            begun, eta, q_c, steps, source, reasons, *rest = journal.unpack(record.body).tolist()
            values = np.array(rest, np.float32)
            yield RecordedDecision(
                int(begun),
                eta,
                q_c,
                int(steps),
                SOURCES[int(source)],
                Reason(int(reasons)),
                values[:observation],
                values[observation:],
            )


class Evidence(NamedTuple):
    """What became of one transition."""

    used: bool
    """It is part of the posterior now."""
    reasons: Reason
    changed: bool
    """The world has changed; everything learnt before was forgotten."""
    surprise: float
    """Squared prediction error in the dynamics head's scale; NaN where nothing is predicted."""
    n_real: int
    eta: float
