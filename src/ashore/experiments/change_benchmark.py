"""How soon a change of the dynamics is noticed, and what that is worth: the same worlds with detection and without.

Streams are played twice from the same scenes: up to the first alarm both are the same.
"""

import dataclasses
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ashore import names
from ashore.environments import randomisation, tasks
from ashore.environments.base import Task
from ashore.experiments.change_calibration import measure_change
from ashore.experiments.change_streams import Schedule, Streams, schedule_of, streams
from ashore.experiments.jax_twin import Twin, twin
from ashore.types import Parameters
from ashore_runtime import bundle as bundles
from ashore_runtime.schema import ChangeCalibration


@dataclass(frozen=True)
class ChangeBenchmark:
    """Change the dynamics in the middle of deployments; measure delay, false alarms, and cost with and without it."""

    preset: str | None = None
    """Preset of the task; its default one if left out."""
    worlds: int = 32
    """Worlds per kind of change."""
    quiet_worlds: int = 128
    """Worlds that do not change, for false alarms."""
    before: int = 500
    """Decisions before the first change; over the worlds of a kind, changes are spread evenly over one episode."""
    after: int = 500
    """Decisions after each."""
    shift: str | None = None
    """Ranges that the new physics come from; the last that the task declares if left out."""
    calibration_decisions: int = 100_000
    """Decisions to calibrate the detector with, where the bundle has none."""
    false_alarms: float = 20.0
    """False alarms per million decisions to calibrate for, where the bundle has none."""
    seed: int = 0
    out: Path = Path("runs/bench_change")
    """Folder for the figure and the numbers."""

    def __post_init__(self) -> None:
        if min(self.worlds, self.quiet_worlds, self.before, self.after) < 1:
            raise ValueError("Worlds and decisions must be at least 1.")


class Case(NamedTuple):
    """One kind of change in numbers; costs and returns are per episode, over all decisions after the change."""

    detected: float
    """Share of the worlds with an alarm after the change."""
    delay_median: float | None
    """In decisions, of the worlds that were detected."""
    delay_90: float | None
    again: float
    """Share of the worlds with another alarm after that one."""
    cost_without: float
    cost_with: float
    saved: float
    """cost_without - cost_with."""
    saved_error: float
    """Its standard error over worlds."""
    return_without: float
    return_with: float


class Outcome(NamedTuple):
    """The whole experiment."""

    cases: dict[str, Case]
    false_alarms: int
    quiet_decisions: int
    """Decisions without a change that the detector watched."""
    calibration: ChangeCalibration
    delays: dict[str, np.ndarray]
    """Per world; NaN where it was not detected."""
    cost_without: dict[str, np.ndarray]
    """Mean cost per decision, [decision]."""
    cost_with: dict[str, np.ndarray]
    gain: dict[str, np.ndarray]
    """Mean clipped gain of recent evidence without detection, [decision]."""


def per_million(outcome: Outcome) -> float:
    """False alarms per million decisions that were watched."""
    return 1e6 * outcome.false_alarms / max(outcome.quiet_decisions, 1)


