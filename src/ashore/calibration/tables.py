"""One pass: the episodes that it asks for, and all tables and schedules that follow from what they cost."""

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


def build(budget: Budget, config: CalibrationConfig, contexts: Contexts, outcome: Episode) -> Pass:
    """All tables of the pass, from what the `candidates` cost in every environment."""
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
    first = float(epsilon.value[counts.index(1)])
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
            config.etas[-1] if config.strangers == "highest" else None,
        )
        schedules["world"] = world.typical
    environments = np.sqrt(config.environments)
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
