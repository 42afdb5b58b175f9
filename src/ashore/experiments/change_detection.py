"""Change detection, calibrated and tried: a trained policy in simulated worlds, some of which change.

Streams come from batched rollouts in which the physics of a world may switch between two decisions. They are played
twice, with the runtime's detector and without one, from the same scenes: up to the first alarm both are the same.
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
from ashore.calibration import change_threshold
from ashore.calibration.careful_deployment import start_worlds
from ashore.calibration.careful_policy import CarefulPolicy
from ashore.calibration.risk_level import Levels, careful_start, level_at, on_device
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
from ashore_runtime.limits import Limits
from ashore_runtime.schema import Calibration, ChangeCalibration, WorldCalibration

RUN_LENGTH = 1000
"""Decisions of each quiet run that the threshold comes from: short enough for many worlds, long enough for all a
policy does in one."""
UNDISTURBED = ChangeCalibration(threshold=float("inf"))
"""A detector that never speaks."""
_NEVER = -1
_FILE = "change.json"


class Schedule(NamedTuple):
    """The risk level by number of transitions, and by what is believed where there is a world table."""

    counts: tuple[int, ...]
    levels: tuple[float, ...] | WorldCalibration
    tempering: float
    patience: int = Limits().patience
    """Transitions after an alarm for which caution is not given up."""


class Streams(NamedTuple):
    """What happened in every world, [world, decision]."""

    gain: np.ndarray
    """What the detector accumulates, in nats; NaN where a transition was lost."""
    surprise: np.ndarray
    """NaN where a transition was lost."""
    cost: np.ndarray
    reward: np.ndarray
    eta: np.ndarray
    alarm: np.ndarray
    """Whether the transition was an alarm, after which the posterior started afresh."""


def schedule_of(calibration: Calibration | None) -> Schedule:
    """The schedule of a bundle; without one, no caution."""
    if calibration is None:
        return Schedule((0,), (0.0,), 1.0)
    return Schedule(calibration.counts, calibration.world or calibration.eta, calibration.tempering)


def streams(
    task: Task,
    found: Twin,
    schedule: Schedule,
    before: Parameters,
    after: Parameters,
    seed: int,
    decisions: int,
    change_at: np.ndarray | int = _NEVER,
    detector: ChangeCalibration = UNDISTURBED,
) -> Streams:
    """Deploy in one world per parameter vector.

    Args:
        before, after: physics up to and from decision `change_at` on.
        decisions: how long.
        change_at: when the physics switch, of every world or [world]; -1 for never.
        detector: what is an alarm.
    """
    worlds = len(jax.tree.leaves(before)[0])
    keys = jax.random.split(jax.random.key(seed), worlds)
    rows = _deploy(
        task,
        found.policy,
        found.weights,
        jnp.float32(schedule.tempering),
        before,
        after,
        keys,
        on_device(np.asarray(schedule.levels) if isinstance(schedule.levels, tuple) else schedule.levels),
        jnp.asarray(np.broadcast_to(change_at, worlds), jnp.int32),
        _Watch(*(jnp.float32(getattr(detector, name)) for name in _Watch._fields)),
        counts=schedule.counts,
        patience=schedule.patience,
        decisions=decisions,
    )
    return Streams(*(np.asarray(row).swapaxes(0, 1) for row in jax.device_get(rows)))


class _Watch(NamedTuple):
    """The numbers of a `ChangeCalibration`, on the device: another threshold is no other program."""

    threshold: Array
    drift: Array
    clip: Array
    memory: Array


class _Deployed(NamedTuple):
    """What is carried from one decision to the next, worlds first."""

    worlds: Worlds
    posterior: NaturalPosterior
    total: Array
    """The CUSUM."""
    recent: NaturalPosterior
    fresh: NaturalPosterior
    """As in `ashore_runtime.change`."""
    held: Array
    """Transitions for which caution must not be given up, int32."""
    least: Array
    """Risk level below which it is not given up meanwhile."""


@partial(jax.jit, static_argnames=("task", "policy", "counts", "patience", "decisions"))
def _deploy(
    task: Task,
    policy: CarefulPolicy,
    weights: Any,
    tempering: Array,
    before: Parameters,
    after: Parameters,
    keys: Array,
    levels: Levels,
    change_at: Array,
    watch: _Watch,
    *,
    counts: tuple[int, ...],
    patience: int,
    decisions: int,
) -> tuple[Array, ...]:
    prior = jax.vmap(lambda _: encoder.prior(policy.latent))(keys)
    act = jax.vmap(policy.act, in_axes=(None, 0, 0, 0))
    evidence = jax.vmap(policy.evidence, in_axes=(None, 0))
    judge = jax.vmap(partial(_judge, policy, weights))

    def moved(found: NaturalPosterior, said: NaturalPosterior) -> NaturalPosterior:
        """As `posterior.fade` and then `add`."""
        share = 1.0 - 1.0 / watch.memory
        count = jnp.minimum(found.count, watch.memory.astype(jnp.int32) - 1)
        return encoder.merge(
            NaturalPosterior(share * found.weighted_mean_sum, share * found.precision_sum, count), said
        )

    def one_decision(carry: _Deployed, now: Array) -> tuple[_Deployed, tuple[Array, ...]]:
        latent = jax.vmap(encoder.mean)(carry.posterior)
        eta = jax.vmap(lambda seen, belief: level_at(counts, levels, seen, belief))(carry.posterior.count, latent)
        eta = jnp.where(carry.held > 0, jnp.maximum(carry.least, eta), eta)
        decision = act(weights, carry.worlds.observation, latent, eta)
        changed = (change_at >= 0) & (now >= change_at)
        physics = jax.tree.map(lambda old, new: jnp.where(changed, new, old), before, after)
        worlds, transition, _ = rollout.advance(task, carry.worlds, decision.action, physics)
        gain, surprise = judge(transition, latent, jax.vmap(encoder.mean)(carry.recent))
        said = evidence(weights, transition)
        said = said._replace(
            weighted_mean_sum=tempering * said.weighted_mean_sum, precision_sum=tempering * said.precision_sum
        )
        # As the runtime does it: judged, then learnt from, then begun afresh where that was an alarm.
        total = jnp.maximum(carry.total + jnp.clip(gain, -watch.clip, watch.clip) - watch.drift, 0.0)
        alarm = total > watch.threshold
        recent = moved(carry.recent, said)
        fresh = _where(total > 0.0, moved(carry.fresh, said), prior)
        following = _Deployed(
            worlds,
            _where(alarm, fresh, encoder.merge(carry.posterior, said)),
            jnp.where(alarm, 0.0, total),
            _where(alarm, fresh, recent),
            _where(alarm, prior, fresh),
            jnp.where(alarm, patience, jnp.maximum(carry.held - 1, 0)),
            jnp.where(alarm, jnp.maximum(eta, careful_start(levels)), eta),
        )
        # A transition that was lost leaves no trace in the runtime; its gain is not a number, and so no alarm.
        lost = transition.diverged
        following = following._replace(
            total=jnp.where(lost, carry.total, following.total),
            recent=_where(lost, carry.recent, following.recent),
            fresh=_where(lost, carry.fresh, following.fresh),
        )
        return following, (gain, surprise, transition.cost, transition.reward, eta, alarm)

    nothing = jnp.zeros(keys.shape[0], jnp.int32)
    total = jnp.zeros(keys.shape[0], jnp.float32)
    start = _Deployed(start_worlds(task, keys, before), prior, total, prior, prior, nothing, total)
    return jax.lax.scan(one_decision, start, jnp.arange(decisions, dtype=jnp.int32))[1]


def _where(mask: Array, chosen: NaturalPosterior, other: NaturalPosterior) -> NaturalPosterior:
    """One posterior per world, chosen where the mask is true."""
    return jax.tree.map(lambda new, old: jnp.where(mask.reshape(-1, *(1,) * (old.ndim - 1)), new, old), chosen, other)


def _judge(
    policy: CarefulPolicy, weights: Any, transition: Transition, latent: Array, recent: Array
) -> tuple[Array, Array]:
    """Gain and surprise of one transition, as the runtime computes them (`PolicyNetworks`); NaN if it diverged."""
    params, normalisers = weights
    nets = policy.nets
    index = jnp.asarray(nets.features, jnp.int32)
    seen = normalisation.see(nets, normalisers.observation, transition.observation)
    moved = transition.next_observation[index] - transition.observation[index]
    target = normalisation.dynamics_target(normalisers, moved, transition.reward, transition.cost)
    log_scale = jnp.maximum(params["dynamics"]["log_scale"], dynamics_head.MIN_LOG_SCALE)
    scale = jnp.exp(log_scale) if nets.dynamics.scale == "learnt" else jnp.ones_like(log_scale)

    def squares(z: Array) -> Array:
        expected = dynamics_head.apply(nets.dynamics, params["dynamics"], seen, transition.action, z)
        return jnp.square((target - expected) / scale)

    by_all, by_recent = squares(latent), squares(recent)
    gain = 0.5 * jnp.sum((by_all - by_recent)[: len(nets.features)])
    lost = transition.diverged
    return jnp.where(lost, jnp.nan, gain), jnp.where(lost, jnp.nan, jnp.mean(by_all))


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
        "statistic": "gain of recent evidence",
        "weights_sha256": trained.sha256,
        "eta": list(calibrated.calibration.eta),
        "world": calibrated.calibration.to_json().get("world"),
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
        raise ValueError("The policy has no dynamics head, so that nothing it predicts can be compared.")
    length = min(RUN_LENGTH, decisions)
    worlds = decisions // length
    # Before the simulation, which takes minutes, and not after it.
    change_threshold.check_length(worlds, length, false_alarms)
    key = jax.random.fold_in(jax.random.key(seed), 0)
    physics = randomisation.sample(task.description.shifts["train"], task.parameters_type, key, worlds)
    seen = streams(task, found, schedule, physics, physics, seed, length)
    return change_threshold.calibrate(seen.gain, seen.surprise, false_alarms)


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


def write(folder: Path, config: ChangeBenchmark, outcome: Outcome, facts: Mapping[str, Any]) -> tuple[Path, Path]:
    """The numbers as JSON and the figure."""
    folder.mkdir(parents=True, exist_ok=True)
    # Where the file lies says the file itself.
    named = [field.name for field in dataclasses.fields(ChangeBenchmark) if field.name != "out"]
    content = {
        **facts,
        "machine": this_machine().as_dict(),
        "settings": {name: getattr(config, name) for name in named},
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
    """Gain and cost around the change, and how long it took to notice."""
    figure = Figure(figsize=(9.0, 10.0), layout="constrained")
    gain, cost, delay = figure.subplots(3, 1)
    colours = [f"C{index}" for index in range(len(outcome.cases))]
    for colour, name in zip(colours, outcome.cases, strict=True):
        gain.plot(*_smooth(outcome.gain[name], config.before), color=colour, label=name)
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
    for axes, label in ((gain, "gain of recent evidence, nats"), (cost, "cost per decision (dotted: not detected)")):
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
