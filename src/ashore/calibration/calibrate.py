"""The stages of a calibration in their order; no maths lives here.

strangers  deploy in worlds outside of the ranges, level by level, if the level for strangers is to be measured
contexts   deploy at the highest risk level in worlds from the training ranges, or wider ones; keep the beliefs after N
costs      roll the beliefs out at all risk levels, in the same scenes; tables and a first schedule follow
contexts   deploy again, now by the schedule that came out: contexts depend on who collects them
costs      roll out again, with more episodes; the tables and the schedule that are kept
coverage   deploy by the schedule in worlds nobody has seen, and at eta = 0 for comparison
"""

from typing import NamedTuple

import jax
import numpy as np

from ashore.budget import Budget
from ashore.calibration import contexts, realised_cost, risk_level, strangers, tables, unseen_worlds
from ashore.calibration.config import CalibrationConfig, Subject
from ashore.calibration.contexts import deployment_decisions, replicas
from ashore.calibration.ledger import Ledger
from ashore.calibration.risk_level import Levels
from ashore.calibration.risk_schedule import Schedule
from ashore.calibration.strangers import Strangers
from ashore.calibration.tables import Pass
from ashore.calibration.unseen_worlds import Realised
from ashore.calibration.world_schedule import WorldSchedule
from ashore.environments import randomisation
from ashore.environments.base import Task
from ashore.types import Array, Parameters


class Calibration(NamedTuple):
    """Everything that was measured."""

    config: CalibrationConfig
    budget: Budget
    first_schedule: Schedule
    tempering: float
    """The factor on the evidence that the second pass and the coverage were measured with."""
    measured: Pass
    scheduled: Realised
    neutral: Realised
    strangers: Strangers | None = None
    """What simulated strangers cost, where their level was measured."""

    @property
    def schedule(self) -> Schedule:
        """The one to deploy with; under the rule `world`, what it gives a typical world."""
        return self.measured.schedules[self.config.rule]

    @property
    def world(self) -> WorldSchedule | None:
        """What is deployed under the rule `world`; None under the others."""
        return self.measured.world if self.config.rule == "world" else None


def calibrate(subject: Subject, config: CalibrationConfig, ledger: Ledger) -> Calibration:
    """Measure everything; what the ledger already holds is not measured again.

    Raises:
        Paused: the ledger was asked to stop; call again to go on.
    """
    task = subject.task
    keys = jax.random.split(jax.random.key(config.seed), 6)
    ranges = randomisation.widened(task.description.shifts["train"], config.beyond)
    draw = [randomisation.sample(ranges, task.parameters_type, key, config.environments) for key in keys[:2]]
    worlds, unseen = draw
    ledger.plan(_planned_decisions(task, config, len(config.etas) if config.measures_strangers else 0))

    met = strangers.measure(subject, config, ledger, keys[5]) if config.measures_strangers else None
    if met is not None:
        ledger.plan(_planned_decisions(task, config, len(met.etas)))
    strongest, nothing = (_throughout(subject, config, place) for place in (len(config.etas) - 1, 0))
    first = _one_pass(subject, config, ledger, "first", worlds, keys[2], strongest, 1.0, config.first_episodes, met)
    factor = first.tempering.factor if config.temper else 1.0
    careful = _levels(config, first)
    second = _one_pass(subject, config, ledger, "second", worlds, keys[3], careful, factor, config.episodes, met)
    chosen = _levels(config, second)
    scheduled = contexts.deploy(subject, config, ledger, "coverage", unseen, keys[4], chosen, factor)
    # The same worlds and scenes without caution: what the schedule is worth.
    neutral = contexts.deploy(subject, config, ledger, "coverage_neutral", unseen, keys[4], nothing, factor)
    return Calibration(
        config=config,
        budget=subject.budget,
        first_schedule=first.schedules[config.rule],
        tempering=factor,
        measured=second,
        scheduled=unseen_worlds.judge(subject.budget, config, scheduled),
        neutral=unseen_worlds.judge(subject.budget, config, neutral),
        strangers=met,
    )


def _throughout(subject: Subject, config: CalibrationConfig, place: int) -> Levels:
    """One level of the grid throughout, in the form of the rule: one compiled program serves all deployments."""
    if config.rule == "world":
        return risk_level.throughout(config.etas, len(config.counts), subject.agent.latent, place)
    return risk_level.on_device(np.full(len(config.counts), config.etas[place]))


def _levels(config: CalibrationConfig, found: Pass) -> Levels:
    """What the rule deploys by."""
    if config.rule != "world":
        return risk_level.on_device(found.schedules[config.rule].eta)
    assert found.world is not None, "the settings ask for enough environments"
    return risk_level.on_device(found.world.table)


def _planned_decisions(task: Task, config: CalibrationConfig, levels_of_strangers: int) -> int:
    candidates = len(config.counts) + 2 + len(config.measured_counts) * (len(config.etas) - 1)
    episodes = candidates * (config.first_episodes + config.episodes) * task.description.decisions_per_episode
    times = 4 + levels_of_strangers
    deployments = times * replicas(task, config) * deployment_decisions(task, config)
    return config.environments * (episodes + deployments)


def _one_pass(
    subject: Subject,
    config: CalibrationConfig,
    ledger: Ledger,
    name: str,
    worlds: Parameters,
    key: Array,
    levels: Levels,
    factor: float,
    episodes: int,
    met: Strangers | None,
) -> Pass:
    context_key, scene_key = jax.random.split(key)
    deployed = contexts.deploy(subject, config, ledger, f"{name}_contexts", worlds, context_key, levels, factor)
    believed = contexts.collect(subject.task, config, deployed)
    scenes = jax.random.split(scene_key, (2, config.environments, episodes))
    asked = tables.candidates(config, believed)
    # Both passes in batches of one size, so that one compiled program serves them.
    in_first_pass = len(asked.eta) * config.environments * min(config.first_episodes, config.episodes)
    at_once = min(config.worlds_at_once, in_first_pass)
    outcome = realised_cost.measure(*subject[:3], ledger, f"{name}_costs", worlds, scenes, asked, at_once)
    return tables.build(subject.budget, config, believed, outcome, met)
