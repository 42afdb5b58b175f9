"""What lies in a folder that a report could be about: runs, cells of suites, deployments, videos.

Nothing is guessed here: a file that is there is read, one that is not is left out, and one that cannot be read is an
error in one sentence. What a suite keeps world by world is brought into the form that `ashore evaluate` writes.
"""

import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ashore.environments import tasks
from ashore.experiments import provenance, records, suite_evaluation
from ashore.experiments.calibration import FILE as CALIBRATION
from ashore.experiments.calibration import FOLDER as CALIBRATIONS
from ashore.experiments.calibration import FRONTIER
from ashore.experiments.deployment_report import LOG, SUMMARY
from ashore.experiments.statistics import estimate
from ashore.experiments.training import CHECKPOINTS, CONFIG, POLICY

Content = dict[str, Any]

_DEPTH = 6
"""Folders below the one that is asked for."""
_REPLACED = ".replaced_"
"""In the name of what a suite has set aside."""
_CLOSED = {CHECKPOINTS, POLICY, "tensorboard", "stages", "__pycache__", "node_modules"}
_EVALUATIONS = "evaluation*.json"
_VIDEOS = "*.mp4"
_CHANGE = "change.json"
_MOMENTS = 300
"""Decisions at which a page shows how careful a suite's method was."""
COMPARISON = "comparison.json"
"""Ways to act in the same worlds, side by side; only in the folder that is asked for."""


class Limit(NamedTuple):
    """The cost that an episode may have."""

    per_episode: float
    source: str
    """Where that is written."""


class Calibrated(NamedTuple):
    """The calibration of one seed."""

    seed: str
    content: Content | None
    frontier: Content | None
    change: Content | None


class Run(NamedTuple):
    """A training run and what was made of it; whatever is not there is empty."""

    label: str
    """Where it is: its path below the folder that is reported."""
    name: str
    """Its method, where that tells it from the others of its task, or its label."""
    number: int
    """Its place among the runs of its task, from 0: it has the same colour everywhere."""
    config: Content
    rows: list[records.Row]
    evaluations: dict[str, Content]
    """By file name without its ending."""
    calibrations: list[Calibrated]
    notes: list[Content]
    """Commands that worked on it, with versions and machine."""
    versions: Content
    """Of what wrote its bundle."""
    limit: Limit | None
    work: list[Content]
    """What the parts of a decision take, where a suite has measured that."""

    @property
    def task(self) -> str:
        """Name of its task; empty where nobody wrote it down."""
        return str(self.config.get("task", ""))

    @property
    def method(self) -> str:
        """Name of its method; empty where nobody wrote it down."""
        return str(self.config.get("method", ""))


class Deployment(NamedTuple):
    """A deployment, decision by decision."""

    label: str
    summary: Content
    decisions: list[Content]
    notes: list[Content]


class Holdings(NamedTuple):
    """Everything in a folder."""

    name: str
    runs: list[Run]
    deployments: list[Deployment]
    videos: list[tuple[str, Path]]
    comparison: Content | None


def look(folder: Path) -> Holdings:
    """Read a folder and those below it.

    Raises:
        ValueError: one sentence about a folder that is none or holds nothing, or a file that cannot be read.
    """
    if not folder.exists():
        raise ValueError(f"There is no folder {folder}.")
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: a report is about the folder of a run, a suite or a deployment.")
    name = folder.resolve().name
    runs: list[Run] = []
    deployments: list[Deployment] = []
    videos: list[tuple[str, Path]] = []
    for place in _folders(folder):
        label = name if place == folder else place.relative_to(folder).as_posix()
        if (place / SUMMARY).is_file() and (place / LOG).is_file():
            deployments.append(_deployment(place, label))
        elif _is_run(place):
            runs.append(_run(place, label))
        videos += [(path.relative_to(folder).as_posix(), path) for path in sorted(place.glob(_VIDEOS))]
    if not (runs or deployments or videos):
        raise ValueError(
            f"{folder} holds nothing to report: neither a run ({CONFIG}, {records.METRICS}, {_EVALUATIONS}) nor a "
            f"deployment ({SUMMARY}, {LOG}) nor a video."
        )
    compared = _object(folder / COMPARISON, "shows") if (folder / COMPARISON).is_file() else None
    return Holdings(name, _told_apart(runs), deployments, videos, compared)


