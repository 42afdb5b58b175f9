"""What a run leaves behind while it goes: one line of JSON per chunk, and TensorBoard files beside it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter

METRICS = "metrics.jsonl"
_BOARD = "tensorboard"

Row = dict[str, Any]
"""Counters as numbers, metrics as lists with one number per seed, None where there is none yet."""


def read(run: Path) -> Iterator[Row]:
    """The rows of a run so far; a last line that was cut short by a crash is left out."""
    path = run / METRICS
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return


class Records:
    """Writes rows; opened at a step, it forgets what an earlier attempt wrote beyond it."""

    def __init__(self, run: Path, step: int) -> None:
        kept = [row for row in read(run) if row["decisions"] <= step]
        run.mkdir(parents=True, exist_ok=True)
        (run / METRICS).write_text("".join(json.dumps(row) + "\n" for row in kept))
        self._file = (run / METRICS).open("a")
        self._board = SummaryWriter(str(run / _BOARD), purge_step=step + 1)

    def write(self, row: Row) -> None:
        """Append one row; it is on its way to the disk when this returns."""
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        for name, value in row.items():
            if isinstance(value, list):
                known = ((seed, number) for seed, number in enumerate(value) if number is not None)
                for seed, number in known:
                    self._board.add_scalar(f"{name}/seed_{seed}", number, row["decisions"])

    def close(self) -> None:
        """Finish both files."""
        self._file.close()
        self._board.close()
