"""The stages of a calibration in their order; no maths lives here.

contexts   deploy at the highest risk level in worlds drawn from the training ranges; keep the beliefs after N
costs      roll the beliefs out at all risk levels, in the same scenes; tables and a first schedule follow
contexts   deploy again, now by the schedule that came out: contexts depend on who collects them
costs      roll out again, with more episodes; the tables and the schedule that are kept
coverage   deploy by the schedule in worlds nobody has seen, and at eta = 0 for comparison
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ashore.budget import Budget
from ashore.calibration import (
    careful_deployment,
    conformal,
    cost_reduction,
    cost_sensitivity,
    estimation_noise,
    latent_error,
    realised_cost,
    risk_level,
    risk_schedule,
    tempering,
    world_schedule,
)
from ashore.calibration.careful_deployment import CarefulDeployment, Numbers
from ashore.calibration.careful_policy import Agent
from ashore.calibration.coverage import Coverage, by_count, coverage
from ashore.calibration.latent_error import Table
from ashore.calibration.ledger import Ledger, in_batches
from ashore.calibration.realised_cost import Candidates, Episode
from ashore.calibration.risk_level import Levels, WorldTable
from ashore.calibration.risk_schedule import RULES, Schedule
from ashore.calibration.tempering import Tempering
from ashore.calibration.world_schedule import WorldSchedule
from ashore.environments import randomisation
from ashore.environments.base import Task
from ashore.types import Array, Parameters

COVERAGE_CONFIDENCE = 0.95
SCENES, OTHER_SCENES = 0, 1
"""All comparisons are made in the first set of scenes; the second serves the noise floor."""


@dataclass(frozen=True)
class CalibrationConfig:
    """How much is measured, and how sure the tables have to be."""

    level: float = 0.9
    """Level of every quantile; 0.5 is the paper's median, which promises nothing of three events together."""
    environments: int = 128
    """Worlds drawn from the training ranges, and as many unseen ones for the coverage."""
    episodes: int = 16
    """Episodes per world behind each cost."""
    first_episodes: int = 2
    """The same in the first pass, whose schedule only decides who collects the contexts of the second."""
    largest_count: int = 512
    """The last N of the tables; the others are 0 and the powers of two below."""
    reference: int = 4096
    """Transitions behind a reference latent, at least."""
    etas: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95)
    """Risk levels, 0 first."""
    reduction_counts: tuple[int, ...] = (0, 16, 64, 256)
    """Counts at which the cost reduction is measured; in between, the smaller of two neighbours is taken."""
    rule: str = "world"
    """What caution must reach: the budget in the identified `world`, the `budget` in all of them, or what not knowing
    the world costs by the `paper` (L_c epsilon), by `direct` measurement (|dJ_c|), or the `max` of both."""
    temper: bool = False
    """Whether the measured tempering is applied in the second pass, and so at deployment."""
    denoise: bool = False
    """Whether the noise of a few episodes is taken out of the spread between worlds (see `estimation_noise`)."""
    worlds_at_once: int = 8192
    """Worlds per compiled call: bounds the memory."""
    seed: int = 2_000_003
    """Where worlds and scenes come from; training and evaluation draw from other keys."""

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.etas, self.etas[1:], strict=False))
        if not self.etas or self.etas[0] != 0.0 or self.etas[-1] >= 1.0 or not rising:
            raise ValueError("Risk levels must start at 0, rise and stay below 1.")
        if self.rule not in RULES:
            raise ValueError(f"The rule must be one of {', '.join(RULES)}, not '{self.rule}'.")
        if min(self.environments, self.episodes, self.first_episodes, self.largest_count, self.worlds_at_once) < 1:
            raise ValueError("Environments, episodes, counts and worlds at once must be at least one.")
        if conformal.rank(self.environments, self.level) is None:
            raise ValueError(
                f"A level of {self.level:g} needs at least {conformal.fewest(self.level)} environments, "
                f"not {self.environments}."
            )
        if self.rule == "world" and self.environments < world_schedule.fewest(self.level):
            raise ValueError(
                f"The rule 'world' needs at least {world_schedule.fewest(self.level)} environments at a level of "
                f"{self.level:g}, not {self.environments}: half of them fit it, half of them judge it."
            )

    @property
    def counts(self) -> tuple[int, ...]:
        """The N of the tables."""
        return (0, *(1 << power for power in range(self.largest_count.bit_length())))

    @property
    def measured_counts(self) -> tuple[int, ...]:
        """The N at which the cost reduction is measured: those of `reduction_counts` that the tables have, and 0."""
        return tuple(sorted({0, *self.reduction_counts} & set(self.counts)))


class Subject(NamedTuple):
    """What is calibrated."""

    task: Task
    agent: Agent
    weights: Any
    budget: Budget
    """The task's limit, discounted as the agent's cost critic discounts."""


