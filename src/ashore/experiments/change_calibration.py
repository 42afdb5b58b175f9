"""The change detector's drift and threshold: measured in simulated worlds without a change, and kept beside the run."""

import dataclasses
import json

import jax

from ashore.calibration import change_threshold
from ashore.environments import randomisation
from ashore.environments.base import Task
from ashore.experiments import exporting
from ashore.experiments.calibration import FOLDER as CALIBRATIONS
from ashore.experiments.change_streams import Schedule, Streams, schedule_of, streams
from ashore.experiments.exporting import Calibrated, Trained
from ashore.experiments.jax_twin import Twin, twin
from ashore_runtime.schema import ChangeCalibration

RUN_LENGTH = 1000
"""Decisions of each quiet run that the threshold comes from: short enough for many worlds, long enough for all a
policy does in one."""
_FILE = "change.json"


def calibrated_change(
    trained: Trained, calibrated: Calibrated, decisions: int, false_alarms: float
) -> ChangeCalibration:
    """The detector for one seed of a run, measured once and kept beside the run's calibration.

    Args:
        trained: the seed.
        calibrated: its calibration; the streams follow its schedule.
        decisions: in simulation, over all worlds that the threshold comes from.
        false_alarms: per million decisions.
    """
    path = trained.folder / CALIBRATIONS / f"seed_{trained.seed_index}" / _FILE
    identity = {
        "statistic": "gain of recent evidence",
        "drifts": list(change_threshold.DRIFTS),
        "weights_sha256": trained.sha256,
        "eta": list(calibrated.calibration.eta),
        "world": calibrated.calibration.to_json().get("world"),
        "refined_towards": _refined_towards(calibrated),
        "decisions": decisions,
        "false_alarms_per_million": false_alarms,
    }
    if path.exists():
        kept = json.loads(path.read_text())
        if all(kept.get(name) == value for name, value in identity.items()):
            return ChangeCalibration(**kept["change"])
    manifest = exporting.describe(trained, calibrated.content)
    found = measure_change(
        trained.task,
        twin(manifest, trained.weights),
        schedule_of(calibrated.calibration),
        decisions,
        false_alarms,
    )
    path.write_text(json.dumps({**identity, "change": dataclasses.asdict(found)}, indent=2) + "\n")
    return found


def _refined_towards(calibrated: Calibrated) -> float | None:
    """The discounted budget that decides about actions; None where the actor itself is careful."""
    content = calibrated.content
    return None if content["caution"] == "actor" else content["budget"]["discounted"]


def measure_change(
    task: Task, found: Twin, schedule: Schedule, decisions: int, false_alarms: float, seed: int = 4_000_037
) -> ChangeCalibration:
    """Calibrate the detector on simulated worlds of the training ranges that do not change.

    Args:
        decisions: in the worlds that the threshold comes from; the drift is chosen in as many others.
    """
    if "dynamics" not in found.weights[0]:
        raise ValueError("The policy has no dynamics head, so that nothing it predicts can be compared.")
    length = min(RUN_LENGTH, decisions)
    worlds = decisions // length
    # Before the simulation, which takes minutes, and not after it.
    change_threshold.check_length(worlds, length, false_alarms)

    def quiet(seed: int) -> Streams:
        key = jax.random.fold_in(jax.random.key(seed), 0)
        physics = randomisation.sample(task.description.shifts["train"], task.parameters_type, key, worlds)
        return streams(task, found, schedule, physics, physics, seed, length)

    drift = change_threshold.choose_drift(quiet(seed + 1).gain, false_alarms)
    seen = quiet(seed)
    return change_threshold.calibrate(seen.gain, seen.surprise, false_alarms, drift)
