"""What a method with risk levels earns at the cost of another one, read off between two of its levels.

Two methods that stop at different costs say little about each other: whoever pays more earns more. Cells at fixed
levels make a curve of return over cost, and the curve is compared with the other method where it is.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ashore.experiments import statistics, suite_cells, suite_results, suite_tables
from ashore.experiments.outcomes import COST, RETURN
from ashore.experiments.suite_comparison import cell_of, same_policies, same_worlds
from ashore.experiments.suite_results import Book, Found, method_name
from ashore.experiments.suites import FIXED_LEVELS, Shown

_LEVELS = {"without_risk_adaptation": 0.0, **FIXED_LEVELS}


@dataclass(frozen=True)
class AtEqualCost:
    """The first method's return at the cost of the second, in one kind of world."""

    task: str
    first: str
    second: str
    worlds: str
    cost: float
    """Of the second, per episode."""
    second_return: float
    first_return: float
    """At that cost."""
    level: float
    """At which the first one pays as much."""
    mean: float
    low: float
    high: float
    """How much more the first one earns, and its bootstrap interval at 95 %."""
    first_seeds: int | None
    second_seeds: int | None
    environments: int
    first_where: str
    second_where: str
    """Folders: of the first one's cells at fixed levels, of the second one's cell."""


class Comparison(NamedTuple):
    """What could be compared, and why the rest could not."""

    rows: list[AtEqualCost]
    left_out: list[str]
    """One sentence each."""


def compare(first_book: Book, first: str, second_book: Book, second: str) -> Comparison:
    """Every kind of world that the suite shows, task by task.

    Raises:
        ValueError: a method is not in its suite, or nothing can be compared; says why.
    """
    rows: list[AtEqualCost] = []
    left_out: list[str] = []
    for shown in first_book.suite.shown:
        cell_of(first_book, first, shown.task)
        other = cell_of(second_book, second, shown.task)
        if first not in suite_cells.TRAINED_AS.values():
            known = ", ".join(f"'{name}'" for name in dict.fromkeys(suite_cells.TRAINED_AS.values()))
            raise ValueError(f"'{first}' takes no risk levels: what has cells at fixed ones is {known}.")
        if other is None:
            continue
        levels = _levels(first_book, first, shown.task)
        missing = [found for found in (*levels.values(), other) if found.evaluation is None]
        left_out += [f"'{m.cell.method}' on {m.cell.task} has no numbers in {m.folder}: {m.missing}." for m in missing]
        there = {level: found for level, found in levels.items() if found.evaluation is not None}
        if len(there) < 2:  # noqa: PLR2004 - a curve
            left_out.append(f"Fewer than two cells of '{first}' at fixed risk levels have numbers on {shown.task}.")
        elif other.evaluation is not None:
            row = _row(there, other, shown, first)
            rows += [row] if isinstance(row, AtEqualCost) else []
            left_out += [row] if isinstance(row, str) else []
    left_out = list(dict.fromkeys(left_out))
    if not rows:
        raise ValueError(left_out[0] if left_out else f"No task of this suite has both '{first}' and '{second}'.")
    return Comparison(rows, left_out)


def _levels(book: Book, method: str, task: str) -> dict[float, Found]:
    """Cells of the method at fixed levels, by level in ascending order."""
    cells = [found for found in book.of_task(task) if suite_cells.TRAINED_AS.get(found.cell.method) == method]
    return {_LEVELS[found.cell.method]: found for found in sorted(cells, key=lambda one: _LEVELS[one.cell.method])}


def _row(levels: dict[float, Found], other: Found, shown: Shown, first: str) -> AtEqualCost | str:
    cells = list(levels.values())
    second = other.cell.method
    if not all(same_policies(cells[0], cell) for cell in cells[1:]):
        return f"The levels of '{first}' on {shown.task} do not belong to one run: their curve would be none."
    if not all(same_worlds(cell, other, shown) for cell in cells):
        return f"'{first}' and '{second}' did not meet the same worlds of {shown.task}, {shown.label}."
    curve = tuple(np.stack([_values(cell, shown, metric) for cell in cells]) for metric in (COST, RETURN))
    cost, earned = (_values(other, shown, metric) for metric in (COST, RETURN))
    means = curve[0].mean(axis=(1, 2))
    if not statistics.rises_or_falls(means):
        return f"The cost of '{first}' does not fall from level to level in {shown.task}, {shown.label}."
    paired = same_policies(cells[0], other)
    found = statistics.above(np.array(list(levels)), (curve[0], curve[1]), (cost, earned), paired=paired)
    if found is None:
        return (
            f"'{second}' pays {cost.mean():.1f} in {shown.task}, {shown.label}, which no measured level of '{first}' "
            f"does: {means.min():.1f} to {means.max():.1f}."
        )
    return AtEqualCost(
        task=shown.task,
        first=first,
        second=second,
        worlds=shown.label,
        cost=float(cost.mean()),
        second_return=float(earned.mean()),
        first_return=found.value,
        level=found.place,
        mean=found.mean,
        low=found.low,
        high=found.high,
        first_seeds=cells[0].facts["seeds"],
        second_seeds=other.facts["seeds"],
        environments=cost.shape[1],
        first_where=str(cells[0].folder.parent),
        second_where=str(other.folder),
    )


def _values(found: Found, shown: Shown, metric: str) -> np.ndarray:
    shifts = suite_results.shifts_of(found, shown)
    assert found.evaluation is not None and shifts is not None
    values = suite_results.values_of(found.evaluation, shifts, metric, suite_results.episode_budget(found))
    assert values is not None, metric
    return values


def markdown(comparison: Comparison) -> str:
    """A table, kinds of world down."""
    rows = comparison.rows
    one, other = f"{method_name(rows[0].first)} at a fixed level", method_name(rows[0].second)
    lines = [f"# {one} less {other}, at the cost of {other}", ""]
    lines += [f"| worlds | cost of {other} | its return | {one} at that cost | at level | more |", "|---" * 6 + "|"]
    for row in rows:
        more = f"**{row.mean:+.1f}** [{row.low:+.1f}, {row.high:+.1f}]"
        numbers = f"{row.cost:.1f} | {row.second_return:.1f} | {row.first_return:.1f} | {row.level:.2f}"
        lines.append(f"| {row.task}, {row.worlds} | {numbers} | {more} |")
    lines += [
        "",
        "The return is read off between two cells at fixed risk levels, at the level whose cost is that of the other",
        "in these very worlds; nobody knows that level beforehand. Bootstrap 95 % intervals: worlds paired, training",
        "seeds drawn for each (paired too where both are the same policies).",
        f"First: `{rows[0].first_where}`; second: `{rows[0].second_where}`.",
        "",
        *(f"- {sentence}" for sentence in comparison.left_out),
        *([""] if comparison.left_out else []),
    ]
    return "\n".join(lines)


def write(folder: Path, comparison: Comparison) -> list[Path]:
    """The page and its numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = comparison.rows
    name = f"{rows[0].first}_less_{rows[0].second}_at_equal_cost"
    page = folder / f"{name}.md"
    page.write_text(markdown(comparison))
    return [page, suite_tables.write_csv(folder / f"{name}.csv", rows)]
