"""A trained run in worlds it has never seen: the protocol of environments x episodes, adaptation included."""

import json
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file

from ashore import artifacts, names, sensible
from ashore.environments import randomisation
from ashore.environments.base import Task
from ashore.experiments import training
from ashore.experiments.statistics import Estimate, estimate
from ashore.learning import evaluate, observation_attack
from ashore.learning.evaluate import Deployment
from ashore.learning.normalisation import Normalisers, RunningStatistics
from ashore.learning.train_config import architecture
from ashore.methods.base import Method
from ashore.networks.architecture import from_named_weights
from ashore.networks.layers import Params
from ashore.types import Parameters

PROBED_AFTER = (1, 8, 32, 128)
"""Numbers of transitions after which the latent is asked what it knows."""
_NORMALISER = "normaliser/"


@dataclass(frozen=True)
class EvaluationConfig:
    """The protocol."""

    shifts: tuple[str, ...] = ()
    """Names of the shifts; all the task declares if left out. `train` means held-out draws of the training ranges."""
    environments: int = 64
    """Worlds per shift, each with physical parameters of its own."""
    episodes: int = 10
    """Episodes in each world; what is learnt about it is kept from one to the next."""
    seed: int = 1_000_003
    """Where the worlds come from; training draws its own from other keys."""
    attack: Literal["none", "cost", "reward"] = "none"
    """Who disturbs what the policy sees: nobody, or an attacker who maximises this, of the strength the run declares.

    Every run declares one (`attack.radius`, `attack.steps`), whatever it was trained by.
    """

    def __post_init__(self) -> None:
        sensible.at_least(self, 1, "environments", "episodes")


@dataclass(frozen=True)
class ShiftResult:
    """What happened under one shift, over all training seeds."""

    shift: str
    episode_return: Estimate
    episode_cost: Estimate
    first_cost: Estimate
    """Cost of the first episode, in which the policy still has to find out where it is."""
    cost_by_episode: tuple[float, ...]
    metrics: dict[str, Estimate]
    probes: dict[str, dict[str, float]]
    """R^2 of the linear probe by number of transitions and quantity, averaged over training seeds."""
    latent_error: dict[str, float]
    """Mean distance of the latent after N transitions from where it ends up, by N."""
    diverged: int


def load_policies(folder: Path) -> list[tuple[Params, Normalisers]]:
    """Weights and normalisers of every seed of a run."""
    if not (folder / training.POLICY).exists():
        raise ValueError(f"{folder} has no policy yet: train it first, or resume it and stop it with Ctrl-C.")
    artifacts.verify_folder(folder / training.POLICY)
    files = sorted((folder / training.POLICY).glob("seed_*.safetensors"), key=lambda path: int(path.stem.split("_")[1]))
    return [_load_seed(path) for path in files]


def _load_seed(path: Path) -> tuple[Params, Normalisers]:
    tensors = load_file(path)
    weights = {name: jnp.asarray(value) for name, value in tensors.items() if not name.startswith(_NORMALISER)}

    def statistics(kind: str) -> RunningStatistics:
        return RunningStatistics(*(jnp.asarray(tensors[f"{_NORMALISER}{kind}/{part}"]) for part in parts))

    parts = RunningStatistics._fields
    return from_named_weights(weights), Normalisers(*(statistics(kind) for kind in Normalisers._fields))


def evaluate_run(folder: Path, config: EvaluationConfig) -> list[ShiftResult]:
    """Deploy every seed of a run under every shift, in one compiled program."""
    run = training.load(folder)
    task = training.task_of(run)
    met = _meet(task, config)
    policies = load_policies(folder)
    params, normalisers = jax.tree.map(lambda *parts: jnp.stack(parts), *policies)
    attack = None
    if config.attack != "none":
        attack = observation_attack.at_full_radius(replace(run.train.attack, kind=config.attack))
    deploy = partial(evaluate.deploy, task, architecture(task, run.train), episodes=config.episodes, attack=attack)
    # Every seed meets the same worlds and the same scenes: differences between seeds are the seeds'.
    everywhere = jax.jit(jax.vmap(lambda params, scale: deploy(params, scale, met.physics, met.key)))
    return _results(task, config, met, jax.device_get(everywhere(params, normalisers)))


