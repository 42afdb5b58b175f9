"""How fast training is: experience and updates per second by method, size of the networks and number of seeds."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import jax

from ashore import names
from ashore.environments import tasks
from ashore.experiments import presets, settings
from ashore.experiments.machine import this_machine
from ashore.experiments.matrix_work import flops, measured_peak
from ashore.learning.train import TrainState
from ashore.learning.train_config import TrainConfig
from ashore.methods import registry
from ashore.networks.architecture import SIZES

DECISIONS_PER_CALL = 4


@dataclass(frozen=True)
class TrainBenchmark:
    """Measure how many env steps and updates per second a training run makes, everything included."""

    task: str = "PointGoal2"
    """Task to train on."""
    method: tuple[str, ...] = ("risk_adaptive",)
    """Methods to measure."""
    preset: str = "laptop"
    """Training preset whose worlds, batches and updates are used."""
    size: tuple[str, ...] = ()
    """Sizes of the networks (small, standard, paper); the preset's own if left out."""
    seeds: tuple[int, ...] = (1,)
    """Numbers of seeds trained side by side."""
    set: tuple[str, ...] = ()
    """Settings to change, as in `ashore train --set`."""
    seconds: float = 10.0
    """Least time to measure each row for, after compilation."""
    out: Path = Path("runs/bench_train.json")
    """File for the results, with the machine they were measured on."""

    def __post_init__(self) -> None:
        if not self.seeds or min(self.seeds) < 1:
            raise ValueError("Numbers of seeds must be given and positive.")
        if not self.seconds > 0:
            raise ValueError(f"Measuring takes more than {self.seconds} seconds.")


@dataclass(frozen=True)
class TrainSpeed:
    """One row: how fast one program trained."""

    task: str
    method: str
    size: str
    critic_width: int
    compute: str
    seeds: int
    worlds: int
    batch: int
    fractions: int
    updates_per_decision: int
    env_steps_per_second: float
    """Over all seeds."""
    updates_per_second: float
    """Over all seeds."""
    matrix_flops_per_decision: float
    """Of one decision of one seed with its updates."""
    matrix_share: float
    """Share of the device's measured matrix throughput that is used."""
    memory_bytes: int
    """What the program holds while it runs: state, replay and scratch; 0 where the backend does not say."""
    compile_seconds: float


def measure_training(config: TrainBenchmark) -> Iterator[TrainSpeed]:
    """Measure what the configuration asks for, row by row."""
    sizes = config.size or ("preset",)
    for method in config.method:
        base = presets.settings_of(config.task, config.preset, registry.lookup(method))
        for assignment in config.set:
            base = settings.override(base, assignment)
        for size in sizes:
            train = _sized(base, size)
            for seeds in config.seeds:
                yield _measure(config, method, size, train, seeds)


def _sized(train: TrainConfig, size: str) -> TrainConfig:
    if size == "preset":
        return train
    chosen = names.lookup("size", size, SIZES)
    return replace(train, sizes=replace(chosen, compute=train.sizes.compute))


def _measure(config: TrainBenchmark, method_name: str, size: str, train: TrainConfig, seeds: int) -> TrainSpeed:
    family, method = tasks.lookup(config.task), registry.lookup(method_name)
    task = family.make(family.presets[family.default_preset])
    # Learning begins with the first decision: there is nothing to wait for when only time is measured.
    # An actor that learns through the physics does so once in a chunk, which must then be as long as it is; a call is
    # one of the first four fifths of a run.
    physics = replace(train.through_physics, late=1)
    chunk = train.chunk if physics.steps else DECISIONS_PER_CALL
    train = replace(train, chunk=chunk, learning_starts=0, through_physics=physics)
    keys = jax.random.split(jax.random.key(0), seeds)
    state: TrainState = jax.jit(jax.vmap(partial(method.start, task, train)))(keys)
    work = flops(partial(method.train_chunk, task, train), jax.tree.map(lambda leaf: leaf[0], state))
    begin = time.perf_counter()
    program = jax.jit(jax.vmap(partial(method.train_chunk, task, train)), donate_argnums=0).lower(state).compile()
    compile_seconds = time.perf_counter() - begin
    memory = program.memory_analysis()
    state = jax.block_until_ready(program(state)[0])
    calls, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < config.seconds:
        state = jax.block_until_ready(program(state)[0])
        calls += 1
    decisions = calls * train.chunk * seeds / elapsed
    return TrainSpeed(
        task=config.task,
        method=method_name,
        size=size,
        critic_width=train.sizes.critic_width,
        compute=train.sizes.compute,
        seeds=seeds,
        worlds=train.worlds,
        batch=train.batch_tasks * train.batch_transitions,
        fractions=train.sizes.fractions,
        updates_per_decision=train.updates_per_decision,
        env_steps_per_second=decisions * train.worlds * task.description.action_repeat,
        updates_per_second=decisions * train.updates_per_decision,
        matrix_flops_per_decision=work / train.chunk,
        matrix_share=decisions * work / train.chunk / measured_peak(train.sizes.compute),
        memory_bytes=0 if memory is None else memory.argument_size_in_bytes + memory.temp_size_in_bytes,
        compile_seconds=compile_seconds,
    )


def write_speeds(path: Path, speeds: list[TrainSpeed]) -> Path:
    """Write the rows as JSON, with the machine they were measured on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": this_machine().as_dict(), "speeds": [asdict(speed) for speed in speeds]}
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path
