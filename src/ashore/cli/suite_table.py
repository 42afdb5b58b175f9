"""`ashore suite table NAME`: the numbers of a suite beside the paper's, from what its cells left on disk."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ashore.cli.options import UsageError
from ashore.experiments import suite_cells, suite_results, suite_tables


@dataclass(frozen=True, kw_only=True)
class Options:
    """Write the tables of a suite as Markdown, CSV and JSON; cells that are not finished are shown as missing."""

    name: Annotated[str, tyro.conf.arg(metavar="NAME"), tyro.conf.Positional]
    """Name of the suite."""
    out: Path = suite_cells.POOL
    """Folder of all cells, as in `ashore suite run`."""
    preset: str | None = None
    """Training preset of the cells; the suite's own if left out."""
    to: Path | None = None
    """Folder for the tables; OUT/PRESET/reports/NAME if left out."""


def run(options: Options) -> int:
    """Write the tables, show the page, and say where they are."""
    try:
        book = suite_results.open_book(options.name, options.out, options.preset)
    except ValueError as mistake:
        raise UsageError(str(mistake)) from mistake
    folder = options.to or suite_cells.reports(options.out, book.preset, book.name)
    paths = suite_tables.write_tables(folder, book)
    print(paths[0].read_text())
    print(f"tables: {', '.join(map(str, paths))}")
    return 0
