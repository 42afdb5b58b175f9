"""A training run from its configuration to its policy: start or resume, train, record, keep checkpoints, stop cleanly.

A run is a folder: `config.json` (everything resolved), `metrics.jsonl`, `tensorboard/`, `checkpoints/`, and
`policy/` with the weights of every seed once the run has ended or was stopped.
"""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from safetensors.numpy import save_file

from ashore import artifacts
from ashore.environments import tasks
from ashore.environments.base import Task
from ashore.experiments import critic_watch, records, settings
from ashore.learning import checkpoint, diagnostics, replay
from ashore.learning.train import TrainState
from ashore.learning.train_config import TrainConfig, budget, replay_config
from ashore.methods import registry
from ashore.networks.architecture import named_weights

CONFIG = "config.json"
CHECKPOINTS = "checkpoints"
POLICY = "policy"
Compiled = Callable[[TrainState], tuple[TrainState, dict[str, jax.Array]]]


@dataclass(frozen=True)
class TrainingRun:
    """Everything that determines a run's numbers."""

    task: str
    task_preset: str
    method: str
    train: TrainConfig
    seeds: int = 1
    """Independent repetitions, trained side by side in one program."""
    seed: int = 0
    """Where the randomness starts."""

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise ValueError(f"A run needs at least one seed, not {self.seeds}.")
        if self.train.decisions % self.train.chunk:
            raise ValueError(
                f"The decisions of a run ({self.train.decisions}) must be whole chunks of {self.train.chunk}."
            )


class Watcher(Protocol):
    """Whoever looks on; every call returns at once."""

    def compiling(self, run: TrainingRun, replay_bytes: int) -> None: ...

    def compiled(self, seconds: float) -> None: ...

    def progress(self, row: records.Row, run: TrainingRun) -> None: ...

    def note(self, sentence: str) -> None: ...


@dataclass(frozen=True)
class Ending:
    """How a run ended."""

    decisions: int
    finished: bool
    folder: Path


