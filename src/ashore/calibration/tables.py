"""One pass: the episodes that it asks for, and all tables and schedules that follow from what they cost."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ashore.budget import Budget
from ashore.calibration import (
    conformal,
    cost_reduction,
    cost_sensitivity,
    estimation_noise,
    latent_error,
    risk_schedule,
    tempering,
    world_schedule,
)
from ashore.calibration.config import CalibrationConfig
from ashore.calibration.contexts import Contexts
from ashore.calibration.latent_error import ReferenceCheck, Table
from ashore.calibration.realised_cost import Candidates, Episode, discounted
from ashore.calibration.risk_schedule import Schedule
from ashore.calibration.strangers import Strangers
from ashore.calibration.tempering import Tempering
from ashore.calibration.world_schedule import WorldSchedule

SCENES, OTHER_SCENES = 0, 1
"""All comparisons are made in the first set of scenes; the second serves the noise floor."""


class Pass(NamedTuple):
    """All tables of one pass, costs in the discounted unit; `Table`s lead with [count]."""

    contexts: Contexts
    errors: np.ndarray
    """epsilon per environment, [count, environment]."""
    epsilon: Table
    reference_check: ReferenceCheck | None
    """None where the reference is one deployment, of which half is not known."""
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


def candidates(config: CalibrationConfig, contexts: Contexts) -> Candidates:
    """z_ref twice, then z_N at eta = 0 for every N, then z_N at every other level for the measured N."""
    latents = contexts.latents
    careful = [config.counts.index(count) for count in config.measured_counts]
    levels = list(config.etas[1:])
    asked = [contexts.reference, contexts.reference, *latents]
    asked += [latents[index] for index in careful for _ in levels]
    etas = [0.0] * (2 + len(latents)) + levels * len(careful)
    scenes = [SCENES, OTHER_SCENES] + [SCENES] * (len(asked) - 2)
    return Candidates(np.stack(asked), np.array(etas), np.array(scenes))


def build(
    budget: Budget, config: CalibrationConfig, contexts: Contexts, outcome: Episode, met: Strangers | None
) -> Pass:
    """All tables of the pass, from what the `candidates` cost in every environment.

    Args:
        met: simulated strangers, where the level for strangers was measured.
    """
    level, counts, measured_counts = config.level, config.counts, config.measured_counts
    spent = _taken_apart(config, discounted(np.asarray(outcome.cost, np.float64), budget))
    reference, neutral, careful = spent
    errors = latent_error.errors(contexts.latents, contexts.reference)
    apart = cost_sensitivity.differences(neutral, reference[SCENES])
    absolute = np.abs(_over_worlds(config)(apart.signed, apart.standard_error))
    epsilon = latent_error.table(errors, level)
    first = float(epsilon.value[counts.index(1)])
    lipschitz, ratio_environments = cost_sensitivity.lipschitz(absolute, errors, level)
    direct = cost_sensitivity.direct(absolute, level)
    gains, gain_errors = cost_reduction.reductions(careful[:, 0], careful)
    by_world = cost_reduction.table(_over_worlds(config)(gains, gain_errors), level)
    delta = cost_reduction.at_all_counts(by_world, measured_counts, counts)
    # The bound on a cost from above is that on its negative from below.
    spending = _over_worlds(config)(careful.mean(axis=3), cost_sensitivity.paired_error(careful))
    negative = cost_reduction.table(-spending, level)
    bound = cost_reduction.at_all_counts(negative, measured_counts, counts)
    mean_gain = gains.mean(axis=2)
    floor = cost_sensitivity.noise_floor(reference[SCENES], reference[OTHER_SCENES])
    product = cost_sensitivity.lipschitz_error(lipschitz.value, epsilon.value, direct.value)
    world = _world(budget, config, contexts, spent, met)
    schedules = _schedules(budget, config, delta, Table(-bound.value, bound.standard_error), mean_gain, product, direct)
    return Pass(
        contexts=contexts,
        errors=errors,
        epsilon=epsilon,
        reference_check=None
        if contexts.half_reference is None
        else latent_error.check_reference(contexts.half_reference, contexts.reference, first, level),
        lipschitz=lipschitz,
        ratio_environments=ratio_environments,
        direct=direct,
        lipschitz_error=product,
        delta=delta,
        mean_delta=mean_gain,
        mean_delta_error=gains.std(axis=2, ddof=1) / np.sqrt(config.environments),
        cost_bound=Table(-bound.value, bound.standard_error),
        neutral_mean=neutral.mean(axis=(1, 2)),
        neutral_bound=np.array([conformal.upper(row, level) for row in neutral.mean(axis=2)]),
        reference_mean=float(reference[SCENES].mean()),
        episode_error=np.mean(apart.standard_error, axis=1),
        noise_floor=cost_sensitivity.direct(floor[None], level),
        triggered=_taken_apart(config, outcome.triggered).careful.mean(axis=(2, 3)),
        episode_return=_taken_apart(config, outcome.reward).careful.mean(axis=(2, 3)) * budget.decisions_per_episode,
        schedules=schedules if world is None else schedules | {"world": world.typical},
        world=world,
        tempering=tempering.measure(contexts.weighted_mean_sum, contexts.precision_sum, contexts.reference),
    )


class _Apart(NamedTuple):
    """What was measured of the `candidates`, by what they are for."""

    reference: np.ndarray
    """z_ref in both sets of scenes, [scenes, environment, episode]."""
    neutral: np.ndarray
    """z_N at eta = 0, [count, environment, episode]."""
    careful: np.ndarray
    """z_N at all levels, eta = 0 in front, [measured count, eta, environment, episode]."""


def _taken_apart(config: CalibrationConfig, values: Any) -> _Apart:
    measured = [config.counts.index(count) for count in config.measured_counts]
    numbers = np.asarray(values, np.float64)
    reference, neutral, rest = np.split(numbers, [2, 2 + len(config.counts)])
    careful = rest.reshape(len(measured), len(config.etas) - 1, *rest.shape[1:])
    return _Apart(reference, neutral, np.concatenate([neutral[measured][:, None], careful], axis=1))


def _over_worlds(config: CalibrationConfig) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """From estimates and their standard errors, [..., world], to what quantiles are taken of."""
    return estimation_noise.removed if config.denoise else lambda estimates, _: estimates


def _world(
    budget: Budget, config: CalibrationConfig, contexts: Contexts, spent: _Apart, met: Strangers | None
) -> WorldSchedule | None:
    if config.environments < world_schedule.fewest(config.level):
        return None
    highest = config.etas[-1] if config.strangers == "highest" else None
    return world_schedule.build(
        config.etas,
        config.counts,
        config.measured_counts,
        config.level,
        budget.discounted,
        contexts.latents,
        contexts.reference,
        spent.neutral,
        spent.careful,
        _over_worlds(config),
        highest if met is None else met.level,
        None if met is None else met.enough,
    )


def _schedules(
    budget: Budget,
    config: CalibrationConfig,
    delta: Table,
    bound: Table,
    mean_gain: np.ndarray,
    product: np.ndarray,
    direct: Table,
) -> dict[str, Schedule]:
    """By rule, of those that look at the number of transitions alone."""
    etas = np.asarray(config.etas)
    usual = cost_reduction.at_all_counts(Table(mean_gain, mean_gain), config.measured_counts, config.counts).value
    found = {
        rule: risk_schedule.smallest_feasible(
            etas, delta.value, risk_schedule.required(rule, product, direct.value), usual
        )
        for rule in ("max", "paper", "direct")
    }
    return found | {"budget": risk_schedule.within_budget(etas, bound.value, budget.discounted, usual)}
