"""The numbers of a suite, read from what its cells left on disk, and the paper's beside them.

A cell that is not finished has no numbers: it is listed as missing, with the reason. Nothing is computed here that is
not in an artifact.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from ashore import artifacts, names
from ashore.environments import tasks
from ashore.experiments import paper_numbers, records, suite_cells, suite_evaluation
from ashore.experiments.calibration import FILE as CALIBRATION
from ashore.experiments.calibration import FOLDER as CALIBRATIONS
from ashore.experiments.outcomes import COST, COST_SHARE, RETURN, DeploymentPoint, Outcome
from ashore.experiments.records import Row
from ashore.experiments.statistics import estimate
from ashore.experiments.suite_evaluation import OWN, Evaluation
from ashore.experiments.suites import FIXED_LEVELS, METHOD_NAMES, SUITES, Cell, Shown, Suite

NOT_COMPARABLE = "NOT COMPARABLE"
FIRST_COST, OVER_BUDGET = "cost, first episode", "worlds over budget"
UNITS = {
    RETURN: "per episode",
    COST: "per episode",
    FIRST_COST: "per episode",
    COST_SHARE: "",
    OVER_BUDGET: "share",
    "jerk_squared_integral": "m^2/s^5",
    "jerk_abs_integral": "m/s^2",
    "mean_speed": "m/s",
    "min_gap": "m",
}
PAPER_METRICS = {
    RETURN: "return",
    COST: "cost",
    COST_SHARE: "cost",
    "oscillation_ratio": "oscillation_ratio",
    # The paper does not say which integral it means; the number stands beside both.
    "jerk_squared_integral": "jerk",
    "jerk_abs_integral": "jerk",
    "fuel_mL_per_s": "fuel",
}
"""Which of the paper's quantities stands beside ours."""
TASK_METRICS = {
    "Platoon": ("oscillation_ratio", "jerk_squared_integral", "jerk_abs_integral", "fuel_mL_per_s"),
}
"""Quantities that a table lists even where no cell of the task is finished."""


class Found(NamedTuple):
    """One cell as it lies on disk."""

    cell: Cell
    folder: Path
    run: Path
    """Folder of the run behind it."""
    summary: Mapping[str, Any] | None
    evaluation: Evaluation | None
    facts: Mapping[str, Any]
    """Of the evaluation."""
    missing: str
    """Why there are no numbers; empty where there are."""


class Book(NamedTuple):
    """A suite with all its cells."""

    name: str
    suite: Suite
    preset: str
    cells: tuple[Found, ...]

    def of_task(self, task: str) -> list[Found]:
        """The cells of one task, in the order of the suite; without the measured work of a decision."""
        return [found for found in self.cells if found.cell.task == task and found.cell in self.suite.cells]

    @property
    def tasks(self) -> list[str]:
        """Tasks in the order of the suite."""
        return list(dict.fromkeys(cell.task for cell in self.suite.cells))


def open_book(name: str, pool: Path, preset: str | None) -> Book:
    """Read whatever there is of a suite."""
    suite = names.lookup("suite", name, SUITES)
    chosen = preset or suite.preset
    cells = tuple(_find(pool / chosen, cell) for cell in suite_cells.cells_of(suite))
    return Book(name, suite, chosen, cells)


def _find(pool: Path, cell: Cell) -> Found:
    folder = suite_cells.folder_of(pool, cell)
    run = suite_cells.folder_of(pool, Cell(cell.task, suite_cells.TRAINED_AS.get(cell.method, cell.method)))
    nothing = Found(cell, folder, run, None, None, {}, "not begun")
    summary = suite_cells.read_summary(folder)
    if summary is None:
        return nothing._replace(missing="not finished") if folder.exists() else nothing
    if cell.method == suite_cells.DECISION_WORK:
        return nothing._replace(summary=summary, missing="")
    try:
        evaluation, facts = suite_evaluation.read(folder)
    except artifacts.Damaged as damage:
        return nothing._replace(missing=str(damage))
    if facts["settings_sha256"] != summary["settings_sha256"]:
        return nothing._replace(missing="its evaluation belongs to other settings")
    return Found(cell, folder, run, summary, evaluation, facts, "")


