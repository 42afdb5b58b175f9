"""Which suite to look at, and where its cells are: the options that `table`, `compare` and `figures` share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ashore.cli.options import UsageError
from ashore.experiments import suite_cells, suite_results
from ashore.experiments.suite_results import Book


@dataclass(frozen=True, kw_only=True)
class BookOptions:
    """Say which suite, and where its cells are."""

    name: Annotated[str, tyro.conf.arg(metavar="NAME"), tyro.conf.Positional]
    """Name of the suite."""
    out: Path = suite_cells.POOL
    """Folder of all cells, as in `ashore suite run`."""
    preset: str | None = None
    """Training preset of the cells; the suite's own if left out."""


def open_book(options: BookOptions, to: Path | None) -> tuple[Book, Path]:
    """What the cells left on disk, and the folder for what is made of it: OUT/PRESET/reports/NAME if left out."""
    try:
        book = suite_results.open_book(options.name, options.out, options.preset)
    except ValueError as mistake:
        raise UsageError(str(mistake)) from mistake
    return book, to or suite_cells.reports(options.out, book.preset, book.name)
