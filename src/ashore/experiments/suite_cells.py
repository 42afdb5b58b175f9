"""A cell on disk: the folder it owns, the settings it is made with, and whether it is finished.

    POOL/PRESET/TASK/METHOD/   config.json, metrics.jsonl, policy/, calibration/   where the method is trained
                               evaluation/                                         what happened in the unseen worlds
                               summary.json                                        written last: the cell is finished

All suites use one pool, so that a cell is made once. `without_risk_adaptation` has a folder of its own and no run: it
is the run of `risk_adaptive` at risk level 0. So have the cells at other fixed levels.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ashore import artifacts, names
from ashore.calibration.config import CalibrationConfig
from ashore.environments import tasks
from ashore.experiments import presets, settings, training
from ashore.experiments.calibration import CautionConfig
from ashore.experiments.decision_work import WorkConfig
from ashore.experiments.suite_evaluation import Protocol
from ashore.experiments.suites import CALIBRATED_LONGER, EQUAL_TERMS, FIXED_LEVELS, SCALES, SUITES, Cell, Scale, Suite
from ashore.experiments.training import TrainingRun
from ashore.methods import registry

SUMMARY = "summary.json"
SCHEMA = 1
POOL = Path("runs/suites")
TRAINED_AS = dict.fromkeys(("without_risk_adaptation", *FIXED_LEVELS), "risk_adaptive")
"""Methods that are another one's run, deployed otherwise."""
CALIBRATED = ("risk_adaptive",)
"""Methods that are deployed by a calibrated schedule."""
DECISION_WORK = "decision_work"
"""Stands in the place of a method where the work of a decision is measured."""
_MOST_NAMED = 4
"""Differences that a sentence names."""


@dataclass(frozen=True)
class CellSettings:
    """Everything that determines a cell's numbers; what does not apply to a method is None."""

    task: str
    task_preset: str
    method: str
    run: TrainingRun | None
    """The training run behind it."""
    caution: CautionConfig | None
    calibration: CalibrationConfig | None
    protocol: Protocol


@dataclass(frozen=True)
class WorkSettings:
    """Everything that determines what is counted; what is timed depends on the machine as well."""

    task: str
    work: WorkConfig


@dataclass(frozen=True)
class Plan:
    """A cell that somebody wants: where it goes and how it is made."""

    cell: Cell
    folder: Path
    run: Path | None
    """Folder of the training run behind it."""
    settings: CellSettings | WorkSettings

    @property
    def title(self) -> str:
        """What a person calls it."""
        return f"{self.cell.task} / {self.cell.method}"


@dataclass(frozen=True)
class Request:
    """What somebody asked for."""

    suite: str
    pool: Path = POOL
    preset: str | None = None
    seeds: int | None = None
    only: str | None = None
    """Such as `task=Platoon,method=nominal`; a name given twice means either."""
    set: tuple[str, ...] = ()
    """Settings to change: `train.worlds=512`, `protocol.episodes=4`, `pearl.train.beta_kl=0.01`."""


def plans(request: Request) -> list[Plan]:
    """The cells of a suite as they were asked for; runs come before what is made of them."""
    suite = names.lookup("suite", request.suite, SUITES)
    preset = request.preset or suite.preset
    scale = names.lookup("training preset", preset, SCALES)
    pool = request.pool / preset
    wanted = _chosen(suite, request.only)
    order = sorted(wanted, key=lambda cell: cell.method in TRAINED_AS)
    seeds = suite.seeds if request.seeds is None else request.seeds
    return [_plan(cell, pool, preset, scale, seeds, (*EQUAL_TERMS.get(cell.task, ()), *request.set)) for cell in order]


def folder_of(pool: Path, cell: Cell) -> Path:
    """Where a cell is; the pool is that of a preset."""
    return pool / cell.task / cell.method


def reports(pool: Path, preset: str, suite: str) -> Path:
    """Where the tables and figures of a suite go."""
    return pool / preset / "reports" / suite


def cells_of(suite: Suite) -> tuple[Cell, ...]:
    """All cells, the measured work of decisions among them."""
    return (*suite.cells, *(Cell(task, DECISION_WORK) for task in suite.decision_work))


def _chosen(suite: Suite, only: str | None) -> list[Cell]:
    cells = list(cells_of(suite))
    if only is None:
        return cells
    wanted: dict[str, list[str]] = {"task": [], "method": []}
    for part in only.split(","):
        key, equals, name = part.partition("=")
        if not equals:
            raise ValueError(f"--only has the form task=NAME,method=NAME, which '{only}' has not.")
        names.lookup("thing to choose by", key, wanted)
        names.lookup(key, name, {getattr(cell, key): None for cell in cells})
        wanted[key].append(name)
    chosen = [cell for cell in cells if all(not given or getattr(cell, key) in given for key, given in wanted.items())]
    if not chosen:
        raise ValueError(f"No cell of this suite fits '{only}'.")
    return chosen


