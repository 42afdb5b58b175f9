"""Every method in the same unseen worlds: environments x episodes under every shift, adaptation included.

A world is its physics and a key. Both follow from the protocol and the name of the shift alone, so that all methods,
and all seeds of each, meet the same worlds and the same scenes. The posterior starts at the prior and is kept from
episode to episode. What is kept is what happened in each world and not averages: every table can be made from it again.
"""

import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file, save_file

from ashore import artifacts
from ashore.calibration.careful_deployment import start_worlds
from ashore.calibration.careful_policy import Agent
from ashore.calibration.ledger import Ledger
from ashore.calibration.risk_level import Levels, level_at, on_device
from ashore.environments import randomisation, rollout
from ashore.environments.base import Task
from ashore.environments.randomisation import Randomised
from ashore.environments.rollout import Worlds
from ashore.experiments.suite_drivers import Driver
from ashore.networks import encoder
from ashore.networks.encoder import NaturalPosterior
from ashore.types import Array, Parameters

OWN = "own"
"""Name of the draws from the ranges that a method was trained in, where the task declares no shift with these."""
FOLDER = "evaluation"
_FILE = "worlds.safetensors"
_METRIC = "metric/"


@dataclass(frozen=True)
class Protocol:
    """How a method is evaluated."""

    environments: int = 64
    """Worlds per shift, each with physical parameters of its own."""
    episodes: int = 10
    """Episodes in each world; what is learnt about it is kept from one to the next."""
    windows: int = 10
    """Stretches per episode for which cost and return are kept; they must divide an episode."""
    compute: str = "tensorfloat32"
    """Matrix products of policies that were not calibrated; the others keep what they were calibrated in."""
    seed: int = 1_000_003
    """Where the worlds come from; training and calibration draw from other keys."""

    def __post_init__(self) -> None:
        if min(self.environments, self.episodes, self.windows) < 1:
            raise ValueError("An evaluation needs at least one environment, one episode and one window.")


class Met(NamedTuple):
    """The worlds of an evaluation, one shift after the other."""

    shifts: tuple[str, ...]
    physics: Parameters
    """Fields [shift * environment]."""
    keys: Array
    """Where their scenes come from, [shift * environment]."""
    fingerprints: dict[str, str]
    """A hash of physics and keys by shift: equal means the same worlds."""


class Evaluation(NamedTuple):
    """What happened: everything leads with [seed, shift]."""

    shifts: tuple[str, ...]
    episode_return: np.ndarray
    """[seed, shift, environment, episode], as are cost and metrics."""
    episode_cost: np.ndarray
    metrics: dict[str, np.ndarray]
    """The task's own figures."""
    window_reward: np.ndarray
    """Sum over each stretch, [seed, shift, environment, window]."""
    window_cost: np.ndarray
    eta: np.ndarray
    """Risk level by decision, averaged over environments, [seed, shift, decision]."""
    triggered: np.ndarray
    """Share of decisions that refinement wanted to change, [seed, shift, environment]."""
    diverged: np.ndarray
    """How often each world was lost, [seed, shift, environment]."""

    def of(self, shifts: Sequence[str], values: np.ndarray) -> np.ndarray:
        """The part of an array that belongs to some shifts, environments side by side: [seed, environment, ...]."""
        return np.concatenate([values[:, self.shifts.index(shift)] for shift in shifts], axis=1)


def meet(task: Task, ranges: Mapping[str, tuple[Randomised, ...]], protocol: Protocol) -> Met:
    """Draw the worlds of every shift."""
    drawn, keys, fingerprints = [], [], {}
    for shift, rows in ranges.items():
        # By name and not by place: a task that declares one more shift keeps the worlds of the others.
        key = jax.random.fold_in(jax.random.key(protocol.seed), zlib.crc32(shift.encode()))
        physics_key, scene_key = jax.random.split(key)
        drawn.append(randomisation.sample(rows, task.parameters_type, physics_key, protocol.environments))
        keys.append(jax.random.split(scene_key, protocol.environments))
        parts = [*jax.tree.leaves(drawn[-1]), jax.random.key_data(keys[-1])]
        fingerprints[shift] = hashlib.sha256(b"".join(np.asarray(part).tobytes() for part in parts)).hexdigest()
    physics = jax.tree.map(lambda *parts: jnp.concatenate(parts), *drawn)
    return Met(tuple(ranges), physics, jnp.concatenate(keys), fingerprints)


def window_length(task: Task, protocol: Protocol) -> int:
    """Decisions in a stretch."""
    length = task.description.decisions_per_episode
    if length % protocol.windows:
        raise ValueError(f"{protocol.windows} windows do not divide an episode of {length} decisions.")
    return length // protocol.windows


class _Course(NamedTuple):
    """One deployment in each world, worlds first."""

    episode_return: Array
    episode_cost: Array
    metrics: dict[str, Array]
    window_reward: Array
    window_cost: Array
    eta: Array
    triggered: Array
    diverged: Array