def method_name(method: str) -> str:
    """What tables and figures call a method."""
    if method in FIXED_LEVELS:
        return f"{METHOD_NAMES['risk_adaptive']} at {FIXED_LEVELS[method]:g}"
    return METHOD_NAMES.get(method, method)


def outcomes(book: Book) -> list[Outcome]:
    """Every quantity of every method in every kind of world that the suite shows, ours and then the paper's."""
    rows: list[Outcome] = []
    for shown in book.suite.shown:
        cells = book.of_task(shown.task)
        for metric in _metrics(shown.task, cells):
            rows += [_ours(found, shown, metric) for found in cells]
            rows += _paper(book.suite, cells, shown, metric)
    return rows


def _metrics(task: str, cells: Sequence[Found]) -> list[str]:
    special = dict.fromkeys(TASK_METRICS.get(task, ()))
    for found in cells:
        if found.evaluation is not None:
            special |= dict.fromkeys(found.evaluation.metrics)
    return [RETURN, COST, COST_SHARE, FIRST_COST, OVER_BUDGET, *special]


def _ours(found: Found, shown: Shown, metric: str) -> Outcome:
    cell = found.cell
    budget = episode_budget(found)
    limit = {COST: budget, FIRST_COST: budget, COST_SHARE: 1.0}.get(metric)
    row = Outcome(cell.task, cell.method, shown.label, metric, UNITS.get(metric, ""), "ashore", None, budget=limit)
    if found.evaluation is None:
        return _with(row, remark=f"missing: {found.missing}")
    shifts = shifts_of(found, shown)
    if shifts is None:
        return _with(row, remark="not trained in any worlds")
    values = values_of(found.evaluation, shifts, metric, budget)
    if values is None:
        return _with(row, remark="not measured")
    figure = estimate(values)
    return _with(
        row,
        **figure._asdict(),
        seeds=found.facts["seeds"],
        environments=values.shape[1],
        episodes=1 if metric == FIRST_COST else found.facts["episodes"],
        where="/".join(found.folder.parts[-3:]),
        remark="" if shown.shifts == tuple(shifts) else f"in {', '.join(shifts)}",
    )


def _with(row: Outcome, **changes: Any) -> Outcome:
    return Outcome(**{**row.__dict__, **changes})


def shifts_of(found: Found, shown: Shown) -> list[str] | None:
    """The shifts by name; None where a method has no training worlds of its own."""
    own = found.facts["own"]
    if OWN in shown.shifts and own is None:
        return None
    return [own if shift == OWN else shift for shift in shown.shifts]


def values_of(evaluation: Evaluation, shifts: Sequence[str], metric: str, budget: float) -> np.ndarray | None:
    """One number per seed and environment, episodes averaged."""
    cost = evaluation.of(shifts, evaluation.episode_cost)
    if metric == RETURN:
        return evaluation.of(shifts, evaluation.episode_return).mean(axis=2)
    if metric == COST:
        return cost.mean(axis=2)
    if metric == COST_SHARE:
        return cost.mean(axis=2) / budget
    if metric == FIRST_COST:
        return cost[:, :, 0]
    if metric == OVER_BUDGET:
        return (cost.mean(axis=2) > budget).astype(np.float64)
    if metric not in evaluation.metrics:
        return None
    return evaluation.of(shifts, evaluation.metrics[metric]).mean(axis=2)


def episode_budget(found: Found) -> float:
    """The cost limit of a cell's task per episode."""
    if found.evaluation is not None:
        return float(found.facts["budget"]["per_episode"])
    family = tasks.lookup(found.cell.task)
    return family.describe(family.presets[family.default_preset]).budget.per_episode


def _paper(suite: Suite, cells: Sequence[Found], shown: Shown, metric: str) -> Iterator[Outcome]:
    """The paper's row, where its table has this quantity at all."""
    asked = PAPER_METRICS.get(metric)
    if suite.paper_table is None or shown.paper is None or asked is None:
        return
    tables = (suite.paper_table, paper_numbers.FVD_SENTENCE)
    printed = {
        found.cell.method: number
        for found in cells
        for label in tables
        if (number := paper_numbers.find(label, shown.task, found.cell.method, shown.paper, asked)) is not None
    }
    if not printed:
        return
    limit = paper_numbers.BUDGET[shown.task]
    scale = limit if metric == COST_SHARE else 1.0
    for found in cells:
        method, number = found.cell.method, printed.get(found.cell.method)
        row = Outcome(shown.task, method, shown.label, metric, _paper_unit(metric), "paper", None)
        row = _with(row, budget={COST: limit, COST_SHARE: 1.0}.get(metric))
        if number is None:
            yield _with(row, remark="not in the paper")
        else:
            mean, deviation = number.mean / scale, number.deviation / scale
            yield _with(row, mean=mean, deviation=deviation, where=number.label)


