"""Change detection, calibrated and tried: surprise of a trained policy in simulated worlds, some of which change.

Streams come from batched rollouts in which the physics of a world may switch between two decisions. The detector that
reads them is the runtime's own. What it would have done is then played out: the same rollouts again, in which a world's
posterior is forgotten, and its risk level starts again, where its alarm went off. Up to there both are the same.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from ashore import names
from ashore.calibration.careful_deployment import level_at, start_worlds
from ashore.calibration.careful_policy import CarefulPolicy
from ashore.environments import randomisation, rollout, tasks
from ashore.environments.base import Task
from ashore.environments.rollout import Worlds
from ashore.experiments import exporting
from ashore.experiments.calibration import FOLDER as CALIBRATIONS
from ashore.experiments.exporting import Calibrated, Trained
from ashore.experiments.jax_twin import Twin, twin
from ashore.experiments.machine import this_machine
from ashore.learning import normalisation
from ashore.networks import dynamics_head, encoder
from ashore.networks.encoder import NaturalPosterior
from ashore.types import Array, Parameters, Transition
from ashore_runtime import bundle as bundles
from ashore_runtime import change
from ashore_runtime.change import ChangeDetector, DetectorSettings, DetectorState
from ashore_runtime.schema import Calibration, ChangeCalibration

CALIBRATION_WORLDS = 64
"""Simulated worlds that the threshold comes from."""
MOST_ALARMS = 2
"""Alarms per world that are played out; a third within one experiment has not been seen."""
_NEVER = -1
_FILE = "change.json"


class Schedule(NamedTuple):
    """The risk level by number of transitions."""

    counts: tuple[int, ...]
    levels: tuple[float, ...]
    tempering: float


class Streams(NamedTuple):
    """What happened in every world, [world, decision]."""

    surprise: np.ndarray
    """NaN where a transition was lost."""
    cost: np.ndarray
    reward: np.ndarray
    eta: np.ndarray


def schedule_of(calibration: Calibration | None) -> Schedule:
    """The schedule of a bundle; without one, no caution."""
    if calibration is None:
        return Schedule((0,), (0.0,), 1.0)
    return Schedule(calibration.counts, calibration.eta, calibration.tempering)


def streams(
    task: Task,
    found: Twin,
    schedule: Schedule,
    before: Parameters,
    after: Parameters,
    seed: int,
    decisions: int,
    change_at: int = _NEVER,
    forget_at: np.ndarray | None = None,
) -> Streams:
    """Deploy in one world per parameter vector.

    Args:
        before, after: physics up to and from decision `change_at` on.
        decisions: how long.
        change_at: when the physics switch; -1 for never.
        forget_at: decisions whose transition was an alarm, [world, alarm]; -1 for none.
    """
    worlds = len(jax.tree.leaves(before)[0])
    none = np.full((worlds, MOST_ALARMS), _NEVER)
    keys = jax.random.split(jax.random.key(seed), worlds)
    rows = _deploy(
        task,
        found.policy,
        found.weights,
        jnp.float32(schedule.tempering),
        before,
        after,
        keys,
        jnp.asarray(schedule.levels, jnp.float32),
        jnp.int32(change_at),
        jnp.asarray(none if forget_at is None else forget_at, jnp.int32),
        counts=schedule.counts,
        decisions=decisions,
    )
    return Streams(*(np.asarray(row).swapaxes(0, 1) for row in jax.device_get(rows)))


@partial(jax.jit, static_argnames=("task", "policy", "counts", "decisions"))
def _deploy(
    task: Task,
    policy: CarefulPolicy,
    weights: Any,
    tempering: Array,
    before: Parameters,
    after: Parameters,
    keys: Array,
    levels: Array,
    change_at: Array,
    forget_at: Array,
    *,
    counts: tuple[int, ...],
    decisions: int,
) -> tuple[Array, ...]:
    prior = jax.vmap(lambda _: encoder.prior(policy.latent))(keys)
    act = jax.vmap(policy.act, in_axes=(None, 0, 0, 0))
    evidence = jax.vmap(policy.evidence, in_axes=(None, 0))
    judge = jax.vmap(partial(_surprise, policy, weights))

    def one_decision(
        carry: tuple[Worlds, NaturalPosterior], now: Array
    ) -> tuple[tuple[Worlds, NaturalPosterior], tuple[Array, ...]]:
        worlds, posterior = carry
        eta = jax.vmap(lambda seen: level_at(counts, levels, seen))(posterior.count)
        latent = jax.vmap(encoder.mean)(posterior)
        decision = act(weights, worlds.observation, latent, eta)
        changed = (change_at >= 0) & (now >= change_at)
        physics = jax.tree.map(lambda old, new: jnp.where(changed, new, old), before, after)
        worlds, transition, _ = rollout.advance(task, worlds, decision.action, physics)
        surprise = judge(transition, latent)
        alarm = jnp.any(forget_at == now, axis=1)
        # As the runtime does it: forgotten first, so that the transition that gave the alarm is the first of the new.
        kept = jax.tree.map(lambda new, old: jnp.where(_like(alarm, old), new, old), prior, posterior)
        said = evidence(weights, transition)
        said = said._replace(
            weighted_mean_sum=tempering * said.weighted_mean_sum, precision_sum=tempering * said.precision_sum
        )
        return (worlds, encoder.merge(kept, said)), (surprise, transition.cost, transition.reward, eta)

    start = (start_worlds(task, keys, before), prior)
    return jax.lax.scan(one_decision, start, jnp.arange(decisions, dtype=jnp.int32))[1]


def _like(mask: Array, values: Array) -> Array:
    return mask.reshape(-1, *(1,) * (values.ndim - 1))


def _surprise(policy: CarefulPolicy, weights: Any, transition: Transition, latent: Array) -> Array:
    """As `PolicyNetworks.surprise`: the squared error of the dynamics head, in its own scale."""
    params, normalisers = weights
    nets = policy.nets
    index = jnp.asarray(nets.features, jnp.int32)
    seen = normalisation.see(nets, normalisers.observation, transition.observation)
    expected = dynamics_head.apply(nets.dynamics, params["dynamics"], seen, transition.action, latent)
    moved = transition.next_observation[index] - transition.observation[index]
    target = normalisation.dynamics_target(normalisers, moved, transition.reward, transition.cost)
    log_scale = jnp.maximum(params["dynamics"]["log_scale"], dynamics_head.MIN_LOG_SCALE)
    scale = jnp.exp(log_scale) if nets.dynamics.scale == "learnt" else jnp.ones_like(log_scale)
    return jnp.where(transition.diverged, jnp.nan, jnp.mean(jnp.square((target - expected) / scale)))


def alarms(calibration: ChangeCalibration, stream: np.ndarray, known: np.ndarray) -> int:
    """The first alarm in a stream after those that are known (and forgot everything), or -1."""
    detector, state = ChangeDetector(calibration), DetectorState()
    earlier = set(known[known != _NEVER].tolist())
    for now, surprise in enumerate(stream.tolist()):
        if surprise != surprise:
            continue
        state, alarm = detector.after(state, surprise)
        if now in earlier:
            state = DetectorState()
        elif alarm:
            return now
    return _NEVER


def calibrated_change(
    trained: Trained, calibrated: Calibrated, decisions: int, false_alarms: float
) -> ChangeCalibration:
    """The detector's threshold for one seed of a run, measured once and kept beside the run's calibration.

    Args:
        trained: the seed.
        calibrated: its calibration; the streams follow its schedule.
        decisions: in simulation, over all worlds.
        false_alarms: per million decisions.
    """
    path = trained.folder / CALIBRATIONS / f"seed_{trained.seed_index}" / _FILE
    identity = {
        "weights_sha256": trained.sha256,
        "eta": list(calibrated.calibration.eta),
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


def measure_change(
    task: Task, found: Twin, schedule: Schedule, decisions: int, false_alarms: float, seed: int = 4_000_037
) -> ChangeCalibration:
    """Calibrate the detector on simulated worlds of the training ranges that do not change."""
    if "dynamics" not in found.weights[0]:
        raise ValueError("The policy has no dynamics head, so that nothing can surprise it.")
    settings = DetectorSettings()
    least = settings.settle + settings.baseline + 100
    worlds = min(CALIBRATION_WORLDS, max(1, decisions // least))
    key = jax.random.fold_in(jax.random.key(seed), 0)
    physics = randomisation.sample(task.description.shifts["train"], task.parameters_type, key, worlds)
    seen = streams(task, found, schedule, physics, physics, seed, max(decisions // worlds, least))
    lists = [row[np.isfinite(row)] for row in seen.surprise]
    return change.calibrate(lists, false_alarms_per_million=false_alarms)


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
    """Decisions before the change."""
    after: int = 500
    """Decisions after it."""
    shift: str | None = None
    """Ranges that the new physics come from; the last that the task declares if left out."""
    calibration_decisions: int = 100_000
    """Decisions to calibrate the detector with, where the bundle has none."""
    false_alarms: float = 1.0
    """False alarms per million to calibrate for, where the bundle has none."""
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
    """Decisions without a change that the detector watched, its baseline not counted."""
    calibration: ChangeCalibration
    delays: dict[str, np.ndarray]
    """Per world; NaN where it was not detected."""
    cost_without: dict[str, np.ndarray]
    """Mean cost per decision, [decision]."""
    cost_with: dict[str, np.ndarray]
    surprise: dict[str, np.ndarray]
    """Mean log surprise without detection, [decision]."""


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
    decisions = config.before + config.after
    before = jax.tree.map(lambda *parts: jnp.concatenate(parts), *(old for old, _ in kinds.values()))
    after = jax.tree.map(lambda *parts: jnp.concatenate(parts), *(new for _, new in kinds.values()))
    play = partial(streams, task, found, schedule, before, after, config.seed, decisions, config.before)
    without = play()
    forget = np.full((len(without.cost), MOST_ALARMS), _NEVER)
    told = without
    for number in range(MOST_ALARMS):
        forget[:, number] = [alarms(calibration, row, known) for row, known in zip(told.surprise, forget, strict=True)]
        told = play(forget)
    quiet, watched = _quiet(task, found, schedule, calibration, config)
    length = task.description.decisions_per_episode
    cases, delays = {}, {}
    for index, name in enumerate(kinds):
        mine = slice(index * config.worlds, (index + 1) * config.worlds)
        first = np.array([_first_after(row, config.before) for row in forget[mine]])
        delays[name] = first - config.before
        cases[name] = _case(delays[name], _of(without, mine), _of(told, mine), config.before, length)
    by_kind = {name: slice(i * config.worlds, (i + 1) * config.worlds) for i, name in enumerate(kinds)}
    return Outcome(
        cases,
        quiet,
        watched,
        calibration,
        delays,
        {name: without.cost[mine].mean(axis=0) for name, mine in by_kind.items()},
        {name: told.cost[mine].mean(axis=0) for name, mine in by_kind.items()},
        {
            name: np.nanmean(np.log(np.maximum(without.surprise[mine], change.LEAST_SURPRISE)), axis=0)
            for name, mine in by_kind.items()
        },
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
    seen = streams(task, found, schedule, physics, physics, config.seed + 1, decisions)
    settings, count, watched = DetectorSettings(), 0, 0
    nothing = np.full(MOST_ALARMS, _NEVER)
    for row in seen.surprise:
        alarm = alarms(calibration, row, nothing)
        count += alarm != _NEVER
        until = decisions if alarm == _NEVER else alarm + 1
        watched += max(0, until - settings.settle - settings.baseline)
    return count, watched


def _first_after(row: np.ndarray, change_at: int) -> float:
    later = row[row >= change_at]
    return float(later.min()) if len(later) else float("nan")


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
        cost_without=float(costs[0].mean()),
        cost_with=float(costs[1].mean()),
        saved=float(saved.mean()),
        saved_error=float(saved.std(ddof=1) / np.sqrt(len(saved))) if len(saved) > 1 else 0.0,
        return_without=returns[0],
        return_with=returns[1],
    )


def write(folder: Path, config: ChangeBenchmark, outcome: Outcome, facts: Mapping[str, Any]) -> tuple[Path, Path]:
    """The numbers as JSON and the figure."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {field.name: getattr(config, field.name) for field in dataclasses.fields(ChangeBenchmark)}
    content = {
        **facts,
        "machine": this_machine().as_dict(),
        "settings": {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()},
        "detector": dataclasses.asdict(outcome.calibration),
        "false_alarms": outcome.false_alarms,
        "quiet_decisions": outcome.quiet_decisions,
        "false_alarms_per_million": per_million(outcome),
        "cases": {name: case._asdict() for name, case in outcome.cases.items()},
    }
    numbers = folder / "change.json"
    numbers.write_text(json.dumps(content, indent=2) + "\n")
    return numbers, draw(folder / "change.png", config, outcome)


