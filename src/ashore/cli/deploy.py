"""`ashore deploy BUNDLE`: a bundle in a world it never saw, watched as it goes."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import gymnasium
import numpy as np
import tyro
from rich.console import Console
from rich.live import Live
from rich.table import Table

from ashore.cli.inspect_bundle import run_instead, trusted_keys
from ashore.cli.options import UsageError
from ashore.experiments import (
    deployment,
    deployment_environment,
    deployment_report,
    deployment_supervised,
    provenance,
)
from ashore.experiments.deployment import Caution, Moment
from ashore.experiments.deployment_report import Tally
from ashore.experiments.deployment_supervised import SupervisedWorld
from ashore_runtime import ActuatorLink, Refused, bundle
from ashore_runtime.bundle import Bundle

_REFRESH = 0.2
"""Seconds between two looks of the panel."""
_INCOMPLETE = 74
"""Exit code where all was decided but not all of it could be written (EX_IOERR)."""


@dataclass(frozen=True)
class Options:
    """Run a bundle through a Gymnasium environment, careful first, and report what happened."""

    bundle: Annotated[Path, tyro.conf.arg(metavar="BUNDLE")]
    """A folder or a stored zip, as `ashore export` writes it."""
    task: str | None = None
    """Task to deploy in; the one the bundle was trained for if left out."""
    preset: str | None = None
    """Preset of the task; its default one if left out."""
    shift: str = "nominal"
    """Range that the world's physical parameters are drawn from."""
    env: str | None = None
    """Instead of a task, any Gymnasium environment as module:ID; its names and spaces must be the bundle's."""
    names: Path | None = None
    """JSON file {"observation": [...], "action": [...]} for an environment that does not name its fields itself."""
    episodes: int = 5
    """Episodes, all in the same world; what is learnt is kept from one to the next."""
    seed: int = 0
    """Chooses the world and its scenes."""
    eta: float | None = None
    """One risk level throughout instead of the calibrated schedule."""
    caution: Literal["none", "refinement", "actor", "both"] | None = None
    """Where caution comes from, instead of what the bundle says; none runs at eta = 0."""
    engine: Literal["c"] = "c"
    """C MuJoCo, one world on one core."""
    realtime: bool = False
    """Decide at the control period's pace, as on a robot."""
    supervised: bool = False
    """A supervisor owns the actuator, and sends its fallback when the policy, in a process of its own, is killed or
    hangs. Both live by the clock, so that decisions come at the control period's pace."""
    journal: bool = False
    """Also write the runtime's own journal, from which it could resume."""
    video: bool = False
    """Film it, with eta and cost written above."""
    out: Path | None = None
    """New folder for the log, the summary and the figure; the next of runs/deploy, runs/deploy-2, ... if left out."""
    require_signature: Annotated[Path | None, tyro.conf.arg(metavar="KEYFILE")] = None
    """Refuse a bundle that is not signed by a key in this file: a public key per line, perhaps with its last day."""

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise ValueError(f"There must be at least one episode, not {self.episodes}.")
        if self.seed < 0:
            raise ValueError(f"A seed must not be negative, as {self.seed} is.")
        if self.env is not None and (self.task is not None or self.preset is not None):
            raise ValueError("A deployment is in a task or in an environment, not in both.")
        if self.names is not None and self.env is None:
            raise ValueError("A file of names belongs to an environment (--env).")
        if self.supervised and self.video:
            raise ValueError("A supervised deployment is not filmed: drawing would hold the supervisor up.")
        Caution(self.eta, self.caution)


def run(options: Options) -> int:
    """Deploy, show what happens, and say where the report is."""
    try:
        link = _link() if options.supervised else None
        if link is not None:
            assert options.out is not None, "the supervisor's process has claimed a folder"
            return _deploy(options, options.out, link)
        with deployment_report.claimed(options.out) as folder:
            return _supervise(options, folder) if options.supervised else _deploy(options, folder, None)
    except (ValueError, Refused) as mistake:
        raise UsageError(run_instead(options.bundle) or str(mistake)) from mistake


def _link() -> ActuatorLink | None:
    """To the supervisor; None where nobody supervises this process, so that it is the supervisor's."""
    try:
        return ActuatorLink()
    except Refused:
        return None


