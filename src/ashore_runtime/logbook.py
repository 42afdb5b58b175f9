"""What one run writes into its journal: how it begins, what happens, what is decided and what is learnt."""

from pathlib import Path
from typing import Any

import numpy as np

from ashore_runtime import journal as journals
from ashore_runtime.bundle import Bundle
from ashore_runtime.clock import Clock
from ashore_runtime.journal import Journal
from ashore_runtime.knowledge import Knowledge
from ashore_runtime.results import ActResult, Evidence

ERROR, MODE, CHANGED = "error", "mode", "changed"
"""What a note can be about."""


class Logbook:
    """Where a run is written down; before `open` and after `close` that is nowhere, and nothing is lost."""

    def __init__(self, bundle: Bundle, clock: Clock) -> None:
        self._bundle, self._clock = bundle, clock
        self.journal: Journal | None = None
        """None writes nothing."""

    def open(self, path: Path, sync: bool, knowledge: Knowledge) -> None:
        """Write from here on, with what is known as the first record; `Refused` where that cannot be done."""
        self.journal = Journal(path, sync)
        self.journal.append_json(journals.BEGIN, self._begin(knowledge), durable=True)

    def close(self) -> None:
        """What was written is complete on disk."""
        if self.journal is not None:
            self.journal.close()
            self.journal = None

    @property
    def lost(self) -> bool:
        """Whether there is a journal and the last record is not in it."""
        return self.journal is not None and self.journal.lost

    @property
    def condition(self) -> str:
        """`none`, `lost` or `ok`."""
        return "none" if self.journal is None else "lost" if self.journal.lost else "ok"

    def note(self, what: str, words: str) -> None:
        """Something happened."""
        if self.journal is not None:
            self.journal.append_json(journals.EVENT, {"what": what, "words": words, "t": self._clock.now()})

    def write_decision(self, result: ActResult, begun: int, observation: np.ndarray) -> None:
        """One more decision, and the last good observation when it was made."""
        if self.journal is None:
            return
        self.journal.append(journals.DECISION, result.pack(begun, observation))

    def write_transition(self, evidence: Evidence, knowledge: Knowledge) -> None:
        """What became of one more transition, and everything that is known since; a full journal is put aside."""
        if self.journal is None:
            return
        content = knowledge.snapshot() | {"used": evidence.used, "reasons": int(evidence.reasons)}
        self.journal.append_json(journals.TRANSITION, content, durable=True)
        if self.journal.full:
            self.journal.rotate(self._begin(knowledge), knowledge.snapshot())

    def _begin(self, knowledge: Knowledge) -> dict[str, Any]:
        return {
            "path": str(self._bundle.path.resolve()),
            "checksum": self._bundle.checksum,
            "state": knowledge.snapshot(),
        }