class Contexts(NamedTuple):
    """What careful deployments believed."""

    weighted_mean_sum: np.ndarray
    """[count, environment, latent], without the prior."""
    precision_sum: np.ndarray
    reference: np.ndarray
    """Mean of the posterior from the other deployments in the same environment, [environment, latent]."""

    @property
    def latents(self) -> np.ndarray:
        """Beliefs, [count, environment, latent]."""
        return latent_error.beliefs(self.weighted_mean_sum, self.precision_sum)


class Pass(NamedTuple):
    """All tables of one pass, costs in the discounted unit; `Table`s lead with [count]."""

    contexts: Contexts
    errors: np.ndarray
    """epsilon per environment, [count, environment]."""
    epsilon: Table
    lipschitz: Table
    ratio_environments: np.ndarray
    """Environments behind each L_c, [count]."""
    direct: Table
    lipschitz_error: np.ndarray
    """L_c epsilon, [count]."""
    delta: Table
    """[count, eta]."""
    mean_delta: np.ndarray
    """Mean over environments where it was measured, [measured count, eta]; negative values included."""
    mean_delta_error: np.ndarray
    cost_bound: Table
    """Cost that an environment does not exceed, [count, eta]."""
    neutral_mean: np.ndarray
    """Mean cost at eta = 0 fed z_N, [count]."""
    neutral_bound: np.ndarray
    """Cost at eta = 0 fed z_N that an environment does not exceed, [count]."""
    reference_mean: float
    """Mean cost at eta = 0 fed z_ref."""
    episode_error: np.ndarray
    """Standard error of dJ_c in one environment, averaged over environments, [count]."""
    noise_floor: Table
    """|dJ_c| of z_ref against z_ref in other scenes, at the level."""
    triggered: np.ndarray
    """Share of decisions that refinement wanted to change, [measured count, eta]."""
    episode_return: np.ndarray
    """Mean return of an episode, [measured count, eta]."""
    schedules: dict[str, Schedule]
    """By rule; that of `world` is for a typical one."""
    world: WorldSchedule | None
    """None where there are too few environments to fit and judge it."""
    tempering: Tempering


class Realised(NamedTuple):
    """A deployment in unseen worlds, costs in the discounted unit."""

    coverage: Coverage
    first_episode: Coverage
    """The same for the first episode alone, where least is known."""
    cost: np.ndarray
    """Mean cost of each world, [world]."""
    by_count: np.ndarray
    """Mean over worlds while N runs from each count to the next, [count]."""
    bound_by_count: np.ndarray
    """What a world does not exceed there, [count]."""
    episode_return: float
    triggered: float
    diverged: int


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

    @property
    def schedule(self) -> Schedule:
        """The one to deploy with; under the rule `world`, what it gives a typical world."""
        return self.measured.schedules[self.config.rule]

    @property
    def world(self) -> WorldSchedule | None:
        """What is deployed under the rule `world`; None under the others."""
        return self.measured.world if self.config.rule == "world" else None


def discounted(cost_per_decision: np.ndarray, budget: Budget) -> np.ndarray:
    """Cost in the unit of d: that of spending at this rate for ever, as the budget itself is converted.

    A sum discounted from the start of an episode would weigh its first decisions most; the budget is a limit on the
    mean cost of an episode, in which all weigh the same.
    """
    return cost_per_decision / (1.0 - budget.discount)


