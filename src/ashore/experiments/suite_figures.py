"""Figures of a suite: each is written as PNG with the data behind it as CSV beside it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from ashore import names
from ashore.experiments import decision_work, figures, suite_results
from ashore.experiments.outcomes import COST, RETURN, DeploymentPoint, Outcome
from ashore.experiments.records import Row
from ashore.experiments.suite_results import Book, method_name
from ashore.experiments.suite_tables import write_csv

_RESOLUTION = 150
_TRAINING = ("episode_return", "episode_cost", "multiplier")
_CHARGE = ("reward_rate", "cost_rate", "penalty_rate", "multiplier")


class Drawn(NamedTuple):
    """A figure and the rows it was drawn from."""

    name: str
    figure: Figure
    rows: Sequence[Any]


def write_figures(folder: Path, book: Book) -> list[Path]:
    """Draw everything that a suite asks for and that there are numbers for."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for wanted in book.suite.figures:
        for drawn in names.lookup("figure", wanted, FIGURES)(book):
            path = folder / f"{drawn.name}.png"
            drawn.figure.savefig(path, dpi=_RESOLUTION)
            write_csv(path.with_suffix(".csv"), drawn.rows)
            paths.append(path)
    return paths


def _measured(book: Book) -> list[Outcome]:
    """Our costs and returns, missing ones included; empty where there is none at all."""
    rows = [row for row in suite_results.outcomes(book) if row.source == "ashore" and row.metric in (COST, RETURN)]
    return rows if any(row.mean is not None for row in rows) else []


def _scatter(book: Book) -> Iterator[Drawn]:
    rows = _measured(book)
    if rows:
        yield Drawn("reward_cost", figures.reward_cost_scatter(rows, method_name), rows)


def _shifts(book: Book) -> Iterator[Drawn]:
    rows = _measured(book)
    if rows:
        yield Drawn("shifts", figures.shift_bars(rows, method_name), rows)


def _deployment(book: Book) -> Iterator[Drawn]:
    for task, shift in book.suite.deployed_in:
        points = suite_results.deployment(book, task, shift)
        if points:
            title = f"{task}, {shift}: deployment from the first transition on"
            figure = figures.deployment_curves(points, suite_results.budget_of(book, task), title, method_name)
            yield Drawn(f"deployment_{task}_{shift}", figure, [_flat_point(point) for point in points])


def _flat_point(point: DeploymentPoint) -> dict[str, Any]:
    plain = {
        "method": point.method,
        "stretch": point.stretch,
        "begins": point.begins,
        "ends": point.ends,
        "eta": point.eta,
    }
    for name, found in (("cost", point.cost), ("return", point.reward)):
        plain |= {f"{name}_{part}": value for part, value in found._asdict().items()}
    return plain


def _training(book: Book) -> Iterator[Drawn]:
    for task in book.tasks:
        runs = suite_results.training_rows(book, task)
        if runs:
            figure = figures.training_curves(runs, suite_results.budget_of(book, task), task, method_name)
            yield Drawn(f"training_{task}", figure, list(_recorded(runs, _TRAINING)))


def _encoder(book: Book) -> Iterator[Drawn]:
    for task in book.tasks:
        recorded = suite_results.training_rows(book, task)
        runs = {name: rows for name, rows in recorded.items() if any("encoder_loss" in row for row in rows)}
        if runs:
            figure = figures.encoder_curves(runs, task, method_name)
            yield Drawn(f"encoder_{task}", figure, list(_recorded(runs, figures.encoder_metrics(runs))))


def _charge(book: Book) -> Iterator[Drawn]:
    for task in book.tasks:
        recorded = suite_results.training_rows(book, task)
        runs = {name: rows for name, rows in recorded.items() if any("penalty_rate" in row for row in rows)}
        if runs:
            figure = figures.charge_curves(runs, suite_results.budget_of(book, task), task, method_name)
            yield Drawn(f"charge_{task}", figure, list(_recorded(runs, _CHARGE)))


def _recorded(runs: Mapping[str, Sequence[Row]], metrics: Sequence[str]) -> Iterator[dict[str, Any]]:
    """One row per method, chunk and seed."""
    for method, rows in runs.items():
        for row in rows:
            known = {name: row[name] for name in metrics if name in row}
            for seed in range(max(map(len, known.values()), default=0)):
                numbers = {name: known[name][seed] if name in known else None for name in metrics}
                yield {"method": method, "seed": seed, "env_steps": row["env_steps"], **numbers}


def _calibration(book: Book) -> Iterator[Drawn]:
    for task in book.tasks:
        found = suite_results.calibrations(book, task)
        if found:
            first = next(iter(found.values()))
            title = f"{task}: calibration at level {first['level']:g}, rule {first['rule']}"
            yield Drawn(f"calibration_{task}", figures.calibration_tables(found, title), list(_tabled(found)))


def _tabled(calibrations: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The tables row by row: one per seed and N, costs per episode, Delta_c in a column per eta."""
    for seed, content in calibrations.items():
        per_episode = content["per_episode"]
        for place, count in enumerate(content["counts"]):
            row = {
                "seed": seed,
                "N": count,
                "eta": content["eta"][place],
                "infeasible": content["infeasible"][place],
                "epsilon": content["epsilon"][place],
                "L_c": per_episode["lipschitz"][place],
                "direct": per_episode["direct"][place],
            }
            deltas = zip(content["etas"], per_episode["delta"][place], strict=True)
            yield row | {f"Delta_c({eta:g})": value for eta, value in deltas}


def _refinement(book: Book) -> Iterator[Drawn]:
    for task, measured in suite_results.decision_work(book).items():
        times = decision_work.refinement_times(measured)
        device = ", ".join(measured["machine"]["devices"])
        figure = figures.refinement_times(times, f"Refining one action, {task}; ashore on {device}")
        yield Drawn(f"refinement_{task}", figure, times)


FIGURES: dict[str, Callable[[Book], Iterator[Drawn]]] = {
    "scatter": _scatter,
    "shifts": _shifts,
    "deployment": _deployment,
    "training": _training,
    "encoder": _encoder,
    "charge": _charge,
    "calibration": _calibration,
    "refinement": _refinement,
}
"""What a suite may ask for."""