def experiment(path: Path, config: ChangeBenchmark) -> Outcome:
    """Run the experiment for a bundle."""
    loaded = bundles.load(path)
    family = tasks.lookup(loaded.manifest.task.name)
    preset = names.lookup("preset", config.preset or family.default_preset, family.presets)
    task = family.make(preset)
    found, schedule = twin(loaded.manifest, loaded.weights), schedule_of(loaded.calibration)
    calibration = loaded.calibration.change if loaded.calibration else None
    if calibration is None:
        calibration = measure_change(task, found, schedule, config.calibration_decisions, config.false_alarms)
    shifts = task.description.shifts
    shift = names.lookup("shift", config.shift or list(shifts)[-1], shifts)
    kinds = changes(task, shift, config)
    length = task.description.decisions_per_episode
    # What a policy does, and so what can be noticed, depends on how long an episode has lasted.
    moments = np.tile(config.before + np.arange(config.worlds) * length // config.worlds, len(kinds))
    decisions = config.before + length + config.after
    before = jax.tree.map(lambda *parts: jnp.concatenate(parts), *(old for old, _ in kinds.values()))
    after = jax.tree.map(lambda *parts: jnp.concatenate(parts), *(new for _, new in kinds.values()))
    play = partial(streams, task, found, schedule, before, after, config.seed, decisions, moments)
    silent = dataclasses.replace(calibration, threshold=float("inf"))
    without, told = (_around(play(detector=one), moments, config) for one in (silent, calibration))
    quiet, watched = _quiet(task, found, schedule, calibration, config)
    by_kind = {name: slice(i * config.worlds, (i + 1) * config.worlds) for i, name in enumerate(kinds)}
    cases, delays = {}, {}
    for name, mine in by_kind.items():
        alarms = told.alarm[mine, config.before :]
        delays[name] = np.where(alarms.any(axis=1), alarms.argmax(axis=1), np.nan)
        cases[name] = _case(delays[name], _of(without, mine), _of(told, mine), config.before, length)
    clipped = np.clip(without.gain, -calibration.clip, calibration.clip)
    return Outcome(
        cases,
        quiet,
        watched,
        calibration,
        delays,
        {name: without.cost[mine].mean(axis=0) for name, mine in by_kind.items()},
        {name: told.cost[mine].mean(axis=0) for name, mine in by_kind.items()},
        {name: np.nanmean(clipped[mine], axis=0) for name, mine in by_kind.items()},
    )


def changes(
    task: Task, shift: tuple[randomisation.Randomised, ...], config: ChangeBenchmark
) -> dict[str, tuple[Parameters, Parameters]]:
    """Physics before and after, by kind of change: each parameter alone jumps to the farther end of its range in the
    shift, and all of them at once are drawn anew from it."""
    key = jax.random.fold_in(jax.random.key(5_000_011), config.seed)
    train, kind = task.description.shifts["train"], task.parameters_type
    old = randomisation.sample(train, kind, key, config.worlds)
    found = {}
    for row in shift:
        value = getattr(old, row.name)
        low, high = jnp.float32(row.low), jnp.float32(row.high)
        farther = jnp.where(jnp.abs(value - low) > jnp.abs(value - high), low, high)
        found[row.name] = (old, old._replace(**{row.name: farther}))
    redrawn = randomisation.sample(shift, kind, jax.random.fold_in(key, 1), config.worlds)
    return {**found, "all, drawn anew": (old, redrawn)}


def _quiet(
    task: Task, found: Twin, schedule: Schedule, calibration: ChangeCalibration, config: ChangeBenchmark
) -> tuple[int, int]:
    """False alarms in worlds that do not change, and the decisions that were watched for them."""
    key = jax.random.fold_in(jax.random.key(6_000_011), config.seed)
    physics = randomisation.sample(task.description.shifts["train"], task.parameters_type, key, config.quiet_worlds)
    decisions = config.before + config.after
    seen = streams(task, found, schedule, physics, physics, config.seed + 1, decisions, detector=calibration)
    return int(seen.alarm.sum()), seen.alarm.size


def _around(whole: Streams, moments: np.ndarray, config: ChangeBenchmark) -> Streams:
    """Every world from `before` decisions before its change to `after` decisions after it."""
    place = moments[:, None] + np.arange(-config.before, config.after)
    return Streams(*(np.take_along_axis(part, place, axis=1) for part in whole))


def _of(whole: Streams, mine: slice) -> Streams:
    return Streams(*(part[mine] for part in whole))


def _case(delays: np.ndarray, without: Streams, told: Streams, before: int, length: int) -> Case:
    known = delays[np.isfinite(delays)]
    costs = [part.cost[:, before:].mean(axis=1, dtype=np.float64) * length for part in (without, told)]
    returns = [float(part.reward[:, before:].mean() * length) for part in (without, told)]
    saved = costs[0] - costs[1]
    return Case(
        detected=len(known) / len(delays),
        delay_median=float(np.median(known)) if len(known) else None,
        delay_90=float(np.quantile(known, 0.9)) if len(known) else None,
        again=float((told.alarm[:, before:].sum(axis=1) > 1).mean()),
        cost_without=float(costs[0].mean()),
        cost_with=float(costs[1].mean()),
        saved=float(saved.mean()),
        saved_error=float(saved.std(ddof=1) / np.sqrt(len(saved))) if len(saved) > 1 else 0.0,
        return_without=returns[0],
        return_with=returns[1],
    )
