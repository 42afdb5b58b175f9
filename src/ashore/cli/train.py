"""`ashore train TASK METHOD`: a training run, watched, stoppable and resumable."""

import json
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import tyro
from safetensors import SafetensorError

from ashore.cli.options import UsageError
from ashore.cli.train_watchers import watcher
from ashore.compilation_cache import keep_compiled_programs
from ashore.environments import tasks
from ashore.experiments import presets, provenance, records, settings, training
from ashore.methods import registry

UNFINISHED = 75
"""Exit code for "not finished, call again" (EX_TEMPFAIL)."""
_SIGNALLED = 128
"""A program ended by signal N says so with exit code 128 + N."""


@dataclass(frozen=True)
class Options:
    """Train a method on a task; or go on with a run that was stopped."""

    task: tyro.conf.Positional[str | None] = None
    """Name of the task; `ashore list` shows them. `module:FAMILY` for one of your own."""
    method: tyro.conf.Positional[str | None] = None
    """Name of the method."""
    preset: str = "laptop"
    """How long and how large: smoke, laptop, gpu, standard (Platoon) or paper."""
    task_preset: str | None = None
    """Preset of the task; its default one if left out."""
    seeds: int = 1
    """Independent repetitions, trained side by side in one program."""
    seed: int = 0
    """Where the randomness starts."""
    out: Path | None = None
    """Folder of the run; runs/TASK-METHOD-PRESET-SEED if left out."""
    set: tuple[str, ...] = ()
    """Settings to change, such as: --set worlds=512 multiplier.integral=0.01 (see --print-config for all)."""
    resume: Path | None = None
    """Folder of a run to go on with; nothing else is needed then."""
    checkpoint_seconds: float = 300.0
    """Time between checkpoints."""
    wandb: str | None = None
    """Project in Weights & Biases that shall get the metrics too; needs the wandb package and its login."""
    print_config: bool = False
    """Show the resolved configuration and do nothing."""


_DECIDED_AT_THE_START = ("task", "method", "preset", "task_preset", "seeds", "seed", "out", "set")


def run(options: Options) -> int:
    """Train to the end, or until a signal asks to stop; then say where the run is."""
    try:
        resolved = _resolve(options) if options.resume is None else _resumed(options, options.resume)
        if options.print_config:
            print(json.dumps(settings.to_json(resolved), indent=2))
            return 0
        if options.wandb is not None:
            records.require_wandb()
        folder = options.resume or _begin(options, resolved)
    except ValueError as mistake:
        raise UsageError(str(mistake)) from mistake
    keep_compiled_programs()
    provenance.note(folder)
    received: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: _stop(received, number, frame))
    try:
        with watcher() as watching:
            ending = training.execute(
                folder, watching, lambda: bool(received), options.checkpoint_seconds, options.wandb
            )
    except (OSError, SafetensorError) as problem:
        # Nearly always a full disk. What was kept before is whole: a checkpoint takes its place only when complete.
        print(
            f"ashore: {folder} can no longer be written ({problem}). Its last checkpoint is kept: make room, then go "
            f"on with: ashore train --resume {folder}",
            file=sys.stderr,
        )
        return UNFINISHED
    if ending.finished:
        print(f"run: {folder}")
        return 0
    print(f"stopped after {ending.decisions} decisions; go on with: ashore train --resume {folder}")
    return _SIGNALLED + received[0]


def _stop(received: list[int], number: int, frame: FrameType | None) -> None:
    """The first signal asks for a checkpoint; the second one is meant."""
    del frame
    if received:
        raise KeyboardInterrupt
    received.append(number)


def _begin(options: Options, resolved: training.TrainingRun) -> Path:
    task = (options.task or "").replace(":", ".")
    name = f"{task}-{options.method}-{options.preset}-{options.seed}"
    folder = options.out or Path("runs") / name
    training.begin(resolved, folder)
    return folder


def _resumed(options: Options, folder: Path) -> training.TrainingRun:
    """The run as it was begun: what else was asked for would not happen, and is refused."""
    fresh = Options()
    asked = [name for name in _DECIDED_AT_THE_START if getattr(options, name) != getattr(fresh, name)]
    if asked:
        named = ", ".join(name.replace("_", " ") for name in asked)
        raise UsageError(f"A run goes on as it was begun: --resume {folder} takes no {named}.")
    return training.load(folder)


def _resolve(options: Options) -> training.TrainingRun:
    if options.task is None or options.method is None:
        raise UsageError("Say what to train: ashore train TASK METHOD, or ashore train --resume RUN.")
    family = tasks.lookup(options.task)
    train = presets.settings_of(options.task, options.preset, registry.lookup(options.method))
    for assignment in options.set:
        train = settings.override(train, assignment)
    task_preset = options.task_preset or family.default_preset
    if task_preset not in family.presets:
        raise UsageError(f"{options.task} has the presets {', '.join(family.presets)}, not '{task_preset}'.")
    return training.TrainingRun(options.task, task_preset, options.method, train, options.seeds, options.seed)
