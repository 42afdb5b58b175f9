"""`ashore calibrate RUN`: how careful a trained policy must be after N transitions, measured in simulation."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Annotated

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from ashore.calibration import page
from ashore.calibration.calibrate import Calibration
from ashore.calibration.config import CalibrationConfig
from ashore.calibration.frontier import Curve, FrontierConfig
from ashore.calibration.ledger import Paused, Progress
from ashore.calibration.world_schedule import WorldSchedule
from ashore.cli.options import UsageError
from ashore.compilation_cache import keep_compiled_programs
from ashore.experiments import provenance, settings, training
from ashore.experiments.calibration import CautionConfig, calibrate_run, frontier_run
from ashore_runtime.schema import PERCENTILES

PAUSED = 75
"""Exit code for "not finished, call again" (EX_TEMPFAIL)."""
_SIGNALLED = 128


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure how careful a trained policy must be, and write its risk schedule; what was stopped goes on."""

    run: Annotated[Path, tyro.conf.arg(metavar="RUN"), tyro.conf.Positional]
    """Folder of the run."""
    seed_index: int = 0
    """Which of the run's seeds."""
    cost_budget: float | None = None
    """Cost per episode to keep; the one that was trained for if left out. A policy that takes a risk level serves
    smaller ones too."""
    level: float | None = None
    """Level of every quantile, 0.9 if left out; 0.5 is the paper's median."""
    environments: int | None = None
    """Simulated worlds, 128 if left out (32 per shift with --frontier)."""
    episodes: int | None = None
    """Episodes per world and cost, 16 if left out (4 with --frontier)."""
    caution: str = "default"
    """Where caution comes from: refinement, actor or both; by default the actor where it takes a risk level."""
    rule: str | None = None
    """What caution must reach: world (if left out), budget, max, paper or direct."""
    set: tuple[str, ...] = ()
    """Other settings, such as: --set refinement.variant=unit largest_count=256 etas=[0,0.5,0.9]."""
    budget_minutes: float | None = None
    """Stop after the piece of work that exceeds this; call again to go on."""
    frontier: bool = False
    """Instead, draw cost against return for every way to be careful, under every shift."""


@dataclass(frozen=True)
class _Settings:
    """Everything that --set may change."""

    caution: CautionConfig
    measured: CalibrationConfig | FrontierConfig


def run(options: Options) -> int:
    """Calibrate, show what came out, and say where it is."""
    try:
        chosen = _settings(options)
        budget = training.task_of(training.load(options.run)).description.budget.per_episode
    except ValueError as mistake:
        raise UsageError(str(mistake)) from mistake
    keep_compiled_programs()
    received: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: _stop(received, number, frame))
    console = Console()
    common = (options.run, options.seed_index, chosen.caution)
    stop = _when(options.budget_minutes, received)
    try:
        if isinstance(chosen.measured, FrontierConfig):
            path, curves = frontier_run(*common, chosen.measured, _say, stop)
            console.print(_frontier_table(curves, budget))
        else:
            path, calibration = calibrate_run(*common, chosen.measured, _say, stop)
            _show(console, calibration)
            warning = page.unsettled(calibration)
            if warning is not None:
                console.print(warning)
    except ValueError as mistake:
        raise UsageError(str(mistake)) from mistake
    except Paused:
        print("stopped; the same command goes on from here")
        return _SIGNALLED + received[0] if received else PAUSED
    provenance.note(options.run)
    print(f"{'frontier' if options.frontier else 'calibration'}: {path}")
    return 0


def _settings(options: Options) -> _Settings:
    """The defaults, then what has an option of its own, then --set."""
    of_a_schedule = (options.cost_budget, options.level, options.rule)
    if options.frontier and any(chosen is not None for chosen in of_a_schedule):
        raise ValueError("--cost-budget, --level and --rule are about a risk schedule, and --frontier makes none.")
    measured = FrontierConfig() if options.frontier else CalibrationConfig()
    given = {"environments": options.environments, "episodes": options.episodes}
    if not options.frontier:
        given |= {"budget": options.cost_budget, "level": options.level, "rule": options.rule}
    measured = replace(measured, **{name: value for name, value in given.items() if value is not None})
    caution = CautionConfig(options.caution)
    for assignment in options.set:
        name = assignment.partition("=")[0].partition(".")[0]
        if hasattr(caution, name):
            caution = settings.override(caution, assignment)
        else:
            measured = settings.override(measured, assignment)
    return _Settings(caution, measured)


