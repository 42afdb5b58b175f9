"""Making the cells of a suite: train, calibrate, evaluate, each only where it is not done yet.

Everything that takes long is resumed where it was stopped: training from its checkpoint, calibration and evaluation
from the pieces they have kept. A cell that is finished is left alone, and one that was made with other settings too,
unless somebody insists. A cell that fails does not stop the others.
"""

import dataclasses
import json
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from ashore import artifacts
from ashore.calibration.config import CalibrationConfig
from ashore.calibration.ledger import Ledger, Paused, Progress
from ashore.calibration.record import budget_in_all_units
from ashore.environments import tasks
from ashore.environments.base import Task
from ashore.environments.randomisation import Randomised
from ashore.experiments import (
    decision_work,
    provenance,
    settings,
    suite_cells,
    suite_drivers,
    suite_evaluation,
    training,
)
from ashore.experiments.calibration import FILE as CALIBRATION
from ashore.experiments.calibration import FOLDER as CALIBRATIONS
from ashore.experiments.calibration import calibrate_run
from ashore.experiments.exporting import versions
from ashore.experiments.machine import this_machine
from ashore.experiments.statistics import estimate
from ashore.experiments.suite_cells import CellSettings, Plan, WorkSettings
from ashore.experiments.suite_drivers import Driver
from ashore.experiments.suite_evaluation import OWN, Evaluation, Met
from ashore.experiments.suites import FIXED_LEVELS
from ashore.methods import registry

FAILURE = "failure.txt"
_STAGES = "evaluation_stages"

Stop = Callable[[], bool]


class Onlooker(Protocol):
    """Whoever looks on; every call returns at once."""

    def say(self, sentence: str) -> None: ...

    def training(self) -> AbstractContextManager[training.Watcher]: ...

    def progress(self, progress: Progress) -> None: ...


@dataclass(frozen=True)
class Made:
    """What became of one cell."""

    title: str
    state: Literal["finished", "skipped", "changed", "stopped", "failed"]
    why: str = ""


class Job(NamedTuple):
    """Cells that share a training run, made one after the other."""

    places: tuple[str, ...]
    """Such as 2/9, one per cell."""
    plans: tuple[Plan, ...]


def jobs(plans: Sequence[Plan]) -> list[Job]:
    """Cells grouped by the run behind them, so that no run is ever trained by two at a time."""
    grouped: dict[Path, list[Plan]] = {}
    for plan in plans:
        grouped.setdefault(plan.run or plan.folder, []).append(plan)
    found, number = [], 0
    for members in grouped.values():
        places = range(number + 1, number + 1 + len(members))
        number += len(members)
        found.append(Job(tuple(f"{place}/{len(plans)}" for place in places), tuple(members)))
    return found


def run_locally(todo: Sequence[Job], force: bool, onlooker: Onlooker, stop: Stop) -> Iterator[Made]:
    """Make all cells in this process."""
    for job in todo:
        yield from run_job(job, force, onlooker, stop)


def run_job(job: Job, force: bool, onlooker: Onlooker, stop: Stop) -> Iterator[Made]:
    """Make some cells; each is looked at anew, because the one before may have trained its run."""
    for place, plan in zip(*job, strict=True):
        made = _make(plan, force, onlooker, stop)
        onlooker.say(f"[{place}] {made.title}: {made.state}{': ' + made.why if made.why else ''}")
        yield made


def _make(plan: Plan, force: bool, onlooker: Onlooker, stop: Stop) -> Made:
    try:
        found = suite_cells.status(plan)
        if found.state == "finished":
            return Made(plan.title, "skipped", "finished before")
        if found.state == "changed":
            if not force:
                return Made(plan.title, "changed", f"made with other settings ({found.why}); --force makes it again")
            onlooker.say(f"{plan.title}: made again, because of other settings ({found.why})")
            _clear(plan, onlooker)
        _steps(plan, onlooker, stop)
    except Paused:
        return Made(plan.title, "stopped", "the same command goes on from here")
    except Exception as error:
        # One cell of many, often at night: say what happened, keep the details, go on with the others.
        plan.folder.mkdir(parents=True, exist_ok=True)
        (plan.folder / FAILURE).write_text(traceback.format_exc())
        sentence = str(error).partition("\n")[0] or type(error).__name__
        return Made(plan.title, "failed", f"{sentence} (details in {plan.folder / FAILURE})")
    (plan.folder / FAILURE).unlink(missing_ok=True)
    return Made(plan.title, "finished")


