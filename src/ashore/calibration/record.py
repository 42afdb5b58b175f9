"""A calibration in plain numbers, as `calibration.json` holds it."""

import dataclasses
import math
from typing import Any

import numpy as np

from ashore.budget import Budget
from ashore.calibration import conformal, latent_error, page
from ashore.calibration.calibrate import Calibration
from ashore.calibration.careful_policy import CarefulPolicy
from ashore.calibration.latent_error import Table
from ashore.calibration.tables import Pass
from ashore.calibration.unseen_worlds import Realised
from ashore.calibration.world_schedule import WorldSchedule
from ashore.environments.base import Task
from ashore_runtime.schema import PERCENTILES

SCHEMA = 1
UNIT = "discounted: mean cost per decision / (1 - discount)"
_LOOKUP = "the entry of the largest count that is not above N"
_WORLD_LOOKUP = (
    "what is deployed is the table 'world'; eta and infeasible here are those of a world whose belief is the mean of "
    "the simulated worlds' beliefs, so that the first entry is the careful start"
)


def content(
    task: Task, policy: CarefulPolicy, calibration: Calibration, weights_sha256: str, facts: dict[str, Any]
) -> dict[str, Any]:
    """Everything that was measured; numbers that do not exist are None."""
    config, measured, schedule = calibration.config, calibration.measured, calibration.schedule
    spread = _widest_spread(calibration)
    return _plain(
        {
            "schema": SCHEMA,
            "unit": UNIT,
            **facts,
            "weights_sha256": weights_sha256,
            "budget": budget_in_all_units(calibration.budget),
            "action_repeat": task.description.action_repeat,
            "level": config.level,
            "rule": config.rule,
            "rule_meaning": page.RULES[config.rule],
            "joint_level": conformal.joint_coverage(config.level, page.EVENTS[config.rule]),
            "caution": policy.caution,
            "refinement": dataclasses.asdict(policy.refinement),
            "compute": policy.nets.sizes.compute,
            "settings": dataclasses.asdict(config),
            "counts": config.counts,
            "etas": config.etas,
            "eta": schedule.eta,
            "infeasible": schedule.infeasible,
            "schedule": _schedule(calibration),
            "world": None if calibration.world is None else calibration.world.table.to_json(),
            "world_fit": _world_fit(measured.world),
            "strangers": None if calibration.strangers is None else calibration.strangers._asdict(),
            "spread": spread,
            "epsilon": measured.epsilon.value,
            "reference_settled": _reference_settled(calibration),
            "lipschitz": measured.lipschitz.value,
            "direct": measured.direct.value,
            "delta": measured.delta.value,
            "delta_measured_at": config.measured_counts,
            "cost_bound": measured.cost_bound.value,
            "standard_errors": _standard_errors(measured),
            "mean_delta": {
                "counts": config.measured_counts,
                "value": measured.mean_delta,
                "standard_error": measured.mean_delta_error,
            },
            "trigger_rate": measured.triggered,
            "episode_return": measured.episode_return,
            "neutral_cost": _neutral_cost(measured),
            "ratio_environments": measured.ratio_environments,
            "noise_floor": _first(measured.noise_floor),
            "theorem_bound": calibration.budget.discounted + measured.lipschitz_error,
            "tempering": calibration.tempering,
            "tempering_measured": _tempering(calibration),
            "change_threshold": None,
            "change": None,
            "coverage": {name: _realised(found) for name, found in _deployed(calibration).items()},
            "per_episode": _per_episode(calibration),
            "assumptions": page.assumptions(task, policy, calibration),
        }
    )


def _schedule(calibration: Calibration) -> dict[str, Any]:
    schedule = calibration.schedule
    return {
        "eta": schedule.eta,
        "infeasible": schedule.infeasible,
        "lookup": _LOOKUP if calibration.world is None else _WORLD_LOOKUP,
        "by_rule": {rule: found._asdict() for rule, found in calibration.measured.schedules.items()},
        "first_pass": calibration.first_schedule._asdict(),
    }


def _standard_errors(measured: Pass) -> dict[str, Any]:
    return {
        "epsilon": measured.epsilon.standard_error,
        "lipschitz": measured.lipschitz.standard_error,
        "direct": measured.direct.standard_error,
        "delta": measured.delta.standard_error,
        "cost_bound": measured.cost_bound.standard_error,
        "cost_difference_in_one_environment": measured.episode_error,
    }


def _neutral_cost(measured: Pass) -> dict[str, Any]:
    return {
        "mean": measured.neutral_mean,
        "bound": measured.neutral_bound,
        "reference_mean": measured.reference_mean,
    }


def _deployed(calibration: Calibration) -> dict[str, Realised]:
    return {"scheduled": calibration.scheduled, "neutral": calibration.neutral}


def _tempering(calibration: Calibration) -> dict[str, Any]:
    found = calibration.measured.tempering
    # Fitted on what was already tempered: the factor that evidence should count in all.
    return found._asdict() | {"factor": calibration.tempering * found.factor}


def budget_in_all_units(budget: Budget) -> dict[str, float]:
    """The cost limit per episode, per decision and discounted, with what converts them."""
    return {
        "per_episode": budget.per_episode,
        "per_decision": budget.per_decision,
        "discounted": budget.discounted,
        "decisions_per_episode": budget.decisions_per_episode,
        "discount": budget.discount,
    }


def _world_fit(world: WorldSchedule | None) -> dict[str, Any] | None:
    """How well beliefs predict costs, and what that gives the simulated worlds; None with too few of them."""
    if world is None:
        return None
    return {
        "r_squared": world.r_squared,
        "eta_percentiles": {"of": PERCENTILES, "eta": world.table.eta_percentiles},
        "infeasible": world.infeasible.mean(axis=1),
        "predicted": world.predicted,
        "realised": world.realised,
    }


def _reference_settled(calibration: Calibration) -> dict[str, Any] | None:
    found = calibration.measured.reference_check
    return None if found is None else {**found._asdict(), "limit": latent_error.SETTLED}


def _widest_spread(calibration: Calibration) -> np.ndarray:
    """The widest posterior of any simulated world at each count: mean standard deviation over the latent."""
    deviation = np.mean(1.0 / np.sqrt(1.0 + calibration.measured.contexts.precision_sum), axis=2)
    return np.max(deviation, axis=1)


def _realised(found: Realised) -> dict[str, Any]:
    return {
        **found.coverage._asdict(),
        "first_episode": found.first_episode._asdict(),
        "mean_cost": float(found.cost.mean()),
        "cost_by_count": found.by_count,
        "cost_bound_by_count": found.bound_by_count,
        "episode_return": found.episode_return,
        "trigger_rate": found.triggered,
        "diverged": found.diverged,
    }


def _per_episode(calibration: Calibration) -> dict[str, Any]:
    """The tables that carry a cost, in episode cost."""
    factor, measured = page.per_episode_factor(calibration.budget), calibration.measured
    tables = {
        "lipschitz": measured.lipschitz,
        "direct": measured.direct,
        "delta": measured.delta,
        "cost_bound": measured.cost_bound,
    }
    return {
        **{name: table.value * factor for name, table in tables.items()},
        "noise_floor": measured.noise_floor.value[0] * factor,
        "mean_cost": {
            "scheduled": calibration.scheduled.cost.mean() * factor,
            "neutral": calibration.neutral.cost.mean() * factor,
        },
    }


def _first(table: Table) -> dict[str, float]:
    return {"value": float(table.value[0]), "standard_error": float(table.standard_error[0])}


def _plain(value: Any) -> Any:
    """Lists, dictionaries and plain numbers for JSON, which knows neither NaN nor infinity."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return value
