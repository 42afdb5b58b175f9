"""From the folder of a trained run to the folder of its calibration: RUN/calibration/seed_k/.

What is computed on the way lies in `stages/`, one folder per set of settings, so that a calibration that was stopped
goes on and one with other settings does not mix with it. `calibration.json`, the figures and a page come at the end.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ashore import names
from ashore.budget import Budget
from ashore.calibration import calibrate, figures, page, record
from ashore.calibration import frontier as frontiers
from ashore.calibration.calibrate import Calibration
from ashore.calibration.careful_policy import CAUTIONS, CarefulPolicy, Caution
from ashore.calibration.config import CalibrationConfig, Subject
from ashore.calibration.frontier import Curve, FrontierConfig
from ashore.calibration.ledger import Ledger, Progress
from ashore.calibration.refinement import RefinementConfig
from ashore.environments.base import Task
from ashore.experiments import training
from ashore.experiments.evaluation import load_policies
from ashore.learning.train_config import architecture, budget

FOLDER = "calibration"
FILE = "calibration.json"
FRONTIER = "frontier.json"
_STAGES = "stages"

Report = Callable[[Progress], None]
Stop = Callable[[], bool]


@dataclass(frozen=True)
class CautionConfig:
    """Which caution is calibrated."""

    caution: str = "default"
    """`refinement`, `actor` or `both`; by default the actor where it takes a risk level, and refinement elsewhere."""
    refinement: RefinementConfig = RefinementConfig()
    compute: str = "tensorfloat32"
    """Matrix products of the rollouts; on a CPU this is float32, on a GPU the nearest that is fast."""


@dataclass(frozen=True)
class _Trained:
    """One seed of a run, ready to act."""

    run: training.TrainingRun
    task: Task
    policy: CarefulPolicy
    weights: Any
    limit: Budget
    """Which budget it is to keep."""
    sha256: str
    folder: Path
    """Where its calibration goes."""


def calibrate_run(
    run: Path, seed_index: int, caution: CautionConfig, config: CalibrationConfig, report: Report, stop: Stop
) -> tuple[Path, Calibration]:
    """Calibrate one seed of a run, for the budget that the settings name, and write what came out.

    Args:
        report: told after every piece of work.
        stop: asked before every piece but the first; when it says yes, `Paused` is raised and the next call goes on.
    """
    trained = _load(run, seed_index, caution, config.budget)
    ledger = Ledger(_stages(trained, config), report, stop)
    subject = Subject(trained.task, trained.policy, trained.weights, trained.limit)
    calibration = calibrate.calibrate(subject, config, ledger)
    trained.folder.mkdir(parents=True, exist_ok=True)
    facts = {"task": trained.run.task, "task_preset": trained.run.task_preset, "seed_index": seed_index}
    content = record.content(trained.task, trained.policy, calibration, trained.sha256, facts)
    path = trained.folder / FILE
    _write(path, content)
    text = page.text(f"{run.name}, seed {seed_index}", trained.task, trained.policy, calibration)
    (trained.folder / "README.md").write_text(text)
    figures.draw(trained.folder, calibration)
    return path, calibration


def frontier_run(
    run: Path, seed_index: int, caution: CautionConfig, config: FrontierConfig, report: Report, stop: Stop
) -> tuple[Path, dict[str, dict[str, Curve]]]:
    """Draw cost against return for every way to be careful that one seed of a run knows."""
    trained = _load(run, seed_index, caution, None)
    for shift in config.shifts:
        names.lookup("shift", shift, trained.task.description.shifts)
    known = frontiers.ways(trained.policy)
    ways = {name: names.lookup("way to be careful", name, known) for name in config.ways or known}
    ledger = Ledger(_stages(trained, config), report, stop)
    curves = frontiers.frontier(trained.task, ways, trained.weights, config, ledger)
    trained.folder.mkdir(parents=True, exist_ok=True)
    path = trained.folder / FRONTIER
    content = {
        "schema": record.SCHEMA,
        "unit": "per episode",
        "weights_sha256": trained.sha256,
        "budget": record.budget_in_all_units(trained.limit),
        "settings": dataclasses.asdict(config),
        "compute": trained.policy.nets.sizes.compute,
        "ways": {
            name: {"caution": way.caution, "refinement": dataclasses.asdict(way.refinement)}
            for name, way in ways.items()
        },
        "curves": {
            name: {shift: _lists(curve._asdict()) for shift, curve in by_shift.items()}
            for name, by_shift in curves.items()
        },
    }
    _write(path, content)
    figures.draw_frontier(trained.folder / "frontier.png", curves, trained.limit)
    return path, curves


def _load(folder: Path, seed_index: int, caution: CautionConfig, per_episode: float | None) -> _Trained:
    run = training.load(folder)
    task = training.task_of(run)
    policies = load_policies(folder)
    if not 0 <= seed_index < len(policies):
        raise ValueError(f"{folder} has the seeds 0 to {len(policies) - 1}, and not {seed_index}.")
    nets = architecture(task, run.train)
    nets = dataclasses.replace(nets, sizes=dataclasses.replace(nets.sizes, compute=caution.compute))
    wanted = caution.caution
    if wanted == "default":
        wanted = "actor" if nets.risk_conditioned else "refinement"
    known: dict[str, Caution] = {name: name for name in CAUTIONS}
    chosen = names.lookup("caution", wanted, known)
    limit = budget(task, run.train)
    if per_episode is not None:
        limit = dataclasses.replace(limit, per_episode=per_episode)
    policy = CarefulPolicy(nets, limit.discounted, chosen, caution.refinement)
    file = folder / training.POLICY / f"seed_{seed_index}.safetensors"
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    return _Trained(run, task, policy, policies[seed_index], limit, sha256, folder / FOLDER / f"seed_{seed_index}")


def _stages(trained: _Trained, config: CalibrationConfig | FrontierConfig) -> Path:
    """A folder of its own for everything that would give other numbers."""
    identity = [repr(config), repr(trained.policy), repr(trained.run), trained.sha256]
    short = hashlib.sha256("\n".join(identity).encode()).hexdigest()[:12]
    return trained.folder / _STAGES / short


def _write(path: Path, content: Mapping[str, Any]) -> None:
    beside = path.with_suffix(".unfinished")
    beside.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")
    beside.replace(path)


def _lists(arrays: Mapping[str, Any]) -> dict[str, list[float | None]]:
    """Plain numbers for JSON, which knows no NaN."""
    return {name: [float(value) if value == value else None for value in values] for name, values in arrays.items()}