def _clear(plan: Plan, onlooker: Onlooker) -> None:
    """Take back the mark of being finished; a run that was trained otherwise is set aside and not deleted."""
    (plan.folder / suite_cells.SUMMARY).unlink(missing_ok=True)
    if plan.run is not None and suite_cells.trained_otherwise(plan):
        onlooker.say(f"{plan.title}: the old run is kept as {suite_cells.set_aside(plan.run)}")


def _steps(plan: Plan, onlooker: Onlooker, stop: Stop) -> None:
    seconds: dict[str, float] = {}

    def step(name: str, work: Callable[[], Any]) -> Any:
        if stop():
            raise Paused(name)
        if not seconds:
            provenance.note(plan.folder)
        onlooker.say(f"{plan.title}: {name}")
        begun = time.perf_counter()
        result = work()
        seconds[name] = time.perf_counter() - begun
        return result

    resolved = plan.settings
    summary = {
        "task": plan.cell.task,
        "method": plan.cell.method,
        "settings_sha256": suite_cells.fingerprint(resolved),
        "settings": suite_cells.plain(resolved),
    }
    if isinstance(resolved, WorkSettings):
        measured = step("count and time", partial(decision_work.measure, resolved.task, resolved.work))
        summary |= {"weights_sha256": None, "measured": measured}
    else:
        if not _trained(plan):
            step("train", partial(_train, plan, onlooker, stop))
        for seed in _uncalibrated(plan):
            step(f"calibrate seed {seed}", partial(_calibrate, plan, seed, onlooker, stop))
        if not _evaluated(plan):
            step("evaluate", partial(_evaluate, plan, onlooker, stop))
        evaluation, facts = suite_evaluation.read(plan.folder)
        summary |= {"weights_sha256": suite_cells.weights(plan), "results": _results(evaluation), "facts": facts}
    # Only what this call did: steps that were done before are not there, and a resumed one counts its last part.
    summary |= {"seconds": seconds, "versions": versions(), "machine": this_machine().as_dict()}
    suite_cells.write_summary(plan.folder, summary)


def _cell_settings(plan: Plan) -> CellSettings:
    assert isinstance(plan.settings, CellSettings)
    return plan.settings


def _trained(plan: Plan) -> bool:
    """Whether there is nothing left to train."""
    run = _cell_settings(plan).run
    if plan.run is None or run is None:
        return True
    if not (plan.run / training.POLICY).exists():
        return False
    return artifacts.verify_folder(plan.run / training.POLICY)["decisions"] >= run.train.decisions


def _train(plan: Plan, onlooker: Onlooker, stop: Stop) -> None:
    run = _cell_settings(plan).run
    assert plan.run is not None and run is not None
    if not (plan.run / training.CONFIG).exists():
        training.begin(run, plan.run)
    with onlooker.training() as watcher:
        ending = training.execute(plan.run, watcher, stop)
    if not ending.finished:
        raise Paused("train")
    # They hold the replay, gigabytes of it, and serve a run that is not finished.
    shutil.rmtree(plan.run / training.CHECKPOINTS, ignore_errors=True)


def _uncalibrated(plan: Plan) -> list[int]:
    """Seeds whose calibration is not there, or belongs to other weights or settings."""
    resolved = _cell_settings(plan)
    if plan.run is None or resolved.run is None or resolved.calibration is None or resolved.caution is None:
        return []
    caution = resolved.caution
    refining = json.loads(json.dumps(dataclasses.asdict(caution.refinement)))
    hashes = suite_cells.weights(plan) or [None] * resolved.run.seeds

    def fits(seed: int, content: dict[str, Any]) -> bool:
        return (
            content["weights_sha256"] == hashes[seed]
            and _as_calibrated(content["settings"]) == resolved.calibration
            and content["refinement"] == refining
            and content["compute"] == caution.compute
            and caution.caution in ("default", content["caution"])
        )

    missing = []
    for seed in range(resolved.run.seeds):
        path = plan.run / CALIBRATIONS / f"seed_{seed}" / CALIBRATION
        if not path.exists() or not fits(seed, json.loads(path.read_text())):
            missing.append(seed)
    return missing


