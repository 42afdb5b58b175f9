"""What has been computed so far, on disk, so that nothing is computed twice and a stop loses one piece at most.

A piece of work has a name; its result is a handful of arrays in a safetensors file of that name, written beside its
place and renamed. After every new piece the ledger reports progress and asks whether to go on.
"""

import errno
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

Result = dict[str, np.ndarray]


class Paused(Exception):
    """The work was asked to stop and can be taken up again where it is."""


class Progress(NamedTuple):
    """How far the work is."""

    piece: str
    done: int
    """Decisions simulated or found on disk."""
    planned: int
    seconds: float
    """Since the ledger was opened."""
    seconds_left: float


class Ledger:
    """Keeps pieces of work in a folder, or in memory where there is none."""

    def __init__(
        self,
        folder: Path | None = None,
        report: Callable[[Progress], None] = lambda _: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._folder = folder
        self._memory: dict[str, Result] = {}
        self._report = report
        self._stop = stop
        self._begun = time.perf_counter()
        self._done = self._computed = self._planned = 0

    def plan(self, decisions: int) -> None:
        """Say how many decisions the whole work takes, for the time left."""
        self._planned = decisions

    def keep(self, name: str, decisions: int, compute: Callable[[], Mapping[str, Any]]) -> Result:
        """The result of a piece of work: what is kept under its name, or what `compute` gives.

        Raises:
            Paused: there is another piece to compute, and somebody asked to stop after the last one.
        """
        known = self._known(name)
        if known is not None:
            self._done += decisions
            return known
        # The question is asked before a piece and not after it: whoever has just finished is not stopped.
        if self._computed and self._stop():
            raise Paused(name)
        result = {key: np.asarray(value) for key, value in compute().items()}
        self._write(name, result)
        self._computed += decisions
        self._done += decisions
        self._say(name)
        return result

    def _say(self, name: str) -> None:
        seconds = time.perf_counter() - self._begun
        left = max(0, self._planned - self._done)
        self._report(Progress(name, self._done, self._planned, seconds, seconds * left / max(1, self._computed)))

    def _path(self, name: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{name}.safetensors"

    def _known(self, name: str) -> Result | None:
        if self._folder is None:
            return self._memory.get(name)
        try:
            return load_file(self._path(name))
        except (FileNotFoundError, SafetensorError):
            # A damaged piece costs its own time again and nothing else.
            return None

    def _write(self, name: str, result: Result) -> None:
        if self._folder is None:
            self._memory[name] = result
            return
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".unfinished")
        try:
            save_file({key: np.ascontiguousarray(value) for key, value in result.items()}, beside)
        except SafetensorError as problem:
            # Its way to say that the disk is full; the place is what somebody needs to know.
            beside.unlink(missing_ok=True)
            raise OSError(errno.EIO, str(problem), str(path)) from problem
        beside.replace(path)


def in_batches(
    ledger: Ledger,
    stage: str,
    worlds: int,
    at_once: int,
    decisions: int,
    compute: Callable[[np.ndarray], Mapping[str, Any]],
) -> Result:
    """A flat list of worlds, a bounded number at a time, every batch a piece of work of the same shape.

    Args:
        decisions: taken in each world.
        compute: from the worlds' indices to arrays that lead with [world].
    """
    size = min(worlds, at_once)
    parts: list[Result] = []
    for begin in range(0, worlds, size):
        # The last batch is filled up with its last world, so that one compiled program serves all.
        batch = np.minimum(np.arange(begin, begin + size), worlds - 1)
        real = min(size, worlds - begin)
        part = ledger.keep(f"{stage}/{begin // size:04d}", real * decisions, lambda batch=batch: compute(batch))
        parts.append({name: values[:real] for name, values in part.items()})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