@partial(jax.jit, static_argnames=("task", "agent", "weights_axis", "counts", "protocol"))
def _deploy(
    task: Task,
    agent: Agent,
    weights: Any,
    levels: Levels,
    tempering: Array,
    physics: Parameters,
    keys: Array,
    *,
    weights_axis: int | None,
    counts: tuple[int, ...],
    protocol: Protocol,
) -> _Course:
    length, count = task.description.decisions_per_episode, keys.shape[0]
    prior = jax.vmap(lambda _: encoder.prior(agent.latent))(jnp.arange(count))
    act = jax.vmap(agent.act, in_axes=(weights_axis, 0, 0, 0))
    listen = jax.vmap(agent.evidence, in_axes=(weights_axis, 0))

    def one_decision(
        carry: tuple[Worlds, NaturalPosterior], _: None
    ) -> tuple[tuple[Worlds, NaturalPosterior], tuple[Any, ...]]:
        worlds, posterior = carry
        latent = jax.vmap(encoder.mean)(posterior)
        eta = jax.vmap(lambda seen, belief: level_at(counts, levels, seen, belief))(posterior.count, latent)
        decision = act(weights, worlds.observation, latent, eta)
        worlds, transition, finished = rollout.advance(task, worlds, decision.action, physics)
        said = listen(weights, transition)
        said = said._replace(
            weighted_mean_sum=tempering * said.weighted_mean_sum, precision_sum=tempering * said.precision_sum
        )
        row = (transition.reward, transition.cost, eta, decision.triggered, finished.metrics)
        return (worlds, encoder.merge(posterior, said)), row

    start = (start_worlds(task, keys, physics), prior)
    (worlds, _), rows = jax.lax.scan(one_decision, start, None, length=protocol.episodes * length)
    reward, cost, eta, triggered, metrics = jax.tree.map(lambda row: jnp.swapaxes(row, 0, 1), rows)

    def summed(values: Array, pieces: int) -> Array:
        return jnp.sum(values.reshape(count, pieces, -1), axis=2)

    windows = protocol.episodes * protocol.windows
    last = jnp.arange(1, protocol.episodes + 1) * length - 1
    return _Course(
        # Episodes are counted by decisions: where one ends early, the next belongs to the same stretch of time.
        episode_return=summed(reward, protocol.episodes),
        episode_cost=summed(cost, protocol.episodes),
        metrics={name: values[:, last] for name, values in metrics.items()},
        window_reward=summed(reward, windows),
        window_cost=summed(cost, windows),
        eta=eta,
        triggered=jnp.mean(triggered.astype(jnp.float32), axis=1),
        diverged=worlds.diverged,
    )


def evaluate(
    task: Task, drivers: Sequence[Callable[[Met], Driver]], met: Met, protocol: Protocol, ledger: Ledger
) -> Evaluation:
    """Deploy every seed in all worlds; seeds that the ledger holds are not deployed again.

    Args:
        drivers: one per seed, told which worlds it will meet.

    Raises:
        Paused: the ledger was asked to stop; call again to go on.
    """
    window_length(task, protocol)
    decisions = protocol.episodes * task.description.decisions_per_episode
    shape = (len(met.shifts), protocol.environments)
    ledger.plan(len(drivers) * shape[0] * shape[1] * decisions)

    def one_seed(make: Callable[[Met], Driver]) -> dict[str, np.ndarray]:
        driver = make(met)
        course = _deploy(
            task,
            driver.agent,
            driver.weights,
            on_device(driver.levels),
            jnp.float32(driver.tempering),
            met.physics,
            met.keys,
            weights_axis=driver.weights_axis,
            counts=driver.counts,
            protocol=protocol,
        )
        by_shift = jax.tree.map(lambda values: np.asarray(values).reshape(*shape, *values.shape[1:]), course)
        return _tensors(by_shift._asdict() | {"eta": by_shift.eta.mean(axis=1)})

    seeds = [
        ledger.keep(f"seed_{index}", shape[0] * shape[1] * decisions, partial(one_seed, make))
        for index, make in enumerate(drivers)
    ]
    return _evaluation(met.shifts, {name: np.stack([seed[name] for seed in seeds]) for name in seeds[0]})


def write(folder: Path, evaluation: Evaluation, facts: Mapping[str, Any]) -> Path:
    """Write an evaluation as a folder that can be verified."""
    content = evaluation._asdict()
    shifts = content.pop("shifts")
    tensors = {name: np.ascontiguousarray(values) for name, values in _tensors(content).items()}
    files = {_FILE: lambda path: save_file(tensors, path)}
    return artifacts.write_folder(folder / FOLDER, files, {**facts, "shifts": list(shifts)})


def read(folder: Path) -> tuple[Evaluation, dict[str, Any]]:
    """An evaluation and the facts it was written with; a damaged one is refused."""
    facts = artifacts.verify_folder(folder / FOLDER)
    return _evaluation(tuple(facts["shifts"]), load_file(folder / FOLDER / _FILE)), facts


def _tensors(content: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Arrays by name, metrics among them."""
    plain = {name: np.asarray(values) for name, values in content.items() if name != "metrics"}
    return plain | {_METRIC + name: np.asarray(values) for name, values in content["metrics"].items()}


def _evaluation(shifts: tuple[str, ...], tensors: Mapping[str, np.ndarray]) -> Evaluation:
    metrics = {name.removeprefix(_METRIC): values for name, values in tensors.items() if name.startswith(_METRIC)}
    plain = {name: values for name, values in tensors.items() if not name.startswith(_METRIC)}
    return Evaluation(shifts=shifts, metrics=metrics, **plain)