def _told_apart(runs: list[Run]) -> list[Run]:
    methods = [(run.task, run.method) for run in runs]
    seen: list[str] = []
    found = []
    for run in runs:
        alone = run.method and methods.count((run.task, run.method)) == 1
        found.append(run._replace(name=run.method if alone else run.label, number=seen.count(run.task)))
        seen.append(run.task)
    return found


def _folders(folder: Path) -> Iterator[Path]:
    for here, below, _ in os.walk(folder):
        depth = len(Path(here).relative_to(folder).parts)
        open_ones = [name for name in below if name not in _CLOSED and name[0] != "." and _REPLACED not in name]
        # In place: what is taken out is not walked into.
        below[:] = sorted(name for name in open_ones if not name.endswith((".bundle", ".unfinished")))
        if depth >= _DEPTH:
            below.clear()
        yield Path(here)


def _is_run(place: Path) -> bool:
    if (place / records.METRICS).is_file() or any(place.glob(_EVALUATIONS)) or any(_calibration_folders(place)):
        return True
    if _cell(place):
        return True
    return (place / CONFIG).is_file() and {"task", "method"} <= set(_object(place / CONFIG))


def _calibration_folders(place: Path) -> list[Path]:
    found = (place / CALIBRATIONS).glob("seed_*")
    return sorted(path for path in found if (path / CALIBRATION).is_file() or (path / FRONTIER).is_file())


def _run(place: Path, label: str) -> Run:
    config = _object(place / CONFIG) if (place / CONFIG).is_file() else {}
    evaluations = {path.stem: _evaluation(path) for path in sorted(place.glob(_EVALUATIONS))}
    cell = _cell(place)
    if cell:
        # A cell need not have a run of its own, and one that has may be another method than its run.
        config = {**config, **{key: cell[key] for key in ("task", "method")}}
    if "results" in cell:
        evaluations["evaluation"] = _of_cell(place)
    calibrations = [_calibrated(path) for path in _calibration_folders(place)]
    manifest = _manifest(place)
    return Run(
        label=label,
        name=label,
        number=0,
        config=config,
        rows=list(records.read(place)),
        evaluations=evaluations,
        calibrations=calibrations,
        notes=[*provenance.read(place), *([cell] if cell else [])],
        versions=manifest.get("versions", {}),
        limit=_limit(config, calibrations, manifest, cell),
        work=cell.get("measured", {}).get("components", []),
    )


def _cell(place: Path) -> Content:
    """What a suite says about a finished cell; other files may have that name."""
    content = _object(place / SUMMARY) if (place / SUMMARY).is_file() else {}
    return content if {"task", "method", "settings_sha256"} <= set(content) else {}


def _evaluation(path: Path) -> Content:
    content = _object(path, "shifts")
    for shift, result in content["shifts"].items():
        if not {"episode_return", "episode_cost"} <= set(result):
            raise ValueError(f"{path} lacks return or cost of '{shift}': it is not of the form that Ashore writes.")
    return content


