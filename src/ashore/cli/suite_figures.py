"""`ashore suite figures NAME`: the figures of a suite, each with the data behind it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ashore.cli.options import UsageError
from ashore.experiments import suite_cells, suite_figures, suite_results


@dataclass(frozen=True, kw_only=True)
class Options:
    """Draw the figures of a suite as PNG, each with its data as CSV, from what its cells left on disk."""

    name: Annotated[str, tyro.conf.arg(metavar="NAME"), tyro.conf.Positional]
    """Name of the suite."""
    out: Path = suite_cells.POOL
    """Folder of all cells, as in `ashore suite run`."""
    preset: str | None = None
    """Training preset of the cells; the suite's own if left out."""
    to: Path | None = None
    """Folder for the figures; OUT/PRESET/reports/NAME if left out."""


def run(options: Options) -> int:
    """Draw what can be drawn, and say where it is and what is missing."""
    try:
        book = suite_results.open_book(options.name, options.out, options.preset)
    except ValueError as mistake:
        raise UsageError(str(mistake)) from mistake
    folder = options.to or suite_cells.reports(options.out, book.preset, book.name)
    paths = suite_figures.write_figures(folder, book)
    for sentence in suite_results.remarks(book):
        print(sentence)
    for path in paths:
        print(f"figure: {path}")
    if not paths:
        print("nothing to draw yet")
    return 0
