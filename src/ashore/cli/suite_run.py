"""`ashore suite run NAME`: make the cells of a suite; what is finished stays, what was stopped goes on."""

import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Literal

import tyro

from ashore.calibration.ledger import Progress
from ashore.cli.options import UsageError
from ashore.cli.train_watchers import watcher
from ashore.compilation_cache import keep_compiled_programs
from ashore.experiments import suite_cells, suite_processes, suite_ray, suite_run
from ashore.experiments.suite_cells import Plan, Request
from ashore.experiments.training import Watcher

PAUSED = 75
"""Exit code for "not finished, call again" (EX_TEMPFAIL)."""
_INCOMPLETE = 1
_SIGNALLED = 128


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train, calibrate and evaluate the cells of a suite, as far as they are not there yet."""

    name: Annotated[str, tyro.conf.arg(metavar="NAME"), tyro.conf.Positional]
    """Name of the suite: table1, ablation, ood, ood_frontier, deployment, platoon, platoon_frontier, complexity or
    smoke."""
    out: Path = suite_cells.POOL
    """Folder of all cells; suites share them. A cell is in OUT/PRESET/TASK/METHOD."""
    preset: str | None = None
    """How long and how large to train: smoke, laptop, gpu, standard (Platoon) or paper; the suite's own if left out."""
    seeds: int | None = None
    """Training seeds, trained side by side in one program; the suite's own number if left out."""
    only: str | None = None
    """Some of the cells, such as task=Platoon,method=nominal; a key given twice means either."""
    set: tuple[str, ...] = ()
    """Settings to change, such as: --set train.worlds=512 protocol.episodes=4 pearl.train.beta_kl=0.01."""
    force: bool = False
    """Make cells again that were made with other settings; their old runs are kept beside them."""
    backend: Literal["local", "ray"] = "local"
    """Where cells are made: on this machine, or as tasks of a Ray cluster (needs the extra `ray`)."""
    jobs: int = 1
    """Cells made at the same time on this machine, in processes of their own; those that share a run take turns."""
    ray_address: str | None = None
    """Address of a running Ray cluster; one is started on this machine if left out."""
    budget_minutes: float | None = None
    """Stop in time, where it can be gone on from; call again to go on."""
    dry_run: bool = False
    """Say what would be done and do nothing."""


class _Lines:
    """Looks on in lines; training has a panel of its own on a terminal."""

    def say(self, sentence: str) -> None:
        print(sentence, flush=True)

    @contextmanager
    def training(self) -> Generator[Watcher]:
        with watcher() as watching:
            yield watching

    def progress(self, progress: Progress) -> None:
        minutes, seconds = divmod(progress.seconds_left, 60.0)
        print(
            f"  {progress.piece}: {progress.done / 1e6:.2f} of {progress.planned / 1e6:.2f} M decisions; "
            f"{minutes:.0f} min {seconds:.0f} s left",
            flush=True,
        )


def run(options: Options) -> int:
    """Make what is missing and say what became of every cell."""
    request = Request(options.name, options.out, options.preset, options.seeds, options.only, options.set)
    try:
        if options.jobs < 1:
            raise ValueError(f"--jobs must be at least 1, not {options.jobs}.")
        if options.jobs > 1 and options.backend == "ray":
            raise ValueError("--jobs is for the backend local: Ray has its own way to share a machine.")
        plans = suite_cells.plans(request)
        if options.backend == "ray":
            suite_ray.require_ray()
    except ValueError as mistake:
        raise UsageError(str(mistake)) from mistake
    if options.dry_run:
        return _show(plans)
    begun = time.perf_counter()
    limit = float("inf") if options.budget_minutes is None else 60.0 * options.budget_minutes
    todo, onlooker = suite_run.jobs(plans), _Lines()
    received: list[int] = []
    if options.backend == "ray":
        try:
            made = list(suite_ray.run_on_ray(todo, options.force, onlooker, limit, options.ray_address))
        except ValueError as mistake:
            raise UsageError(str(mistake)) from mistake
    else:
        keep_compiled_programs()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: _stop(received, number, frame))

        def stop() -> bool:
            return bool(received) or time.perf_counter() - begun > limit

        if options.jobs > 1:
            made = list(suite_processes.run_in_processes(todo, options.force, onlooker, stop, limit, options.jobs))
        else:
            made = list(suite_run.run_locally(todo, options.force, onlooker, stop))
    states = [cell.state for cell in made]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    print(f"cells: {counts}; {options.out}")
    if "stopped" in states:
        return _SIGNALLED + received[0] if received else PAUSED
    return _INCOMPLETE if {"changed", "failed"} & set(states) else 0


def _show(plans: list[Plan]) -> int:
    for plan in plans:
        try:
            found = suite_cells.status(plan)
        except ValueError as damage:
            raise UsageError(str(damage)) from damage
        print(f"{plan.title}: {found.state}{' (' + found.why + ')' if found.why else ''}; {plan.folder}")
    return 0


def _stop(received: list[int], number: int, frame: FrameType | None) -> None:
    """The first signal asks to stop where it can be gone on from; the second one is meant."""
    del frame
    if received:
        raise KeyboardInterrupt
    received.append(number)