def _of_cell(place: Path) -> Content:
    """The evaluation of a suite's cell, as `ashore evaluate` would have written it."""
    found, facts = suite_evaluation.read(place)

    def of(shift: str, values: np.ndarray) -> np.ndarray:
        return found.of([shift], values)

    def caution(shift: str) -> Content:
        """Risk level by decision, mean over seeds and worlds; nothing where nobody was careful."""
        eta = found.eta[:, found.shifts.index(shift)].mean(axis=0)
        # A few hundred, as dense at the start as it changes there.
        chosen = np.unique(np.geomspace(1, len(eta), _MOMENTS).round().astype(int)) if eta.any() else []
        return {"eta": {"decisions": [int(at) for at in chosen], "mean": [float(eta[at - 1]) for at in chosen]}}

    def shifted(shift: str) -> Content:
        # [seed, environment, episode]
        cost = of(shift, found.episode_cost)
        return {
            "episode_return": estimate(of(shift, found.episode_return).mean(axis=2))._asdict(),
            "episode_cost": estimate(cost.mean(axis=2))._asdict(),
            "first_cost": estimate(cost[:, :, 0])._asdict(),
            "cost_by_episode": cost.mean(axis=(0, 1)).tolist(),
            "metrics": {
                name: estimate(of(shift, values).mean(axis=2))._asdict() for name, values in found.metrics.items()
            },
            "diverged": int(of(shift, found.diverged).sum()),
            **caution(shift),
        }

    protocol = {key: facts[key] for key in ("environments", "episodes") if key in facts}
    return {"protocol": protocol, "shifts": {shift: shifted(shift) for shift in found.shifts}}


def _calibrated(folder: Path) -> Calibrated:
    def optional(name: str, *needed: str) -> Content | None:
        return _object(folder / name, *needed) if (folder / name).is_file() else None

    tables = optional(
        CALIBRATION, "budget", "counts", "etas", "eta", "infeasible", "epsilon", "per_episode", "coverage"
    )
    return Calibrated(folder.name, tables, optional(FRONTIER, "curves", "budget"), optional(_CHANGE))


def _manifest(place: Path) -> Content:
    """That of the run's first bundle, if it has one."""
    for path in sorted((place / "bundle").glob("*")):
        if (path / "manifest.json").is_file():
            return _object(path / "manifest.json")
        if path.suffix == ".zip" and zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as opened:
                return json.loads(opened.read("manifest.json")) if "manifest.json" in opened.namelist() else {}
    return {}


def _limit(config: Content, calibrations: list[Calibrated], manifest: Content, cell: Content) -> Limit | None:
    facts = cell.get("facts", {})
    if "budget" in facts:
        return Limit(facts["budget"]["per_episode"], "the suite's summaries")
    # A budget that a calibration was asked for is not what training and evaluations are about.
    asked = any((found.content or {}).get("settings", {}).get("budget") is not None for found in calibrations)
    for found in () if asked else calibrations:
        for content in (found.content, found.frontier):
            if content is not None:
                return Limit(content["budget"]["per_episode"], "the run's calibration")
    if "budget" in manifest and not asked:
        return Limit(manifest["budget"]["per_episode"], "the run's bundle")
    family = tasks.TASKS.get(str(config.get("task", "")))
    preset = str(config.get("task_preset", ""))
    if family is None or preset not in family.presets:
        return None
    declared = family.describe(family.presets[preset]).budget.per_episode
    return Limit(declared, f"{config['task']} as this version of Ashore declares it")


def _deployment(place: Path, label: str) -> Deployment:
    decisions: list[Content] = []
    for line in (place / LOG).read_text().splitlines():
        try:
            decisions.append(json.loads(line))
        except json.JSONDecodeError:
            # The last line of a deployment that was cut short.
            break
    summary = _object(place / SUMMARY, "episodes", "budget_per_episode", "decisions")
    return Deployment(label, summary, decisions, provenance.read(place))


def _object(path: Path, *needed: str) -> Content:
    """A JSON object with certain entries."""
    try:
        content = json.loads(path.read_text())
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read as JSON ({error}).") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no JSON object.")
    lacking = [name for name in needed if name not in content]
    if lacking:
        raise ValueError(f"{path} lacks {', '.join(lacking)}: it is not of the form that Ashore writes.")
    return content