def _when(minutes: float | None, received: list[int]) -> Callable[[], bool]:
    begun = time.perf_counter()
    seconds = float("inf") if minutes is None else 60.0 * minutes
    return lambda: bool(received) or time.perf_counter() - begun > seconds


def _stop(received: list[int], number: int, frame: FrameType | None) -> None:
    """The first signal asks to stop after this piece of work; the second one is meant."""
    del frame
    if received:
        raise KeyboardInterrupt
    received.append(number)


def _say(progress: Progress) -> None:
    minutes, seconds = divmod(progress.seconds_left, 60.0)
    print(
        f"{progress.piece}: {progress.done / 1e6:.2f} of {progress.planned / 1e6:.2f} M decisions, "
        f"{progress.seconds:.0f} s; {minutes:.0f} min {seconds:.0f} s left",
        flush=True,
    )


def _show(console: Console, calibration: Calibration) -> None:
    measured, schedule = calibration.measured, calibration.schedule
    title = (
        f"level {calibration.config.level:g}, rule {calibration.config.rule}; costs discounted, "
        f"budget {calibration.budget.discounted:g} = {calibration.budget.per_episode:g} per episode"
    )
    table = Table("N", "eta", "epsilon", "L_c", "|dJ_c|", "largest Delta_c", title=title, title_justify="left")
    rows = zip(
        calibration.config.counts,
        schedule.eta,
        schedule.infeasible,
        measured.epsilon.value,
        measured.lipschitz.value,
        measured.direct.value,
        measured.delta.value.max(axis=1),
        strict=True,
    )
    for count, eta, infeasible, *numbers in rows:
        level = f"{eta:g} infeasible" if infeasible else f"{eta:g}"
        table.add_row(str(count), level, *(f"{number:.3g}" for number in numbers))
    console.print(table)
    if calibration.world is not None:
        console.print(_world_table(calibration.config.counts, calibration.world))
    if calibration.strangers is not None:
        console.print(f"strangers: {page.of_strangers(calibration)}")
    if schedule.infeasible.any():
        console.print("INFEASIBLE where marked: no risk level on the grid makes up for what is not known there.")
    for name, found in (("by the schedule", calibration.scheduled), ("at eta = 0", calibration.neutral)):
        covered = found.coverage
        console.print(
            f"{name}: {covered.covered} of {covered.worlds} unseen worlds under the budget "
            f"(at least {covered.lower_bound:.3f} at {covered.confidence:g} confidence)"
        )


def _world_table(counts: tuple[int, ...], world: WorldSchedule) -> Table:
    share = world.r_squared[0]
    # Worlds that all cost the same have no variance to predict.
    predicted = f"{share:.2f}" if np.isfinite(share) else "an unknown share"
    title = f"eta over the simulated worlds; their beliefs predict {predicted} of the cost's variance"
    table = Table("N", *(f"{share} %" for share in PERCENTILES), "infeasible", title=title, title_justify="left")
    for count, found, share in zip(counts, world.table.eta_percentiles, world.infeasible.mean(axis=1), strict=True):
        table.add_row(str(count), *(f"{eta:g}" for eta in found), f"{share:.0%}")
    return table


def _frontier_table(curves: dict[str, dict[str, Curve]], budget: float) -> Table:
    title = f"cost (budget {budget:g}) and return per episode at eta = 0 and where the cost was lowest"
    table = Table("way", "shift", "eta = 0", "lowest cost", "triggered there", title=title, title_justify="left")
    for way, by_shift in curves.items():
        for shift, curve in by_shift.items():
            best = int(curve.episode_cost.argmin())
            cells = [f"{curve.episode_cost[i]:.2f} / {curve.episode_return[i]:.2f}" for i in (0, best)]
            table.add_row(way, shift, *cells, f"{curve.triggered[best]:.0%}")
    return table
