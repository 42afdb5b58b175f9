"""A calibration in sentences and small tables: its page for a person, and what was assumed for every number."""

import numpy as np

from ashore.budget import Budget
from ashore.calibration import conformal, cost_sensitivity, latent_error
from ashore.calibration.calibrate import Calibration
from ashore.calibration.careful_policy import CarefulPolicy
from ashore.calibration.contexts import deployment_decisions, replicas
from ashore.calibration.world_schedule import WorldSchedule
from ashore.environments.base import Task
from ashore_runtime.schema import PERCENTILES

RULES = {
    "world": "predicted J_c(eta | N, z) + margin <= budget",
    "max": "Delta_c >= max(L_c epsilon, |dJ_c|)",
    "paper": "Delta_c >= L_c epsilon",
    "direct": "Delta_c >= |dJ_c|",
    "budget": "J_c(eta | N) <= budget",
}
EVENTS = {"world": 1, "max": 3, "paper": 3, "direct": 2, "budget": 1}
"""Quantiles that must hold together for a schedule to be right, by rule."""


def text(run: str, task: Task, policy: CarefulPolicy, calibration: Calibration) -> str:
    """One page for a person: the schedule, whether it held, and what was assumed."""
    config, measured, factor = calibration.config, calibration.measured, per_episode_factor(calibration.budget)
    needed = np.maximum(measured.lipschitz_error, measured.direct.value)
    rows = [
        f"| {count} | {eta:g}{' (infeasible)' if bad else ''} | {epsilon:.3f} | {lipschitz:.3g} | {direct:.3g} | "
        f"{need:.3g} | {delta.max():.3g} |"
        for count, eta, bad, epsilon, lipschitz, direct, need, delta in zip(
            config.counts,
            calibration.schedule.eta,
            calibration.schedule.infeasible,
            measured.epsilon.value,
            measured.lipschitz.value,
            measured.direct.value,
            needed,
            measured.delta.value,
            strict=True,
        )
    ]
    lines = [
        f"# Calibration of {run}",
        "",
        f"Task {task.description.name}, worlds from {_ranges(config.beyond)}, level {config.level:g}, rule "
        f"`{config.rule}` ({RULES[config.rule]}), caution `{policy.caution}`. Costs are in the discounted "
        f"unit; times {factor:g} they are per episode.",
        "",
        "| N | eta(N) | epsilon | L_c | direct | needed | largest Delta_c |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        *_world_rows(calibration),
        *_stranger_rows(calibration),
        "| unseen worlds | cost per episode | return | under the budget | at least (95 %) |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {found.cost.mean() * factor:.2f} of {calibration.budget.per_episode:g} | "
            f"{found.episode_return:.2f} | {found.coverage.covered} of {found.coverage.worlds} | "
            f"{found.coverage.lower_bound:.3f} |"
            for name, found in (("by the schedule", calibration.scheduled), ("eta = 0", calibration.neutral))
        ),
        "",
        f"Evidence counted {calibration.tempering:g} times. For the posterior's spread to match its error, it should "
        f"count {calibration.tempering * measured.tempering.factor:.3g} times.",
        "",
        "## What was assumed",
        "",
        *(f"- {sentence}" for sentence in assumptions(task, policy, calibration)),
        "",
    ]
    return "\n".join(lines)


def _world_rows(calibration: Calibration) -> list[str]:
    """What the rule `world` gives the simulated worlds; the table above it has a typical one."""
    world = calibration.world
    if world is None:
        return []
    names = " | ".join(f"{share} %" for share in PERCENTILES)
    rows = zip(calibration.config.counts, world.table.eta_percentiles, world.infeasible.mean(axis=1), strict=True)
    return [
        "eta(N) above is that of a world whose belief is the mean over the simulated ones. Percentiles of eta(N, z) "
        "over them:",
        "",
        f"| N | {names} | infeasible |",
        "|---|---|---|---|---|",
        *(f"| {count} | {' | '.join(f'{eta:g}' for eta in found)} | {share:.0%} |" for count, found, share in rows),
        "",
    ]


def _stranger_rows(calibration: Calibration) -> list[str]:
    """What simulated strangers cost at each level that was tried, where they were met."""
    met = calibration.strangers
    if met is None:
        return []
    factor = per_episode_factor(calibration.budget)
    return [
        "| strangers at | cost per episode | of the dearest |",
        "|---|---|---|",
        *(
            f"| {eta:g} | {mean * factor:.2f} | {largest * factor:.2f} of {calibration.budget.per_episode:g} |"
            for eta, mean, largest in zip(met.etas, met.mean, met.largest, strict=True)
        ),
        "",
    ]


