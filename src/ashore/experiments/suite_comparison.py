"""Two methods of a suite in the same worlds: how much more the one earns and pays than the other."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ashore import names
from ashore.experiments import suite_results, suite_tables
from ashore.experiments.outcomes import COST, RETURN
from ashore.experiments.statistics import difference, estimate
from ashore.experiments.suite_results import FIRST_COST, OVER_BUDGET, Book, Found, method_name
from ashore.experiments.suites import Shown

METRICS = (RETURN, COST, FIRST_COST, OVER_BUDGET)


@dataclass(frozen=True)
class Difference:
    """One quantity of the first method less that of the second, in one kind of world."""

    task: str
    first: str
    second: str
    worlds: str
    metric: str
    unit: str
    first_mean: float
    second_mean: float
    first_seeds: int | None
    second_seeds: int | None
    mean: float
    deviation: float
    """Across environments."""
    low: float
    high: float
    """Bootstrap interval of the mean difference at 95 %."""
    environments: int
    first_where: str
    second_where: str
    """Folders of the two cells."""


class Comparison(NamedTuple):
    """What could be compared, and why the rest could not."""

    rows: list[Difference]
    left_out: list[str]
    """One sentence each."""


def compare(first_book: Book, first: str, second_book: Book, second: str) -> Comparison:
    """Every kind of world that the suite shows and that both methods met, task by task.

    Raises:
        ValueError: a method is not in the suite, or nothing can be compared; says why.
    """
    rows: list[Difference] = []
    left_out: list[str] = []
    done: set[tuple[str, ...]] = set()
    for shown in first_book.suite.shown:
        one, other = cell_of(first_book, first, shown.task), cell_of(second_book, second, shown.task)
        if one is None or other is None:
            continue
        missing = [found for found in (one, other) if found.evaluation is None]
        left_out += [f"'{m.cell.method}' on {m.cell.task} has no numbers in {m.folder}: {m.missing}." for m in missing]
        if missing:
            continue
        if same_worlds(one, other, shown):
            # The ranges of two methods' own may be those of another row, whose numbers would be the same.
            worlds = (shown.task, *(suite_results.shifts_of(one, shown) or ()))
            if worlds in done:
                continue
            done.add(worlds)
            rows += [_difference(one, other, shown, metric) for metric in METRICS]
        else:
            left_out.append(f"'{first}' and '{second}' did not meet the same worlds of {shown.task}, {shown.label}.")
    left_out = list(dict.fromkeys(left_out))
    if not rows:
        raise ValueError(left_out[0] if left_out else f"No task of this suite has both '{first}' and '{second}'.")
    return Comparison(rows, left_out)


def cell_of(book: Book, method: str, task: str) -> Found | None:
    """The method's cell; None where the suite has none of it for this task."""
    names.lookup("method of this suite", method, {cell.method: cell for cell in book.suite.cells})
    return next((found for found in book.of_task(task) if found.cell.method == method), None)


def same_worlds(one: Found, other: Found, shown: Shown) -> bool:
    """Whether two cells met the same physics and scenes of one kind of world."""
    shifts = suite_results.shifts_of(one, shown)
    if shifts is None or shifts != suite_results.shifts_of(other, shown):
        return False
    met, also_met = one.facts["worlds_sha256"], other.facts["worlds_sha256"]
    return all(shift in met and met[shift] == also_met.get(shift) for shift in shifts)


def _difference(one: Found, other: Found, shown: Shown, metric: str) -> Difference:
    values = []
    for found in (one, other):
        shifts = suite_results.shifts_of(found, shown)
        assert found.evaluation is not None and shifts is not None
        budget = suite_results.episode_budget(found)
        table = suite_results.values_of(found.evaluation, shifts, metric, budget)
        assert table is not None, metric
        values.append(table.astype(np.float64))
    first, second = values
    figure = estimate(first - second) if same_policies(one, other) else difference(first, second)
    return Difference(
        task=shown.task,
        first=one.cell.method,
        second=other.cell.method,
        worlds=shown.label,
        metric=metric,
        unit=suite_results.UNITS.get(metric, ""),
        first_mean=float(first.mean()),
        second_mean=float(second.mean()),
        first_seeds=one.facts["seeds"],
        second_seeds=other.facts["seeds"],
        **figure._asdict(),
        environments=first.shape[1],
        first_where=str(one.folder),
        second_where=str(other.folder),
    )


def same_policies(one: Found, other: Found) -> bool:
    """Two ways to deploy one run share its seeds, which are then paired as the worlds are."""
    assert one.summary is not None and other.summary is not None
    weights = one.summary.get("weights_sha256")
    return weights is not None and weights == other.summary.get("weights_sha256")


def markdown(comparison: Comparison) -> str:
    """A table, kinds of world down, quantities across."""
    rows = comparison.rows
    lines = [f"# {method_name(rows[0].first)} less {method_name(rows[0].second)}", ""]
    for task in dict.fromkeys(row.task for row in rows):
        mine = [row for row in rows if row.task == task]
        lines += [f"## {task}", "", f"| worlds | {' | '.join(METRICS)} |", "|---" * (len(METRICS) + 1) + "|"]
        for worlds in dict.fromkeys(row.worlds for row in mine):
            cells = [_shown(row) for row in mine if row.worlds == worlds]
            lines.append(f"| {worlds} | {' | '.join(cells)} |")
        lines.append("")
    lines += [
        "First the two means, then their difference with its bootstrap 95 % interval: worlds paired, training seeds",
        "drawn for each (paired too where both are ways to deploy the same policies).",
        f"First: `{rows[0].first_where}`; second: `{rows[0].second_where}`.",
        "",
        *(f"- {sentence}" for sentence in comparison.left_out),
        *([""] if comparison.left_out else []),
    ]
    return "\n".join(lines)


def _shown(row: Difference) -> str:
    def number(value: float, sign: str = "") -> str:
        return f"{value:{sign}.{2 if row.metric == OVER_BUDGET else 1}f}"

    means = f"{number(row.first_mean)} / {number(row.second_mean)}"
    return f"{means}: **{number(row.mean, '+')}** [{number(row.low, '+')}, {number(row.high, '+')}]"


def write(folder: Path, comparison: Comparison) -> list[Path]:
    """The page and its numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = comparison.rows
    name = f"{rows[0].first}_less_{rows[0].second}"
    page = folder / f"{name}.md"
    page.write_text(markdown(comparison))
    return [page, suite_tables.write_csv(folder / f"{name}.csv", rows)]
