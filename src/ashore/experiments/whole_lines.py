"""A log of JSON lines that a full disk ends, at a whole line; whoever writes it goes on."""

import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class WholeLines:
    """One line per `add`; after the first that did not fit there are no more."""

    def __init__(self, path: Path, lost: Callable[[Path, OSError], object]) -> None:
        self._path, self._lost = path, lost
        # Unbuffered, so that a line is in its file before the next one and nothing is left to fail at the end.
        self._file = path.open("wb", buffering=0)

    def add(self, line: Mapping[str, Any]) -> None:
        """Write one line, or tell `lost` that it did not fit."""
        if self._file.closed:
            return
        whole = self._file.tell()
        rest = json.dumps(line).encode() + b"\n"
        try:
            # What fits is written before the system says that the rest does not.
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as problem:
            self._lost(self._path, problem)
            with contextlib.suppress(OSError), self._file:
                self._file.truncate(whole)

    def close(self) -> None:
        """Give the file back. A disk behind a network may say only now that it is full."""
        try:
            self._file.close()
        except OSError as problem:
            self._lost(self._path, problem)
