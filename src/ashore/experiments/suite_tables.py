"""Tables of a suite: Markdown to read, CSV and JSON to compute with; the same numbers in all three."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from ashore.experiments import decision_work, paper_numbers, suite_results
from ashore.experiments.outcomes import COST, ComponentWork, Outcome, RefinementTime
from ashore.experiments.suite_results import Book, method_name
from ashore.experiments.suites import FIXED_LEVELS, OWN

MISSING, NOTHING = "missing", "-"
"""A number that is not there yet, and one that does not exist."""
TABLE, WORK, TIMES = "table", "decision_work", "refinement_times"


def write_tables(folder: Path, book: Book) -> list[Path]:
    """Write the tables of a suite into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = suite_results.outcomes(book)
    measured = suite_results.decision_work(book)
    page = folder / f"{TABLE}.md"
    page.write_text(markdown(book, rows, measured))
    numbers = folder / f"{TABLE}.json"
    content = {
        "suite": book.name,
        "preset": book.preset,
        "remarks": suite_results.remarks(book),
        "outcomes": [asdict(row) for row in rows],
        "decision_work": measured,
    }
    numbers.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")
    paths = [page, numbers]
    if rows:
        paths.append(write_csv(folder / f"{TABLE}.csv", rows))
    if measured:
        work = [
            {"task": task, **asdict(row)} for task, part in measured.items() for row in decision_work.components(part)
        ]
        times = [
            {"task": task, **asdict(row)}
            for task, part in measured.items()
            for row in decision_work.refinement_times(part)
        ]
        paths += [write_csv(folder / f"{WORK}.csv", work), write_csv(folder / f"{TIMES}.csv", times)]
    return paths


def write_csv(path: Path, rows: Sequence[Any]) -> Path:
    """Rows of one kind, dataclasses or dictionaries; what does not exist is an empty cell."""
    plain = [row if isinstance(row, Mapping) else asdict(row) for row in rows]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(plain[0]) if plain else [field.name for field in fields(Outcome)])
        writer.writeheader()
        writer.writerows(plain)
    return path


def markdown(book: Book, rows: Sequence[Outcome], measured: Mapping[str, Mapping[str, Any]]) -> str:
    """The page."""
    lines = [f"# {book.name}: {book.suite.summary}", "", f"Preset `{book.preset}`.", ""]
    for shown in book.suite.shown:
        mine = [row for row in rows if (row.task, row.worlds) == (shown.task, shown.label)]
        lines += [f"## {shown.task}, {shown.label} ({_in_words(shown.shifts)})", "", *_table(mine), ""]
    for task, part in measured.items():
        lines += [f"## What a decision costs, {task}", "", *_work_tables(part), ""]
    if rows:
        lines += [*(f"- {sentence}" for sentence in _how_to_read(book, rows)), ""]
    notes = suite_results.remarks(book)
    if notes:
        lines += ["## Remarks", "", *(f"- {sentence}" for sentence in notes), ""]
    return "\n".join(lines)


def _in_words(shifts: Sequence[str]) -> str:
    if OWN in shifts:
        return "unseen draws of the ranges that each method was trained in"
    return ", ".join(shifts)


def _table(rows: Sequence[Outcome]) -> list[str]:
    """One kind of world: quantities down, methods across, the paper's row under ours."""
    methods = list(dict.fromkeys(row.method for row in rows))
    lines = [
        f"| | | {' | '.join(map(method_name, methods))} |",
        "|---" * (len(methods) + 2) + "|",
    ]
    for metric in dict.fromkeys(row.metric for row in rows):
        for source in ("ashore", "paper"):
            cells = {row.method: row for row in rows if (row.metric, row.source) == (metric, source)}
            if cells:
                name = _label(next(iter(cells.values()))) if source == "ashore" else ""
                lines.append(f"| {name} | {_who(cells)} | {' | '.join(_cell(cells[method]) for method in methods)} |")
    ours = {row.method: row for row in rows if row.source == "ashore" and row.metric == COST}
    if any(row.remark.startswith("in ") for row in ours.values()):
        worlds = [row.remark.removeprefix("in ") if row.mean is not None else NOTHING for row in ours.values()]
        lines.append(f"| worlds | ashore | {' | '.join(worlds)} |")
    seeds = [NOTHING if row.seeds is None else str(row.seeds) for row in ours.values()]
    return [*lines, f"| training seeds | ashore | {' | '.join(seeds)} |"]


def _label(row: Outcome) -> str:
    return f"{row.metric}, {row.unit}" if row.unit else row.metric