def per_million(outcome: Outcome) -> float:
    """False alarms per million decisions that were watched."""
    return 1e6 * outcome.false_alarms / max(outcome.quiet_decisions, 1)


def draw(path: Path, config: ChangeBenchmark, outcome: Outcome) -> Path:
    """Surprise and cost around the change, and how long it took to notice."""
    figure = Figure(figsize=(9.0, 10.0), layout="constrained")
    surprise, cost, delay = figure.subplots(3, 1)
    colours = [f"C{index}" for index in range(len(outcome.cases))]
    for colour, name in zip(colours, outcome.cases, strict=True):
        surprise.plot(*_smooth(outcome.surprise[name], config.before), color=colour, label=name)
        cost.plot(*_smooth(outcome.cost_without[name], config.before), color=colour, linestyle=":")
        cost.plot(*_smooth(outcome.cost_with[name], config.before), color=colour, label=name)
        found = np.sort(outcome.delays[name][np.isfinite(outcome.delays[name])])
        share = np.arange(1, len(found) + 1) / len(outcome.delays[name])
        delay.step(
            np.append(found, config.after),
            np.append(share, share[-1:] if len(share) else 0.0),
            where="post",
            color=colour,
            label=name,
        )
    for axes, label in ((surprise, "mean log surprise"), (cost, "cost per decision (dotted: not detected)")):
        axes.axvline(0.0, color="black", linestyle="--", linewidth=1)
        axes.set_xlabel("decisions since the change")
        axes.set_ylabel(label)
        axes.legend(fontsize="small")
    delay.set_xlabel("decisions since the change")
    delay.set_ylabel("share of worlds detected")
    delay.set_ylim(0.0, 1.02)
    figure.savefig(path, dpi=120)
    return path


def _smooth(values: np.ndarray, before: int) -> tuple[np.ndarray, np.ndarray]:
    """Means of stretches of decisions, on an axis that starts at the change."""
    stretch = max(1, min(25, before, len(values) - before))
    offset = before % stretch
    whole = (len(values) - offset) // stretch
    means = values[offset : offset + whole * stretch].reshape(whole, stretch).mean(axis=1)
    return offset + stretch * (np.arange(whole) + 0.5) - before, means
