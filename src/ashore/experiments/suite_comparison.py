"""Two methods of a suite in the same worlds: how much more the one earns and pays than the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
    mean: float
    deviation: float
    """Across environments."""
    low: float
    high: float
    """Bootstrap interval of the mean difference at 95 %."""
    environments: int


def differences(first_book: Book, first: str, second_book: Book, second: str) -> list[Difference]:
    """Every kind of world that the suite shows and that both methods met, task by task.

    Raises:
        ValueError: a method is not in the suite, one of them has no numbers, or they never met the same worlds.
    """
    rows: list[Difference] = []
    absent: list[str] = []
    for shown in first_book.suite.shown:
        one, other = _cell_of(first_book, first, shown.task), _cell_of(second_book, second, shown.task)
        if one is None or other is None:
            continue
        missing = [found for found in (one, other) if found.evaluation is None]
        absent += [f"'{m.cell.method}' on {m.cell.task} has no numbers in {m.folder}: {m.missing}." for m in missing]
        if not missing and _same_worlds(one, other, shown):
            rows += [_difference(one, other, shown, metric) for metric in METRICS]
    if not rows:
        raise ValueError(absent[0] if absent else f"'{first}' and '{second}' have no worlds in common in this suite.")
    return rows


def _cell_of(book: Book, method: str, task: str) -> Found | None:
    """The method's cell; None where the suite has none of it for this task."""
    names.lookup("method of this suite", method, {cell.method: cell for cell in book.suite.cells})
    return next((found for found in book.of_task(task) if found.cell.method == method), None)


def _same_worlds(one: Found, other: Found, shown: Shown) -> bool:
    shifts = suite_results.shifts_of(one, shown)
    if shifts is None or shifts != suite_results.shifts_of(other, shown):
        return False
    met, also_met = one.facts["worlds_sha256"], other.facts["worlds_sha256"]
    return all(met[shift] == also_met[shift] for shift in shifts)


def _difference(one: Found, other: Found, shown: Shown, metric: str) -> Difference:
    values = []
    for found in (one, other):
        shifts = suite_results.shifts_of(found, shown)
        assert found.evaluation is not None and shifts is not None
        budget = suite_results.episode_budget(found)
        table = suite_results.values_of(found.evaluation, shifts, metric, budget)
        assert table is not None, metric
        values.append(table)
    first, second = values
    # Two ways to deploy one run share its seeds, which are then paired as the worlds are.
    figure = estimate(first - second) if one.run.resolve() == other.run.resolve() else difference(first, second)
    return Difference(
        task=shown.task,
        first=one.cell.method,
        second=other.cell.method,
        worlds=shown.label,
        metric=metric,
        unit=suite_results.UNITS.get(metric, ""),
        first_mean=float(first.mean()),
        second_mean=float(second.mean()),
        **figure._asdict(),
        environments=first.shape[1],
    )


def markdown(rows: Sequence[Difference]) -> str:
    """A table, kinds of world down, quantities across."""
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
        "drawn for each (paired too where both are ways to deploy one run).",
        "",
    ]
    return "\n".join(lines)


def _shown(row: Difference) -> str:
    def number(value: float, sign: str = "") -> str:
        return f"{value:{sign}.{2 if row.metric == OVER_BUDGET else 1}f}"

    means = f"{number(row.first_mean)} / {number(row.second_mean)}"
    return f"{means}: **{number(row.mean, '+')}** [{number(row.low, '+')}, {number(row.high, '+')}]"


def write(folder: Path, rows: Sequence[Difference]) -> list[Path]:
    """The page and its numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{rows[0].first}_less_{rows[0].second}"
    page = folder / f"{name}.md"
    page.write_text(markdown(rows))
    return [page, suite_tables.write_csv(folder / f"{name}.csv", rows)]