def evaluate_controller(
    task: Task, method: Method, believes: Literal["true", "nominal"], config: EvaluationConfig
) -> list[ShiftResult]:
    """The same protocol for a method that learns nothing.

    Args:
        believes: whether the controller knows the true physics of each world, or takes each for the nominal one.
    """
    if method.controller is None:
        raise ValueError("Only a method that is a controller can be evaluated without a run.")
    met = _meet(task, config)
    nominal = randomisation.nominal(task.description.shifts["nominal"], task.parameters_type)
    count = jax.tree.leaves(met.physics)[0].shape[0]
    unknown = jax.tree.map(lambda value: jnp.full(count, value), nominal)
    believed = met.physics if believes == "true" else unknown
    drive = partial(evaluate.deploy_controller, task, partial(method.controller, task), episodes=config.episodes)
    deployment = jax.jit(lambda believed: drive(believed, met.physics, met.key))(believed)
    one_seed = jax.tree.map(lambda part: np.asarray(part)[None], deployment)
    return _results(task, config, met, one_seed)


class _Met(NamedTuple):
    """The worlds of an evaluation."""

    shifts: tuple[str, ...]
    drawn: list[Parameters]
    """Physics by shift, fields [world]."""
    physics: Parameters
    """All of them, one shift after the other."""
    key: jax.Array
    """Where their scenes come from."""


def _meet(task: Task, config: EvaluationConfig) -> _Met:
    declared = task.description.shifts
    shifts = config.shifts or tuple(declared)
    for shift in shifts:
        names.lookup("shift", shift, declared)
    keys = jax.random.split(jax.random.key(config.seed), len(shifts) + 1)
    drawn = [
        randomisation.sample(declared[shift], task.parameters_type, key, config.environments)
        for shift, key in zip(shifts, keys[1:], strict=True)
    ]
    return _Met(shifts, drawn, jax.tree.map(lambda *parts: jnp.concatenate(parts), *drawn), keys[0])


def _results(task: Task, config: EvaluationConfig, met: _Met, deployment: Deployment) -> list[ShiftResult]:
    return [
        _result(task, shift, _worlds(deployment, index, config.environments), met.drawn[index])
        for index, shift in enumerate(met.shifts)
    ]


def _worlds(deployment: Deployment, index: int, count: int) -> Deployment:
    """The part of a deployment that belongs to one shift; worlds are the third axis, after seeds and time."""
    mine = slice(index * count, (index + 1) * count)
    whole = deployment._replace(diverged=deployment.diverged[:, None])
    return jax.tree.map(lambda part: part[:, :, mine], whole)


def _result(task: Task, shift: str, deployment: Deployment, physics: Parameters) -> ShiftResult:
    latent = np.asarray(deployment.latent)
    asked = [count for count in PROBED_AFTER if count <= latent.shape[1]]
    quantities = {name: np.asarray(values) for name, values in task.identifiable(physics).items()}
    # Equal worlds have nothing to tell apart; a mean in float32 leaves them a spread of its last digits.
    varied = {name: values for name, values in quantities.items() if np.ptp(values) > 1e-6 * np.max(np.abs(values))}

    def probe(count: int, values: np.ndarray) -> float:
        return float(np.mean([evaluate.probe(seed[count - 1], values) for seed in latent]))

    return ShiftResult(
        shift=shift,
        episode_return=estimate(deployment.episode_return.mean(axis=1)),
        episode_cost=estimate(deployment.episode_cost.mean(axis=1)),
        first_cost=estimate(deployment.episode_cost[:, 0]),
        cost_by_episode=tuple(deployment.episode_cost.mean(axis=(0, 2)).tolist()),
        metrics={name: estimate(values.mean(axis=1)) for name, values in deployment.metrics.items()},
        probes={str(count): {name: probe(count, values) for name, values in varied.items()} for count in asked},
        latent_error={
            str(count): float(np.linalg.norm(latent[:, count - 1] - latent[:, -1], axis=-1).mean()) for count in asked
        },
        diverged=int(deployment.diverged.sum()),
    )


def write_results(folder: Path, config: EvaluationConfig, results: list[ShiftResult]) -> Path:
    """Write the results as JSON beside the run."""
    content: dict[str, Any] = {
        "protocol": {field.name: getattr(config, field.name) for field in fields(EvaluationConfig)},
        "shifts": {result.shift: _plain(result.__dict__) for result in results},
    }
    attacked = "" if config.attack == "none" else f"_under_{config.attack}_attack"
    path = folder / f"evaluation{attacked}.json"
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def _plain(value: Any) -> Any:
    """Estimates by name, for JSON."""
    if isinstance(value, Estimate):
        return value._asdict()
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return value
