"""Who acts in an evaluation: a trained policy at one risk level, the same by its schedule, or a controller."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ashore.calibration.careful_policy import Agent, CarefulPolicy, Decision
from ashore.calibration.refinement import RefinementConfig
from ashore.calibration.risk_level import Schedule
from ashore.environments.base import Task
from ashore.experiments import training
from ashore.experiments.evaluation import load_policies
from ashore.experiments.exporting import load_trained, read_calibration
from ashore.learning import normalisation
from ashore.learning.collect import update_posterior
from ashore.learning.train_config import architecture, budget
from ashore.methods.base import Method
from ashore.networks import actor, encoder
from ashore.networks import architecture as networks
from ashore.networks.architecture import Architecture
from ashore.networks.encoder import NaturalPosterior
from ashore.types import Array, Parameters, Transition


class Driver(NamedTuple):
    """One seed of a method, ready to act in many worlds."""

    agent: Agent
    weights: Any
    weights_axis: int | None
    """None where all worlds share the weights, 0 where each has its own."""
    counts: tuple[int, ...]
    levels: Schedule
    """Risk level from each count on, [count], or the table of a rule that looks at the belief as well; a level of 0
    from the start is no caution at all."""
    tempering: float = 1.0


@dataclass(frozen=True)
class NeutralPolicy:
    """A trained policy that takes every risk level for 0; its weights are (params, normalisers)."""

    nets: Architecture

    @property
    def latent(self) -> int:
        """Numbers in which a world is described."""
        return self.nets.sizes.latent

    def act(self, weights: Any, observation: Array, latent: Array, eta: Array) -> Decision:
        """The actor's action, whatever eta."""
        params, normalisers = weights
        seen = normalisation.see(self.nets, normalisers.observation, observation)
        condition = networks.condition(self.nets, latent, jnp.zeros_like(eta))
        return _as_it_is(actor.apply(self.nets.actor, params["actor"], seen, condition))

    def evidence(self, weights: Any, transition: Transition) -> NaturalPosterior:
        """What one transition says about the world: one Gaussian factor, or nothing if it diverged."""
        params, normalisers = weights
        batch = jax.tree.map(lambda part: part[None], (encoder.prior(self.latent), transition))
        said = update_posterior(self.nets, params, normalisers, *batch)
        return jax.tree.map(lambda part: part[0], said)


@dataclass(frozen=True)
class ControllerAgent:
    """A method that learns nothing; its weights are what it believes of the world's physics."""

    task: Task
    method: Method
    latent: int = 0

    def act(self, weights: Any, observation: Array, latent: Array, eta: Array) -> Decision:
        """What the controller does; it gets one key for all time, so one that draws would draw the same for ever."""
        del latent, eta
        assert self.method.controller is not None
        return _as_it_is(self.method.controller(self.task, weights)(observation, jax.random.key(0)))

    def evidence(self, weights: Any, transition: Transition) -> NaturalPosterior:
        """Nothing."""
        del weights, transition
        return encoder.prior(self.latent)


def _as_it_is(action: Array) -> Decision:
    unknown = jnp.full((), jnp.nan, jnp.float32)
    return Decision(action, jnp.zeros((), bool), unknown, unknown, jnp.zeros((), jnp.int32))


def neutral_drivers(run: Path, compute: str) -> list[Driver]:
    """Every seed of a run at risk level 0."""
    described = training.load(run)
    nets = _in(compute, architecture(training.task_of(described), described.train))
    return [Driver(NeutralPolicy(nets), weights, None, (0,), np.zeros(1)) for weights in load_policies(run)]


def fixed_drivers(run: Path, level: float, compute: str) -> list[Driver]:
    """Every seed of a run at one risk level for ever.

    Raises:
        ValueError: its policies take no risk level.
    """
    described = training.load(run)
    task = training.task_of(described)
    nets = _in(compute, architecture(task, described.train))
    if not nets.risk_conditioned:
        raise ValueError(f"The policies of {run} take no risk level: level {level:g} would be level 0.")
    policy = CarefulPolicy(nets, budget(task, described.train).discounted, "actor")
    return [Driver(policy, weights, None, (0,), np.full(1, level)) for weights in load_policies(run)]


def careful_drivers(run: Path) -> list[Driver]:
    """Every seed of a run by its own calibrated schedule, in the precision that was calibrated.

    Raises:
        ValueError: a seed has no calibration, or one of other weights, or for another budget than the seeds before.
    """
    drivers, budgets = [], set[float]()
    for seed_index, weights in enumerate(load_policies(run)):
        trained = load_trained(run, seed_index)
        calibrated = read_calibration(trained)
        if calibrated is None:
            raise ValueError(f"Seed {seed_index} of {run} is not calibrated.")
        content = calibrated.content
        budgets.add(content["budget"]["discounted"])
        if len(budgets) > 1:
            raise ValueError(f"The seeds of {run} are calibrated for different budgets: calibrate all for one.")
        policy = CarefulPolicy(
            _in(content["compute"], architecture(trained.task, trained.run.train)),
            content["budget"]["discounted"],
            content["caution"],
            RefinementConfig(**content["refinement"]),
        )
        known = calibrated.calibration
        levels = np.asarray(known.eta, np.float64) if known.world is None else known.world
        drivers.append(Driver(policy, weights, None, known.counts, levels, known.tempering))
    return drivers


def controller_driver(task: Task, method: Method, believed: Parameters) -> Driver:
    """A controller that believes the given physics of each world, fields [world]."""
    return Driver(ControllerAgent(task, method), believed, 0, (0,), np.zeros(1))


def _in(compute: str, nets: Architecture) -> Architecture:
    return replace(nets, sizes=replace(nets.sizes, compute=compute))