def _paper_unit(metric: str) -> str:
    return "the paper's" if metric in (RETURN, COST) else UNITS.get(metric, "")


def remarks(book: Book) -> list[str]:
    """What a reader of the numbers should know, one sentence each."""
    sentences = [
        f"{method_name(found.cell.method)} on {found.cell.task} is missing: {found.missing}."
        for found in book.cells
        if found.missing
    ]
    for task in book.tasks:
        there = [found for found in book.of_task(task) if found.evaluation is not None]
        for shift in dict.fromkeys(shift for found in there for shift in found.facts["worlds_sha256"] if shift != OWN):
            worlds = {found.facts["worlds_sha256"].get(shift) for found in there}
            if len(worlds) > 1:
                sentences.append(f"{NOT_COMPARABLE}: the methods met different worlds of {task}, {shift}.")
        lost = {found.cell.method: int(found.evaluation.diverged.sum()) for found in there if found.evaluation}
        sentences += [
            f"{method_name(method)} lost {count} worlds of {task} to divergence; each was charged the highest cost."
            for method, count in lost.items()
            if count
        ]
    return sentences


def deployment(book: Book, task: str, shift: str) -> list[DeploymentPoint]:
    """The course of every method's deployment under a shift, by window and by episode."""
    points: list[DeploymentPoint] = []
    for found in book.of_task(task):
        evaluation = found.evaluation
        if evaluation is None:
            continue
        length, window = found.facts["decisions_per_episode"], found.facts["window"]
        eta = evaluation.eta[:, evaluation.shifts.index(shift)].mean(axis=0)
        cost, reward = evaluation.window_cost, evaluation.window_reward
        points += _stretches(found, shift, "window", window, eta, cost * (length / window), reward * (length / window))
        points += _stretches(found, shift, "episode", length, eta, evaluation.episode_cost, evaluation.episode_return)
    return points


def _stretches(
    found: Found,
    shift: str,
    stretch: Literal["window", "episode"],
    length: int,
    eta: np.ndarray,
    cost: np.ndarray,
    reward: np.ndarray,
) -> Iterator[DeploymentPoint]:
    """One point per stretch; costs and returns are per episode, [seed, shift, environment, stretch]."""
    assert found.evaluation is not None
    costs, rewards = found.evaluation.of([shift], cost), found.evaluation.of([shift], reward)
    for number in range(costs.shape[2]):
        begins, ends = number * length, (number + 1) * length
        yield DeploymentPoint(
            method=found.cell.method,
            stretch=stretch,
            begins=begins,
            ends=ends,
            cost=estimate(costs[:, :, number]),
            reward=estimate(rewards[:, :, number]),
            eta=float(eta[begins:ends].mean()),
        )


def training_rows(book: Book, task: str) -> dict[str, list[Row]]:
    """What every run of a task recorded while it was trained, by method."""
    rows = {
        found.cell.method: list(records.read(found.run)) for found in book.of_task(task) if found.run == found.folder
    }
    return {method: recorded for method, recorded in rows.items() if recorded}


def calibrations(book: Book, task: str) -> dict[str, Mapping[str, Any]]:
    """What the calibration of every seed holds, by seed."""
    content = {}
    for found in book.of_task(task):
        if found.cell.method in suite_cells.CALIBRATED:
            for path in sorted((found.run / CALIBRATIONS).glob(f"seed_*/{CALIBRATION}")):
                content[path.parent.name.replace("_", " ")] = json.loads(path.read_text())
    return content


def budget_of(book: Book, task: str) -> float:
    """The cost limit of a task per episode."""
    return episode_budget(book.of_task(task)[0])


def decision_work(book: Book) -> dict[str, Mapping[str, Any]]:
    """What was counted and timed, by task."""
    return {
        found.cell.task: found.summary["measured"]
        for found in book.cells
        if found.cell.method == suite_cells.DECISION_WORK and found.summary is not None
    }