def _who(cells: Mapping[str, Outcome]) -> str:
    row = next(iter(cells.values()))
    return row.source if row.budget is None or row.metric != COST else f"{row.source} (budget {row.budget:g})"


def _cell(row: Outcome) -> str:
    if row.mean is None:
        return MISSING if row.remark.startswith(MISSING) else NOTHING
    digits = _digits(row.mean)
    spread = "" if row.deviation is None else f" ± {row.deviation:.{digits}f}"
    interval = "" if row.low is None or row.high is None else f" [{row.low:.{digits}f}, {row.high:.{digits}f}]"
    return f"{row.mean:.{digits}f}{spread}{interval}"


def _digits(value: float) -> int:
    """Decimals that suit a number: as the paper gives them, one less for hundreds."""
    size = abs(value)
    return 1 if size >= 100 else 2 if size >= 1 else 3  # noqa: PLR2004


def _how_to_read(book: Book, rows: Sequence[Outcome]) -> list[str]:
    ours = [row for row in rows if row.source == "ashore" and row.metric == COST and row.mean is not None]
    protocols = dict.fromkeys((row.environments, row.episodes) for row in ours)
    sizes = "; ".join(f"{environments} environments x {episodes} episodes" for environments, episodes in protocols)
    same = not any(sentence.startswith(suite_results.NOT_COMPARABLE) for sentence in suite_results.remarks(book))
    sentences = [
        "ashore: mean ± standard deviation across environments [bootstrap 95 % interval of the mean over training "
        f"seeds and environments]; {sizes or 'nothing was measured yet'}, adaptation included"
        + ("; all methods in the same worlds." if same else "; see the remarks on worlds."),
        "Costs are per episode. The paper's are in its own unit: compare cost / budget, and orderings.",
    ]
    if any("Ours" in method_name(row.method) for row in rows):
        sentences.append(
            "Ours acts by its calibrated schedule in all worlds; Ours w/o R.A. is the same run at eta = 0."
        )
    if any(row.method in FIXED_LEVELS for row in rows):
        sentences.append("Ours at 0.4, and so on, is the same run at that eta for ever.")
    if any(row.method == "fvd" for row in rows):
        sentences.append("FVD learns nothing and is told the true parameters of its car.")
    if book.suite.paper_table is not None:
        sentences.append(
            f"paper: {book.suite.paper_table} (FVD: {paper_numbers.FVD_SENTENCE}); it does not say across what its "
            "deviations are, which level its PointGoal2 deployment is, or how its jerk is integrated."
        )
    return sentences


def _work_tables(measured: Mapping[str, Any]) -> list[str]:
    devices, sizes = ", ".join(measured["machine"]["devices"]), measured["sizes"]
    components: list[ComponentWork] = decision_work.components(measured)
    times: list[RefinementTime] = decision_work.refinement_times(measured)
    lines = [
        f"Ours counted from the graph and timed on {devices} ({measured['machine']['processor']}); the paper's beside "
        f"it ({paper_numbers.COMPLEXITY}, {paper_numbers.REFINEMENT}; an RTX 3090). Its FLOPs are multiply-adds.",
        f"Sizes here: critics {sizes['critic_width']} wide with {sizes['fractions']} fractions, hidden layers "
        f"{' x '.join(map(str, sizes['hidden']))}, {sizes['context']} transitions; the paper's are 512, 32, "
        "256 x 256 x 256 and 128.",
        "",
        "| part | complexity | operations | multiply-adds | paper | ms | paper, ms |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {row.component} | {row.complexity or NOTHING} | {_count(row.operations)} | "
            f"{_count(row.multiply_adds)} | {_count(row.paper_operations)} | "
            f"{_milliseconds(row.milliseconds, row.deviation)} | {_milliseconds(row.paper_milliseconds, None)} |"
            for row in components
        ),
        "",
        "| K_ref | alpha_r | alpha_c | beta_n | ms | paper, ms |",
        "|---|---|---|---|---|---|",
    ]
    printed = {(row.steps, row.reward_step, row.cost_step, row.proximal): row for row in times if row.source == "paper"}
    for row in times:
        if row.source == "ashore":
            beside = printed[row.steps, row.reward_step, row.cost_step, row.proximal]
            lines.append(
                f"| {row.steps} | {row.reward_step:g} | {row.cost_step:g} | {row.proximal:g} | "
                f"{_milliseconds(row.milliseconds, row.deviation)} | "
                f"{_milliseconds(beside.milliseconds, beside.deviation)} |"
            )
    return lines


def _count(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2e}" if value else "0"


def _milliseconds(value: float | None, deviation: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:.3g}" if deviation is None else f"{value:.3g} ± {deviation:.2g}"