def _deploy(options: Options, folder: Path, link: ActuatorLink | None) -> int:
    journal = folder / deployment_report.JOURNAL if options.journal else None
    signed = None
    if options.require_signature is not None:
        signed = bundle.load(options.bundle, trusted_keys(options.require_signature)).checksum
    runtime = deployment.load_runtime(options.bundle, Caution(options.eta, options.caution), journal)
    # It was read twice, and a checksum names every byte of it.
    if signed not in (None, runtime.bundle.checksum):
        raise Refused(f"{options.bundle} was changed after its signature was checked.")
    env, facts = _environment(options, runtime.bundle)
    if link is not None:
        print(f"policy: process {os.getpid()}", flush=True)
        env = SupervisedWorld(env, link)
    tally = Tally(runtime.bundle.manifest)
    pace = deployment.real_time(runtime) if facts["realtime"] else None
    decided = deployment.moments(runtime, env, options.episodes, options.seed, pace)
    pictures = _pictures(env) if options.video else None
    watched = _watched(decided, tally, options.episodes)
    written = deployment_report.write(folder, watched, tally, facts, pictures, _warn)
    lost = [*written.lost]
    try:
        provenance.note(folder)
    except OSError:
        lost.append(provenance.FILE)
    runtime.close()
    env.close()
    found = tally.summary()
    latency = found["latency_ms"]
    # First, since neither return nor cost is the policy's where it was not asked.
    if found["held_or_fallback"]:
        print(
            f"{found['held_or_fallback']} of {found['decisions']} decisions were held or the fallback's, not the "
            "policy's: the log says why"
        )
    print(
        f"return {found['mean_return']:.2f}, cost {found['mean_cost']:.2f} of {found['budget_per_episode']:g} per "
        f"episode; {found['episodes_over_budget']} of {options.episodes} episode(s) over the budget"
    )
    print(
        f"refined {found['refined']} of {found['decisions']} decisions; latency p50 {latency['p50']:.2f} ms, p99 "
        f"{latency['p99']:.2f} ms; {found['deadlines_missed']} deadline(s) missed"
    )
    for name in ("log", "summary", "figure", "video"):
        if (path := getattr(written, name)) is not None:
            print(f"{name}: {path}")
    incomplete = _incomplete(lost)
    return 1 if 2 * found["held_or_fallback"] > found["decisions"] else incomplete


def _incomplete(lost: Sequence[str]) -> int:
    """Say which files end too early; returns the exit code that goes with it."""
    if not lost:
        return 0
    print(f"incomplete: {', '.join(lost)} could not be written to the end")
    return _INCOMPLETE


def _warn(sentence: str) -> None:
    # Where the words go may be the disk that is full.
    with contextlib.suppress(OSError):
        print(f"ashore: {sentence}", file=sys.stderr, flush=True)


def _supervise(options: Options, folder: Path) -> int:
    """Own the actuator while the same command, once more, is the policy; say what became of it."""
    loaded = bundle.load(options.bundle, trusted_keys(options.require_signature))
    env, _ = _environment(options, loaded)
    log = folder / deployment_supervised.LOG
    command = _once_more(replace(options, out=folder))
    asked = (options.episodes, options.seed)
    found = deployment_supervised.supervise(command, env, loaded.manifest, *asked, log, _warn)
    env.close()
    tallies = found.health["tallies"]
    print(f"supervisor: {tallies['forwarded']} action(s) forwarded, mode {found.health['mode']}; log: {log}")
    if found.silent is not None:
        became = "still runs" if found.policy is None else f"ended with {found.policy}"
        print(
            f"the policy fell silent in episode {found.silent['episode'] + 1} before decision "
            f"{found.silent['decision'] + 1} and {became}; the fallback was out "
            f"{found.silent['after_last_action_ms']:.1f} ms after its last action and drove to the end of the episode"
        )
        if tallies["late"]:
            print(f"{tallies['late']} fallback(s) were out later than promised: the machine let the supervisor wait")
    incomplete = _incomplete(found.lost)
    # What the policy ended with says more; it may write to the same disk and have ended with the same.
    return 1 if found.silent is not None else found.policy or incomplete