def assumptions(task: Task, policy: CarefulPolicy, calibration: Calibration) -> list[str]:
    """What was assumed, one sentence each, next to the number it supports."""
    config, measured, budget = calibration.config, calibration.measured, calibration.budget
    decisions, copies = deployment_decisions(task, config), replicas(task, config)
    covered, level = calibration.scheduled.coverage, config.level
    joint = conformal.joint_coverage(level, EVENTS[config.rule])
    sentences = [
        f"Every table: the world that is met is drawn like the {config.environments} simulated ones, from "
        f"{_ranges(config.beyond)}. Outside them no number here is a promise.",
        f"Every quantile holds for the next world with probability {level:g} by itself (conformal, exchangeable "
        f"worlds). The rule '{config.rule}' needs {EVENTS[config.rule]} of them at once: together {joint:g} by "
        "the union bound" + (", which is no promise at all." if joint == 0.0 else "."),
        f"J_c is the mean cost per decision of whole episodes, divided by 1 - {budget.discount:g} as the budget is: "
        f"{budget.discounted:g} stands for {budget.per_episode:g} per episode.",
        *_asked(calibration),
        f"epsilon(N): the reference latent stands for the true one; it comes from {(copies - 1) * decisions} "
        "transitions of other deployments in the same world. epsilon(0) is that of the prior's mean, "
        "which is what is deployed.",
        "L_c(N) is a ratio of measured differences, not a Lipschitz constant of J_c: beliefs that were not met may be "
        f"steeper. Environments with an error below {cost_sensitivity.SMALLEST_ERROR:g} are left out of it; "
        "where too few remain it is unknown, and the direct difference takes the place of L_c epsilon.",
        f"The noise floor, |dJ_c| between two sets of scenes at the same belief, is "
        f"{measured.noise_floor.value[0]:.3g} (discounted). All comparisons share their scenes and "
        "usually have less noise; it is not subtracted.",
        f"Delta_c(eta | N) was measured at N = {', '.join(map(str, config.measured_counts))}; in between the smaller "
        "neighbour is taken. It is a measurement with the belief held fixed for an episode, and may be negative.",
        "The condition Delta_c >= L_c epsilon keeps the budget only if the policy keeps it when fed the true latent: "
        f"fed the reference it costs {measured.reference_mean:.3g} of {budget.discounted:g} on average here.",
        f"Contexts were collected by the careful policy itself, in order, at the first pass's schedule. The tables "
        f"belong to caution '{policy.caution}' with the refinement written beside them, computed in "
        f"{policy.nets.sizes.compute}.",
        f"Coverage: {covered.covered} of {covered.worlds} unseen worlds stayed under the budget by the schedule; at "
        f"{covered.confidence:g} confidence the share is at least {covered.lower_bound:.3f}. A world's cost is the "
        f"mean of {copies * decisions // budget.decisions_per_episode} episodes and has noise of its own.",
    ]
    sentences.append(
        "The noise of measurement was taken out of the spread between worlds, assuming both have the same shape: the "
        "quantiles are better guesses and only approximately conformal."
        if config.denoise
        else f"Costs are estimated from {config.episodes} episodes per world, and their noise is in the quantiles: the "
        "tables are wider than the worlds are. --set denoise=true takes it out."
    )
    if calibration.world is not None:
        sentences.insert(2, _world_assumption(calibration, calibration.world))
    elif calibration.schedule.infeasible.any():
        marked = [str(n) for n, bad in zip(config.counts, calibration.schedule.infeasible, strict=True) if bad]
        sentences.insert(
            0,
            f"INFEASIBLE at N = {', '.join(marked)}: no risk level on the grid makes up for what is not known there. "
            "The level with the largest mean reduction is used, and it is not enough by this rule.",
        )
    warning = unsettled(calibration)
    return sentences if warning is None else [warning, *sentences]


def _ranges(beyond: float) -> str:
    return "the training ranges" if beyond == 1.0 else f"ranges {beyond:g} times as wide as those of training"


def _asked(calibration: Calibration) -> tuple[str, ...]:
    if calibration.config.budget is None:
        return ()
    return (
        f"This budget, {calibration.budget.per_episode:g} per episode, was asked for when the policy was calibrated; "
        "it was trained for the one that its task declares.",
    )


def unsettled(calibration: Calibration) -> str | None:
    """The warning that the reference does not stand for the true latent yet; None where it does or nobody knows."""
    found = calibration.measured.reference_check
    if found is None or found.settled:
        return None
    share = f"{found.ratio:.0%} of epsilon(1)" if np.isfinite(found.ratio) else "where epsilon(1) is nothing"
    return (
        f"NOT SETTLED: half of the transitions behind the reference latent put it up to {found.half_error:.3g} from "
        f"where all of them do, {share} and not at most {latent_error.SETTLED:.0%}. That much "
        "of every epsilon(N) may be the reference's own error; --set reference=N takes more transitions."
    )


def _world_assumption(calibration: Calibration, world: WorldSchedule) -> str:
    last, share = calibration.config.measured_counts[-1], world.r_squared[0]
    predicted = f"{share:.2f}" if np.isfinite(share) else "an unknown share"
    return (
        "Caution follows the identified world: its cost at each level is taken to be linear in the posterior's mean, "
        f"fitted on every second simulated world. In the others, after {last} transitions, that predicts "
        f"{predicted} of the variance of the cost at eta = 0, and the margin is what they cost more. Each "
        "margin is conformal for a level that is fixed beforehand; a level that is chosen by the prediction holds it "
        "only approximately, which is why the coverage is measured. No level is enough for "
        f"{world.infeasible[0].mean():.0%} of the simulated worlds at the start and {world.infeasible[-1].mean():.0%} "
        f"after {calibration.config.counts[-1]} transitions: the one with the lowest bound is used there. Beliefs "
        f"outside the box of the simulated worlds get {of_strangers(calibration)}."
    )


def of_strangers(calibration: Calibration) -> str:
    """What beliefs outside of the box get, and why, as the end of a sentence."""
    met = calibration.strangers
    if met is None:
        return "the highest level" if calibration.config.strangers == "highest" else "at least the careful start"
    dearest = f"{met.largest[-1]:.3g} of {calibration.budget.discounted:g}"
    kept = "at which" if met.enough else "which is NOT ENOUGH:"
    return (
        f"at least {met.level:g}, {kept} the dearest costs {dearest} (measured with {calibration.config.environments} "
        f"worlds outside of the calibrated ranges, from {_ranges(met.times)})"
    )


def per_episode_factor(budget: Budget) -> float:
    """Episode cost per unit of discounted cost."""
    return budget.per_episode / budget.discounted