def _plan(cell: Cell, pool: Path, preset: str, scale: Scale, seeds: int, assignments: Sequence[str]) -> Plan:
    folder = folder_of(pool, cell)
    family = tasks.lookup(cell.task)
    if cell.method == DECISION_WORK:
        for assignment in _applying(assignments, cell.method):
            if not assignment.startswith("train."):
                scale = settings.override(scale, assignment)
        return Plan(cell, folder, None, WorkSettings(cell.task, scale.work))
    trained_as = TRAINED_AS.get(cell.method, cell.method)
    longer = CALIBRATED_LONGER.get((preset, cell.task))
    scale = scale if longer is None else dataclasses.replace(scale, calibration=longer)
    method = registry.lookup(trained_as)
    train = None if method.recipe is None else presets.settings_of(cell.task, preset, method)
    for assignment in _applying(assignments, trained_as):
        if not assignment.startswith("train."):
            scale = settings.override(scale, assignment)
        elif train is not None:
            train = settings.override(train, assignment.removeprefix("train."))
    calibrated = cell.method in CALIBRATED
    run = None if train is None else TrainingRun(cell.task, family.default_preset, trained_as, train, seeds)
    resolved = CellSettings(
        task=cell.task,
        task_preset=family.default_preset,
        method=cell.method,
        run=run,
        caution=scale.caution if calibrated else None,
        calibration=scale.calibration if calibrated else None,
        protocol=scale.protocol,
    )
    return Plan(cell, folder, None if run is None else folder_of(pool, Cell(cell.task, trained_as)), resolved)


def _applying(assignments: Iterable[str], method: str) -> list[str]:
    """The assignments that concern a method: those without a method in front, and those with this one."""
    mine = []
    for assignment in assignments:
        first, _, rest = assignment.partition(".")
        if first not in registry.METHODS:
            mine.append(assignment)
        elif first == method:
            mine.append(rest)
    return mine


State = Literal["finished", "changed", "unfinished", "new"]


@dataclass(frozen=True)
class Status:
    """Where a cell stands."""

    state: State
    why: str = ""
    """Where it was made with other settings: which."""


def status(plan: Plan) -> Status:
    """Look at a cell's folder, and at that of its run."""
    otherwise = trained_otherwise(plan)
    if otherwise:
        return Status("changed", otherwise)
    summary = read_summary(plan.folder)
    if summary is None:
        return Status("unfinished" if plan.folder.exists() else "new")
    if summary["settings_sha256"] != fingerprint(plan.settings):
        differs = _differences(summary["settings"], plan.settings)
        if differs:
            return Status("changed", differs)
    trained = weights(plan)
    if trained is not None and trained != summary["weights_sha256"]:
        return Status("changed", "its run was trained again")
    return Status("finished")


def trained_otherwise(plan: Plan) -> str:
    """In what the run in its folder differs from the one that is wanted, in words; empty where in nothing."""
    if plan.run is None or not (plan.run / training.CONFIG).exists():
        return ""
    assert isinstance(plan.settings, CellSettings)
    return _differences(json.loads((plan.run / training.CONFIG).read_text()), plan.settings.run, "run.")


def plain(resolved: CellSettings | WorkSettings) -> dict[str, Any]:
    """Settings as JSON holds them."""
    return json.loads(json.dumps(settings.to_json(resolved)))


def fingerprint(resolved: CellSettings | WorkSettings) -> str:
    """A hash of everything that determines a cell's numbers."""
    return hashlib.sha256(json.dumps(plain(resolved), sort_keys=True).encode()).hexdigest()


def weights(plan: Plan) -> list[str] | None:
    """Hashes of the trained weights by seed; None where they are not here (any more)."""
    if plan.run is None or not (plan.run / training.POLICY).exists():
        return None
    files = json.loads((plan.run / training.POLICY / artifacts.MANIFEST).read_text())["files"]
    return [files[f"seed_{seed}.safetensors"]["sha256"] for seed in range(len(files))]


def read_summary(folder: Path) -> dict[str, Any] | None:
    """The summary of a finished cell."""
    try:
        content = json.loads((folder / SUMMARY).read_text())
    except FileNotFoundError:
        return None
    if content.get("schema") != SCHEMA:
        raise ValueError(f"{folder / SUMMARY} is not of schema {SCHEMA}, the only one this version reads.")
    return content


def write_summary(folder: Path, content: Mapping[str, Any]) -> Path:
    """Mark a cell as finished: the file is complete or not there."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / SUMMARY
    beside = path.with_suffix(".unfinished")
    with beside.open("w") as file:
        file.write(json.dumps({"schema": SCHEMA, **content}, indent=2, allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    return path


def set_aside(folder: Path) -> Path:
    """Move a folder out of the way, beside itself: nothing is deleted."""
    number = 1
    while (aside := folder.with_name(f"{folder.name}.replaced_{number}")).exists():
        number += 1
    return folder.rename(aside)


def _differences(old: Any, wanted: Any, prefix: str = "") -> str:
    """The settings that differ, in words; empty where none does.

    A setting that is younger than what was recorded had its default then, as `settings.from_json` has it.
    """
    before = _flat(json.loads(json.dumps(_filled(old, wanted))), prefix)
    after = _flat(json.loads(json.dumps(settings.to_json(wanted))), prefix)
    found = [
        f"{name} {_said(before, name)} -> {_said(after, name)}"
        for name in dict.fromkeys([*before, *after])
        if _said(before, name) != _said(after, name)
    ]
    more = len(found) - _MOST_NAMED
    return ", ".join(found[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _filled(old: Any, wanted: Any) -> Any:
    """What was recorded, with the defaults of all settings that it does not have."""
    if not isinstance(old, dict) or not dataclasses.is_dataclass(wanted):
        return old
    content = dict(old)
    for field in dataclasses.fields(wanted):
        if field.name in content:
            content[field.name] = _filled(content[field.name], getattr(wanted, field.name))
        elif field.default is not dataclasses.MISSING:
            nested = dataclasses.is_dataclass(field.default)
            content[field.name] = settings.to_json(field.default) if nested else field.default
    return content


def _said(values: Mapping[str, Any], name: str) -> str:
    return json.dumps(values[name]) if name in values else "nothing"


def _flat(content: Any, prefix: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        return {prefix.removesuffix("."): content}
    found: dict[str, Any] = {}
    for name, value in content.items():
        found |= _flat(value, f"{prefix}{name}.")
    return found
