"""What a run leaves behind while it goes: one line of JSON per chunk, and TensorBoard files beside it.

Weights & Biases gets the same rows where it is asked for by name; nothing leaves the machine otherwise.
"""

import importlib
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

    def __init__(self, run: Path, step: int, wandb_project: str | None = None) -> None:
        kept = [row for row in read(run) if row["decisions"] <= step]
        run.mkdir(parents=True, exist_ok=True)
        (run / METRICS).write_text("".join(json.dumps(row) + "\n" for row in kept))
        self._file = (run / METRICS).open("a")
        self._board = SummaryWriter(str(run / _BOARD), purge_step=step + 1)
        self._wandb = None if wandb_project is None else _wandb_run(wandb_project, run)

    def write(self, row: Row) -> None:
        """Append one row; it is on its way to the disk when this returns."""
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        scalars = {
            f"{name}/seed_{seed}": number
            for name, value in row.items()
            if isinstance(value, list)
            for seed, number in enumerate(value)
            if number is not None
        }
        for name, number in scalars.items():
            self._board.add_scalar(name, number, row["decisions"])
        if self._wandb is not None:
            self._wandb.log(scalars, step=row["decisions"])

    def close(self) -> None:
        """Finish what was opened."""
        self._file.close()
        self._board.close()
        if self._wandb is not None:
            self._wandb.finish()


def require_wandb() -> Any:
    """The wandb package, or a sentence that says how to get it."""
    try:
        return importlib.import_module("wandb")
    except ImportError:
        raise ValueError("Logging to Weights & Biases needs its package: pip install wandb.") from None


def _wandb_run(project: str, run: Path) -> Any:
    """A Weights & Biases run that goes on where an earlier one of the same folder stopped."""
    config = json.loads((run / "config.json").read_text()) if (run / "config.json").exists() else {}
    name = run.resolve().name
    return require_wandb().init(project=project, name=name, id=name, config=config, dir=str(run), resume="allow")