def calibrate(subject: Subject, config: CalibrationConfig, ledger: Ledger) -> Calibration:
    """Measure everything; what the ledger already holds is not measured again.

    Raises:
        Paused: the ledger was asked to stop; call again to go on.
    """
    task = subject.task
    keys = jax.random.split(jax.random.key(config.seed), 6)
    ranges = task.description.shifts["train"]
    draw = [randomisation.sample(ranges, task.parameters_type, key, config.environments) for key in keys[:2]]
    worlds, unseen = draw
    ledger.plan(_planned_decisions(task, config))

    strongest, nothing = (_throughout(subject, config, place) for place in (len(config.etas) - 1, 0))
    first = _one_pass(subject, config, ledger, "first", worlds, keys[2], strongest, 1.0, config.first_episodes)
    factor = first.tempering.factor if config.temper else 1.0
    careful = _levels(config, first)
    second = _one_pass(subject, config, ledger, "second", worlds, keys[3], careful, factor, config.episodes)
    chosen = _levels(config, second)
    scheduled = _deployments(subject, config, ledger, "coverage", unseen, keys[4], chosen, factor)
    # The same worlds and scenes without caution: what the schedule is worth.
    neutral = _deployments(subject, config, ledger, "coverage_neutral", unseen, keys[4], nothing, factor)
    return Calibration(
        config=config,
        budget=subject.budget,
        first_schedule=first.schedules[config.rule],
        tempering=factor,
        measured=second,
        scheduled=_realised(subject.budget, config, scheduled),
        neutral=_realised(subject.budget, config, neutral),
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


def deployment_decisions(task: Task, config: CalibrationConfig) -> int:
    """How long a calibrating deployment is: whole episodes, at least up to the last count."""
    length = task.description.decisions_per_episode
    return math.ceil(config.largest_count / length) * length


def replicas(task: Task, config: CalibrationConfig) -> int:
    """Deployments per environment: one for the contexts, the others for the reference."""
    return 1 + math.ceil(config.reference / deployment_decisions(task, config))


def _planned_decisions(task: Task, config: CalibrationConfig) -> int:
    candidates = len(config.counts) + 2 + len(config.measured_counts) * (len(config.etas) - 1)
    episodes = candidates * (config.first_episodes + config.episodes) * task.description.decisions_per_episode
    deployments = 4 * replicas(task, config) * deployment_decisions(task, config)
    return config.environments * (episodes + deployments)


def _deployments(
    subject: Subject,
    config: CalibrationConfig,
    ledger: Ledger,
    stage: str,
    worlds: Parameters,
    key: Array,
    levels: Levels,
    factor: float,
) -> CarefulDeployment:
    """Several deployments in each environment, [environment * replica] flat and NumPy."""
    task = subject.task
    copies, decisions = replicas(task, config), deployment_decisions(task, config)
    keys = jax.random.split(key, config.environments * copies)

    def some(flat: np.ndarray) -> dict[str, Numbers]:
        physics = jax.tree.map(lambda values: values[flat // copies], worlds)
        everywhere = (len(flat), len(config.counts))
        table = levels if isinstance(levels, WorldTable) else jnp.broadcast_to(levels, everywhere)
        return careful_deployment.deploy(
            *subject[:3], jnp.float32(factor), physics, keys[flat], table, counts=config.counts, decisions=decisions
        )._asdict()

    total = config.environments * copies
    return CarefulDeployment(**in_batches(ledger, stage, total, config.worlds_at_once, decisions, some))


def _contexts(task: Task, config: CalibrationConfig, deployed: CarefulDeployment) -> Contexts:
    """The first deployment in each environment gives the contexts, the others together the reference."""
    copies = replicas(task, config)

    def by_environment(sums: Any) -> np.ndarray:
        return np.asarray(sums, np.float64).reshape(config.environments, copies, *sums.shape[1:])

    means, precisions = by_environment(deployed.weighted_mean_sum), by_environment(deployed.precision_sum)
    reference = latent_error.beliefs(means[:, 1:, -1].sum(axis=1), precisions[:, 1:, -1].sum(axis=1))
    return Contexts(np.swapaxes(means[:, 0, :-1], 0, 1), np.swapaxes(precisions[:, 0, :-1], 0, 1), reference)


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
) -> Pass:
    context_key, scene_key = jax.random.split(key)
    deployed = _deployments(subject, config, ledger, f"{name}_contexts", worlds, context_key, levels, factor)
    contexts = _contexts(subject.task, config, deployed)
    scenes = jax.random.split(scene_key, (2, config.environments, episodes))
    asked = _candidates(config, contexts)
    # Both passes in batches of one size, so that one compiled program serves them.
    in_first_pass = len(asked.eta) * config.environments * min(config.first_episodes, config.episodes)
    at_once = min(config.worlds_at_once, in_first_pass)
    outcome = realised_cost.measure(*subject[:3], ledger, f"{name}_costs", worlds, scenes, asked, at_once)
    return _tables(subject.budget, config, contexts, outcome)


def _candidates(config: CalibrationConfig, contexts: Contexts) -> Candidates:
    """z_ref twice, then z_N at eta = 0 for every N, then z_N at every other level for the measured N."""
    latents = contexts.latents
    careful = [config.counts.index(count) for count in config.measured_counts]
    levels = list(config.etas[1:])
    asked = [contexts.reference, contexts.reference, *latents]
    asked += [latents[index] for index in careful for _ in levels]
    etas = [0.0] * (2 + len(latents)) + levels * len(careful)
    scenes = [SCENES, OTHER_SCENES] + [SCENES] * (len(asked) - 2)
    return Candidates(np.stack(asked), np.array(etas), np.array(scenes))


def _tables(budget: Budget, config: CalibrationConfig, contexts: Contexts, outcome: Episode) -> Pass:
    level, counts, measured_counts = config.level, config.counts, config.measured_counts
    measured = [counts.index(count) for count in measured_counts]

    def taken_apart(values: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Reference in both sets of scenes, [count] at eta = 0, and [measured count, eta] with eta = 0 in front."""
        numbers = np.asarray(values, np.float64)
        reference, neutral, rest = np.split(numbers, [2, 2 + len(counts)])
        careful = rest.reshape(len(measured), len(config.etas) - 1, *rest.shape[1:])
        return reference, neutral, np.concatenate([neutral[measured][:, None], careful], axis=1)

    reference, neutral, careful = taken_apart(discounted(np.asarray(outcome.cost, np.float64), budget))
    errors = latent_error.errors(contexts.latents, contexts.reference)
    apart = cost_sensitivity.differences(neutral, reference[SCENES])

    def over_worlds(estimates: np.ndarray, standard_errors: np.ndarray) -> np.ndarray:
        return estimation_noise.removed(estimates, standard_errors) if config.denoise else estimates

    absolute = np.abs(over_worlds(apart.signed, apart.standard_error))
    epsilon = latent_error.table(errors, level)
    lipschitz, ratio_environments = cost_sensitivity.lipschitz(absolute, errors, level)
    direct = cost_sensitivity.direct(absolute, level)
    gains, gain_errors = cost_reduction.reductions(neutral[measured], careful)
    by_world = cost_reduction.table(over_worlds(gains, gain_errors), level)
    delta = cost_reduction.at_all_counts(by_world, measured_counts, counts)
    # The bound on a cost from above is that on its negative from below.
    spending = over_worlds(careful.mean(axis=3), cost_sensitivity.paired_error(careful))
    negative = cost_reduction.table(-spending, level)
    bound = cost_reduction.at_all_counts(negative, measured_counts, counts)
    mean_gain = gains.mean(axis=2)
    usual = cost_reduction.at_all_counts(Table(mean_gain, mean_gain), measured_counts, counts).value
    floor = cost_sensitivity.noise_floor(reference[SCENES], reference[OTHER_SCENES])
    etas = np.asarray(config.etas)
    product = cost_sensitivity.lipschitz_error(lipschitz.value, epsilon.value, direct.value)
    schedules = {
        rule: risk_schedule.smallest_feasible(
            etas, delta.value, risk_schedule.required(rule, product, direct.value), usual
        )
        for rule in ("max", "paper", "direct")
    }
    schedules["budget"] = risk_schedule.within_budget(etas, -bound.value, budget.discounted, usual)
    world = None
    if config.environments >= world_schedule.fewest(level):
        world = world_schedule.build(
            config.etas,
            counts,
            measured_counts,
            level,
            budget.discounted,
            contexts.latents,
            contexts.reference,
            neutral,
            careful,
            over_worlds,
        )
        schedules["world"] = world.typical
    environments = np.sqrt(config.environments)
    return Pass(
        contexts=contexts,
        errors=errors,
        epsilon=epsilon,
        lipschitz=lipschitz,
        ratio_environments=ratio_environments,
        direct=direct,
        lipschitz_error=product,
        delta=delta,
        mean_delta=mean_gain,
        mean_delta_error=gains.std(axis=2, ddof=1) / environments,
        cost_bound=Table(-bound.value, bound.standard_error),
        neutral_mean=neutral.mean(axis=(1, 2)),
        neutral_bound=np.array([conformal.upper(row, level) for row in neutral.mean(axis=2)]),
        reference_mean=float(reference[SCENES].mean()),
        episode_error=np.mean(apart.standard_error, axis=1),
        noise_floor=cost_sensitivity.direct(floor[None], level),
        triggered=taken_apart(outcome.triggered)[2].mean(axis=(2, 3)),
        episode_return=taken_apart(outcome.reward)[2].mean(axis=(2, 3)) * budget.decisions_per_episode,
        schedules=schedules,
        world=world,
        tempering=tempering.measure(contexts.weighted_mean_sum, contexts.precision_sum, contexts.reference),
    )


def _realised(budget: Budget, config: CalibrationConfig, deployed: CarefulDeployment) -> Realised:
    length = budget.decisions_per_episode
    shape = (config.environments, -1, deployed.cost.shape[1])
    # Replicas of one world are averaged: the question is about the world, not about one deployment's luck.
    costs = discounted(np.asarray(deployed.cost, np.float64).reshape(shape).mean(axis=1), budget)
    parts = by_count(costs, config.counts)
    return Realised(
        coverage=coverage(costs.mean(axis=1), budget.discounted, COVERAGE_CONFIDENCE),
        first_episode=coverage(costs[:, :length].mean(axis=1), budget.discounted, COVERAGE_CONFIDENCE),
        cost=costs.mean(axis=1),
        by_count=parts.mean(axis=1),
        bound_by_count=np.array([conformal.upper(row, config.level) for row in parts]),
        episode_return=float(np.mean(deployed.reward) * length),
        triggered=float(np.mean(deployed.triggered)),
        diverged=int(np.sum(deployed.diverged)),
    )
