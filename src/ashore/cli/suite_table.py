"""`ashore suite table NAME`: the numbers of a suite beside the paper's, from what its cells left on disk."""

from dataclasses import dataclass
from pathlib import Path

from ashore.cli.suite_book import BookOptions, open_book
from ashore.experiments import suite_tables


@dataclass(frozen=True, kw_only=True)
class Options(BookOptions):
    """Write the tables of a suite as Markdown, CSV and JSON; cells that are not finished are shown as missing."""

    to: Path | None = None
    """Folder for the tables; OUT/PRESET/reports/NAME if left out."""


def run(options: Options) -> int:
    """Write the tables, show the page, and say where they are."""
    book, folder = open_book(options, options.to)
    paths = suite_tables.write_tables(folder, book)
    print(paths[0].read_text())
    print(f"tables: {', '.join(map(str, paths))}")
    return 0
