"""`ashore suite compare NAME FIRST SECOND`: how much more the one earns and pays than the other, worlds paired."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from ashore.cli.options import UsageError
from ashore.cli.suite_book import BookOptions, open_book
from ashore.experiments import suite_comparison, suite_equal_cost, suite_results


@dataclass(frozen=True, kw_only=True)
class Options(BookOptions):
    """Compare two methods of a suite in the worlds that both met, from what their cells left on disk."""

    first: Annotated[str, tyro.conf.arg(metavar="FIRST"), tyro.conf.Positional]
    """A method of the suite."""
    second: Annotated[str, tyro.conf.arg(metavar="SECOND"), tyro.conf.Positional]
    """What it is compared with."""
    second_out: Path | None = None
    """Folder of the second one's cells, if another: the same method with other settings, for instance."""
    at_equal_cost: bool = False
    """Read off what the first one earns at the cost of the second, between its cells at fixed risk levels."""
    to: Path | None = None
    """Folder for the page and its numbers; OUT/PRESET/reports/NAME if left out."""


def run(options: Options) -> int:
    """Write the differences, show the page, and say where they are."""
    book, folder = open_book(options, options.to)
    try:
        other = suite_results.open_book(options.name, options.second_out or options.out, options.preset)
        if options.at_equal_cost:
            along = suite_equal_cost.compare(book, options.first, other, options.second)
            write = partial(suite_equal_cost.write, folder, along)
        else:
            comparison = suite_comparison.compare(book, options.first, other, options.second)
            write = partial(suite_comparison.write, folder, comparison)
    except ValueError as mistake:
        raise UsageError(str(mistake)) from mistake
    paths = write()
    print(paths[0].read_text())
    print(f"differences: {', '.join(map(str, paths))}")
    return 0