def _as_calibrated(recorded: dict[str, Any]) -> CalibrationConfig | None:
    """The settings of a calibration; None where they are not settings of this version."""
    try:
        return settings.from_json(CalibrationConfig, recorded)
    except ValueError:
        return None


def _calibrate(plan: Plan, seed: int, onlooker: Onlooker, stop: Stop) -> None:
    resolved = _cell_settings(plan)
    assert plan.run is not None and resolved.calibration is not None and resolved.caution is not None
    calibrate_run(plan.run, seed, resolved.caution, resolved.calibration, onlooker.progress, stop)


def _evaluated(plan: Plan) -> bool:
    try:
        facts = artifacts.verify_folder(plan.folder / suite_evaluation.FOLDER)
    except artifacts.Damaged:
        return False
    made_with = (facts["settings_sha256"], facts["weights_sha256"])
    return made_with == (suite_cells.fingerprint(plan.settings), suite_cells.weights(plan))


def _evaluate(plan: Plan, onlooker: Onlooker, stop: Stop) -> None:
    resolved = _cell_settings(plan)
    family = tasks.lookup(resolved.task)
    task = family.make(family.presets[resolved.task_preset])
    ranges, own = _ranges(task, resolved)
    met = suite_evaluation.meet(task, ranges, resolved.protocol)
    hashes = suite_cells.weights(plan)
    identity = suite_cells.fingerprint(resolved)
    kept = plan.folder / _STAGES / f"{identity[:12]}_{''.join(text[:6] for text in hashes or ())}"
    ledger = Ledger(kept, onlooker.progress, stop)
    evaluation = suite_evaluation.evaluate(task, _drivers(plan, task), met, resolved.protocol, ledger)
    facts = {
        "settings_sha256": identity,
        "weights_sha256": hashes,
        "worlds_sha256": met.fingerprints,
        "own": own,
        "seeds": None if resolved.run is None else resolved.run.seeds,
        "environments": resolved.protocol.environments,
        "episodes": resolved.protocol.episodes,
        "window": suite_evaluation.window_length(task, resolved.protocol),
        "decisions_per_episode": task.description.decisions_per_episode,
        "budget": budget_in_all_units(task.description.budget),
    }
    suite_evaluation.write(plan.folder, evaluation, facts)
    shutil.rmtree(plan.folder / _STAGES)


def _ranges(task: Task, resolved: CellSettings) -> tuple[dict[str, tuple[Randomised, ...]], str | None]:
    """The shifts of the task, and the name under which the method's own training worlds are among them."""
    declared = dict(task.description.shifts)
    if resolved.run is None:
        return declared, None
    trained_in = registry.lookup(resolved.run.method).trained_by(task, resolved.run.train).ranges
    for name, rows in declared.items():
        if rows == trained_in:
            return declared, name
    return {**declared, OWN: trained_in}, OWN


def _drivers(plan: Plan, task: Task) -> list[Callable[[Met], Driver]]:
    resolved = _cell_settings(plan)
    if plan.run is None:
        # It knows the car it drives: the best that a fixed controller can do.
        method = registry.lookup(resolved.method)
        return [lambda met: suite_drivers.controller_driver(task, method, met.physics)]
    if resolved.calibration is not None:
        ready = suite_drivers.careful_drivers(plan.run)
    elif resolved.method in FIXED_LEVELS:
        ready = suite_drivers.fixed_drivers(plan.run, FIXED_LEVELS[resolved.method], resolved.protocol.compute)
    else:
        ready = suite_drivers.neutral_drivers(plan.run, resolved.protocol.compute)
    return [lambda _, driver=driver: driver for driver in ready]


def _results(evaluation: Evaluation) -> dict[str, Any]:
    """Return and cost by shift, for whoever opens the summary; tables are made from the evaluation itself."""
    return {
        shift: {
            "return": estimate(evaluation.of([shift], evaluation.episode_return).mean(axis=2))._asdict(),
            "cost": estimate(evaluation.of([shift], evaluation.episode_cost).mean(axis=2))._asdict(),
        }
        for shift in evaluation.shifts
    }