def begin(run: TrainingRun, folder: Path) -> None:
    """Claim a folder for a run by writing its configuration; a folder that holds a run already is refused."""
    registry.lookup(run.method).trained_by(task_of(run), run.train)
    if (folder / CONFIG).exists():
        raise ValueError(f"{folder} holds a run already: resume it with --resume {folder}, or choose another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(json.dumps(settings.to_json(run), indent=2) + "\n")


def load(folder: Path) -> TrainingRun:
    """The configuration of a run."""
    try:
        return settings.from_json(TrainingRun, json.loads((folder / CONFIG).read_text()))
    except FileNotFoundError:
        raise ValueError(f"{folder} holds no run: it has no {CONFIG}.") from None


def task_of(run: TrainingRun) -> Task:
    """The world that a run trains in."""
    family = tasks.lookup(run.task)
    return family.make(family.presets[run.task_preset])


def execute(
    folder: Path,
    watcher: Watcher,
    stop: Callable[[], bool],
    checkpoint_seconds: float = 300.0,
    wandb_project: str | None = None,
) -> Ending:
    """Train the run of a folder to its end, from its newest checkpoint if it has one.

    Args:
        folder: as `begin` left it, or any time later.
        watcher: told what happens.
        stop: asked after every chunk; when it says yes, a checkpoint is written and the run can be resumed.
        checkpoint_seconds: time between checkpoints.
        wandb_project: where Weights & Biases shall keep the metrics too; nowhere if left out.
    """
    run = load(folder)
    task, method = task_of(run), registry.lookup(run.method)
    for sentence in method.advice(task, run.train):
        watcher.note(sentence)
    needed = run.seeds * replay.bytes_needed(replay_config(task, run.train))
    _refuse_too_large(needed)
    watcher.compiling(run, needed)
    start = jax.jit(jax.vmap(partial(method.start, task, run.train)))
    keys = jax.random.split(jax.random.key(run.seed), run.seeds)
    state, done = _state(folder, start, keys, watcher)
    clock = time.perf_counter()
    chunk = jax.jit(jax.vmap(partial(method.train_chunk, task, run.train)), donate_argnums=0)
    compiled = chunk.lower(state).compile()
    watcher.compiled(time.perf_counter() - clock)
    session = _Session(run, task, folder, compiled, records.Records(folder, done, wandb_project), watcher)
    try:
        state, done = session.train(state, done, stop, checkpoint_seconds)
    finally:
        session.book.close()
    _write_policy(folder, state, done)
    _keep(folder, state, done)
    return Ending(done, done >= run.train.decisions, folder)


def _state(folder: Path, start: Callable[[jax.Array], TrainState], keys: jax.Array, watcher: Watcher) -> Any:
    if not any((folder / CHECKPOINTS).glob("step_*[0-9]")):
        # None yet, or only what was left of the first one when the run was killed or its disk was full.
        return start(keys), 0
    restored = checkpoint.restore(folder / CHECKPOINTS, jax.eval_shape(start, keys))
    for sentence in restored.passed_over:
        watcher.note(f"{sentence} Going on from the checkpoint before it.")
    watcher.note(f"Resuming after {restored.step} decisions.")
    return restored.state, restored.step


class _Session(NamedTuple):
    """A run that is being trained right now."""

    run: TrainingRun
    task: Task
    folder: Path
    compiled: Compiled
    book: records.Records
    watcher: Watcher

    def train(
        self, state: TrainState, done: int, stop: Callable[[], bool], checkpoint_seconds: float
    ) -> tuple[TrainState, int]:
        """Chunk after chunk, until the run is complete or somebody asks to stop."""
        train = self.run.train
        env_steps = train.chunk * train.worlds * self.task.description.action_repeat * self.run.seeds
        last_kept = clock = time.perf_counter()
        critic = critic_watch.CriticWatch(budget(self.task, train), train.decisions)
        while done < train.decisions and not stop():
            state, metrics = self.compiled(state)
            done += train.chunk
            row = _row(self.run, self.task, state, metrics, done)
            now = time.perf_counter()
            row["env_steps_per_second"], clock = env_steps / (now - clock), now
            self.book.write(row)
            self.watcher.progress(row, self.run)
            for sentence in critic.sentences(row):
                self.watcher.note(sentence)
            if now - last_kept > checkpoint_seconds:
                _keep(self.folder, state, done)
                last_kept = time.perf_counter()
        return state, done


def _row(run: TrainingRun, task: Task, state: TrainState, metrics: dict[str, jax.Array], decisions: int) -> records.Row:
    """The chunk in numbers: counters, and one number per seed for each metric."""
    row: records.Row = {
        "decisions": decisions,
        "env_steps": decisions * run.train.worlds * task.description.action_repeat,
    }
    row |= {name: _numbers(values) for name, values in jax.device_get(metrics).items()}
    worlds = (state.collector, state.parameters)
    probes = [diagnostics.probe_worlds(task, *_of_seed(worlds, seed)) for seed in range(run.seeds)]
    return row | {name: _numbers([probe[name] for probe in probes]) for name in probes[0]}


def _numbers(values: Any) -> list[float | None]:
    """Plain numbers for JSON, which knows no NaN."""
    return [float(value) if math.isfinite(value) else None for value in np.asarray(values, np.float64)]


def _keep(folder: Path, state: TrainState, decisions: int) -> None:
    checkpoint.save(folder / CHECKPOINTS, state, decisions, {"jax": jax.__version__})


def _write_policy(folder: Path, state: TrainState, decisions: int) -> None:
    """What acting needs: the networks' weights by name, and the normalisers, one file per seed."""
    files = {
        f"seed_{seed}.safetensors": partial(_write_seed, state, seed) for seed in range(len(state.learner.updates))
    }
    artifacts.write_folder(folder / POLICY, files, {"decisions": decisions})


def _write_seed(state: TrainState, seed: int, path: Path) -> None:
    params, normalisers = _of_seed((state.policy, state.normalisers), seed)
    tensors = named_weights(params)
    for name, statistics in normalisers._asdict().items():
        tensors |= {f"normaliser/{name}/{field}": value for field, value in statistics._asdict().items()}
    save_file({name: np.asarray(value, order="C") for name, value in tensors.items()}, path)


def _of_seed(tree: Any, seed: int) -> Any:
    return jax.tree.map(lambda part: part[seed], tree)


def _refuse_too_large(replay_bytes: int) -> None:
    """Ask the device before it is asked to allocate; a CPU does not say what it has."""
    figures = jax.devices()[0].memory_stats() or {}
    limit = figures.get("bytes_limit")
    if limit is not None and replay_bytes > limit:
        raise ValueError(
            f"The replay needs {replay_bytes / 2**30:.1f} GiB and the device has {limit / 2**30:.1f} GiB: train fewer "
            "seeds or worlds at a time, or remember fewer decisions (capacity)."
        )