def _once_more(options: Options) -> list[str]:
    """The command that these options came from."""
    words = [sys.executable, "-m", "ashore.cli.main", "deploy", str(options.bundle)]
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name != "bundle" and value != field.default:
            option = f"--{field.name.replace('_', '-')}"
            words += [option] if value is True else [option, str(value)]
    return words


def _environment(options: Options, loaded: Bundle) -> tuple[gymnasium.Env[Any, Any], dict[str, Any]]:
    manifest = loaded.manifest
    facts: dict[str, Any] = {
        "bundle": loaded.checksum,
        "method": manifest.method,
        "caution": options.caution or manifest.caution,
        "eta": options.eta,
        "seed": options.seed,
        "control_period": manifest.task.control_period,
        "realtime": options.realtime or options.supervised,
        "supervised": options.supervised,
    }
    if options.env is not None:
        env = deployment_environment.foreign(manifest, options.env, options.names, options.video)
        return env, facts | {"env": options.env}
    task = options.task or deployment_environment.task_of(manifest)
    parameters = deployment_environment.draw_parameters(task, options.preset, options.shift, options.seed, 1)[0]
    env = deployment_environment.world(manifest, task, options.preset, parameters, options.video)
    return env, facts | {
        "task": task,
        "preset": options.preset,
        "shift": options.shift,
        "parameters": parameters,
        "engine": options.engine,
    }


def _pictures(env: gymnasium.Env[Any, Any]) -> Iterator[np.ndarray]:
    while True:
        picture = env.render()
        if not isinstance(picture, np.ndarray):
            raise ValueError("The environment draws no pictures (render_mode rgb_array), so there is nothing to film.")
        yield picture


def _watched(decided: Iterator[Moment], tally: Tally, episodes: int) -> Iterator[Moment]:
    """The same moments; on a terminal with a panel, elsewhere with a line per episode."""
    console = Console()
    if not console.is_terminal:
        for moment in decided:
            yield moment
            if moment.ended:
                _say_episode(moment, tally, episodes)
        return
    # The panel draws between two decisions and never in a thread of its own, which would make some of them late.
    with Live(console=console, auto_refresh=False) as live:
        last = 0.0
        for moment in decided:
            yield moment
            now = time.monotonic()
            if moment.ended or now - last > _REFRESH:
                live.update(_panel(moment, tally, episodes), refresh=True)
                last = now


def _say_episode(moment: Moment, tally: Tally, episodes: int) -> None:
    ended = tally.episodes[-1]
    p50, p99 = tally.latency(0.5, 0.99, last=ended["decisions"])
    try:
        print(
            f"episode {moment.episode + 1} of {episodes}: return {ended['return']:.2f}, cost {ended['cost']:.2f} of "
            f"{tally.budget.per_episode:g}, mean eta {ended['mean_eta']:.2f}, spread {moment.spread:.3f}, "
            f"{tally.episode_steps} refinement step(s), latency p50 {p50:.2f} ms, p99 {p99:.2f} ms",
            flush=True,
        )
    except BrokenPipeError:
        raise
    except OSError:
        # A full disk again. The words are kept, and whoever flushes them at the end says what is wrong.
        return


def _panel(moment: Moment, tally: Tally, episodes: int) -> Table:
    result = moment.result
    p50, p99 = tally.latency(0.5, 0.99)
    table = Table(title=f"episode {moment.episode + 1} of {episodes}", show_header=False, title_justify="left")
    rows = {
        "mode": f"{result.mode.value}, {result.source}",
        "eta": f"{result.eta:.2f}",
        "transitions, posterior spread": f"{moment.evidence.n_real}, {moment.spread:.3f}",
        "cost of this episode": f"{tally.cost:.1f} of {tally.budget.per_episode:g}",
        "return of this episode": f"{tally.reward:.2f}",
        "refinement steps": f"{result.k_used} of {result.k_max}",
        "latency p50, p99": f"{p50:.2f} ms, {p99:.2f} ms",
        "deadlines missed": f"{tally.missed} of {tally.decisions}",
        "reasons": (result.reasons | moment.evidence.reasons).words() or "none",
    }
    for name, text in rows.items():
        table.add_row(name, text)
    return table
