"""`ashore suite figures NAME`: the figures of a suite, each with the data behind it."""

from dataclasses import dataclass
from pathlib import Path

from ashore.cli.suite_book import BookOptions, open_book
from ashore.experiments import suite_figures, suite_results


@dataclass(frozen=True, kw_only=True)
class Options(BookOptions):
    """Draw the figures of a suite as PNG, each with its data as CSV, from what its cells left on disk."""

    to: Path | None = None
    """Folder for the figures; OUT/PRESET/reports/NAME if left out."""


def run(options: Options) -> int:
    """Draw what can be drawn, and say where it is and what is missing."""
    book, folder = open_book(options, options.to)
    paths = suite_figures.write_figures(folder, book)
    for sentence in suite_results.remarks(book):
        print(sentence)
    for path in paths:
        print(f"figure: {path}")
    if not paths:
        print("nothing to draw yet")
    return 0
