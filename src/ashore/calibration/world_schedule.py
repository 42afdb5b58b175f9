"""eta(N, z): the smallest risk level at which the world that was identified is predicted to keep the budget.

    bound(eta, N, z) = a(eta, N) + b(eta, N) . z + margin(eta, N)
    eta(N, z) = min { eta on the grid: bound(eta, N, z) <= budget }

Beyond the paper, whose schedule depends on how much was seen and not on what. Every second simulated world fits a and
b, the cost of a world as a linear function of its belief; the others say by how much a world exceeds its prediction.
Before any transition all beliefs are the same, b is nothing and the margin holds the whole spread between worlds: a
careful start. Beliefs after few transitions are not centred where later ones are: a line through late beliefs would be
extrapolated to early ones, so every count has a line of its own.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ashore.calibration import conformal, cost_reduction
from ashore.calibration.cost_sensitivity import paired_error
from ashore.calibration.latent_error import Table
from ashore.calibration.risk_schedule import Schedule
from ashore_runtime.schema import PERCENTILES, WorldCalibration
from ashore_runtime.world_levels import WorldLevels

_RIDGE = 1e-3
"""Penalty per world on standardised latents: next to nothing, and a bound where two latents say the same."""
_STILL = 1e-4
"""A latent that varies less than this tells no worlds apart; the prior varies by 1."""


class Prediction(NamedTuple):
    """Cost as a linear function of the belief, by count and risk level."""

    intercept: np.ndarray
    """[count, eta]."""
    slope: np.ndarray
    """[count, eta, latent]."""

    def at(self, latents: np.ndarray) -> np.ndarray:
        """Predicted costs, [count, eta, world], of beliefs [count, world, latent]."""
        return self.intercept[:, :, None] + self.slope @ np.swapaxes(latents, 1, 2)


class WorldSchedule(NamedTuple):
    """The table and what it does in the simulated worlds."""

    table: WorldCalibration
    eta: np.ndarray
    """Level that each world gets, [count, world]."""
    infeasible: np.ndarray
    """[count, world]."""
    typical: Schedule
    """That of a world whose belief is the mean over the simulated ones; at N = 0 it is the careful start."""
    predicted: np.ndarray
    """Cost at the last measured count, [eta, world]."""
    realised: np.ndarray
    """The same as it was measured."""
    r_squared: np.ndarray
    """Share of the variance between the worlds outside the fit that is predicted, [eta]; noise of a few episodes is
    part of that variance."""


def fewest(level: float) -> int:
    """The smallest number of worlds of which one half still bounds the next one at this level."""
    return 2 * conformal.fewest(level)


def build(
    etas: tuple[float, ...],
    counts: tuple[int, ...],
    measured_counts: tuple[int, ...],
    level: float,
    budget: float,
    latents: np.ndarray,
    reference: np.ndarray,
    neutral: np.ndarray,
    careful: np.ndarray,
    over_worlds: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda estimates, _: estimates,
    strangers: float | None = None,
    strangers_enough: bool | None = None,
) -> WorldSchedule:
    """Fit on every second world, judge by the others, read the table for all of them.

    Args:
        level: of the margins.
        budget: in the unit of the costs.
        latents: beliefs, [count, world, latent].
        reference: where they end up, [world, latent]; the box of both, these and the beliefs of the largest count, is
            what was calibrated. After many transitions beliefs lie closer together than any that is acted on.
        neutral: costs at eta = 0, [count, world, episode].
        careful: costs at all levels, [measured count, eta, world, episode].
        over_worlds: from estimates and their standard errors, [..., world], to what the margins are taken of.
        strangers: the least that a belief outside the box gets; the careful start's level if None.
        strangers_enough: whether it was measured to be enough for them; None where nobody measured it.
    """
    fitted = np.arange(len(reference)) % 2 == 0
    measured = [counts.index(count) for count in measured_counts]
    spent = careful.mean(axis=3)
    prediction = predict(spent[:, :, fitted], latents[:, fitted], measured_counts, counts)
    predicted = prediction.at(latents)

    def excess(costs: np.ndarray, predicted: np.ndarray) -> np.ndarray:
        more = costs.mean(axis=-1) - predicted
        return over_worlds(more[..., ~fitted], paired_error(costs)[..., ~fitted])

    margin = margins(
        excess(neutral, predicted[:, 0]), excess(careful, predicted[measured]), measured_counts, counts, level
    )
    settled = np.concatenate([latents[-1], reference])
    table = WorldCalibration(
        budget=budget,
        etas=tuple(etas),
        intercept=_tuples(prediction.intercept),
        slope=_tuples(prediction.slope),
        margin=_tuples(margin),
        low=_tuples(settled.min(axis=0)),
        high=_tuples(settled.max(axis=0)),
        eta_percentiles=(),
        strangers=strangers,
        strangers_enough=strangers_enough,
    )
    return _in_the_simulated_worlds(table, latents, predicted[measured[-1]], spent[-1], ~fitted)


def _in_the_simulated_worlds(
    table: WorldCalibration, latents: np.ndarray, predicted: np.ndarray, realised: np.ndarray, judged: np.ndarray
) -> WorldSchedule:
    """What the table gives each of them, and how well it predicts those that it was not fitted to."""
    eta, infeasible = read(table, latents)
    # Levels of the grid and nothing in between.
    percentiles = np.percentile(eta, PERCENTILES, axis=1, method="inverted_cdf").T
    typical = (part[:, 0] for part in read(table, latents.mean(axis=1, keepdims=True)))
    return WorldSchedule(
        table=replace(table, eta_percentiles=_tuples(percentiles)),
        eta=eta,
        infeasible=infeasible,
        typical=Schedule(*typical),
        predicted=predicted,
        realised=realised,
        r_squared=r_squared(realised[:, judged], predicted[:, judged]),
    )


def read(table: WorldCalibration, latents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """eta and `infeasible`, [count, world] each, of beliefs [count, world, latent]."""
    levels = WorldLevels(table)
    found = [[levels.read(place, belief) for belief in beliefs] for place, beliefs in enumerate(latents)]
    eta, infeasible = np.moveaxis(np.array(found, np.float64), 2, 0)
    return eta, infeasible.astype(bool)


def slopes(costs: np.ndarray, latents: np.ndarray) -> np.ndarray:
    """How costs [eta, world] change with beliefs [world, latent], [eta, latent]: least squares."""
    assert costs.shape[1] == len(latents), (costs.shape, latents.shape)
    deviation = latents.std(axis=0)
    scale = np.where(deviation > _STILL, deviation, 1.0)
    standard = (latents - latents.mean(axis=0)) / scale
    curvature = standard.T @ standard + _RIDGE * len(latents) * np.eye(latents.shape[1])
    return np.linalg.solve(curvature, standard.T @ (costs - costs.mean(axis=1, keepdims=True)).T).T / scale


def predict(
    costs: np.ndarray, latents: np.ndarray, measured_counts: tuple[int, ...], counts: tuple[int, ...]
) -> Prediction:
    """A fit for each measured count; up to the next, its slope and mean cost are held.

    Args:
        costs: of the worlds to fit, [measured count, eta, world].
        latents: their beliefs, [count, world, latent].
    """
    there = [latents[counts.index(count)] for count in measured_counts]
    held = np.searchsorted(measured_counts, counts, side="right") - 1
    slope = np.stack([slopes(*pair) for pair in zip(costs, there, strict=True)])[held]
    # Through the mean belief of each count: beliefs move together while evidence comes in, and costs do not.
    moved = np.einsum("nel,nl->ne", slope, latents.mean(axis=1))
    return Prediction(costs.mean(axis=2)[held] - moved, slope)


def margins(
    neutral: np.ndarray, careful: np.ndarray, measured_counts: tuple[int, ...], counts: tuple[int, ...], level: float
) -> np.ndarray:
    """What the next world does not exceed its prediction by, [count, eta].

    Args:
        neutral: what worlds outside the fit cost more than predicted at eta = 0, [count, world].
        careful: the same at all levels, [measured count, eta, world].
    """
    found = np.array([[conformal.upper(row, level) for row in rows] for rows in careful])
    # Between two measured counts the larger margin of both: the smaller one of the negatives.
    margin = -cost_reduction.at_all_counts(Table(-found, -found), measured_counts, counts).value
    margin[:, 0] = [conformal.upper(row, level) for row in neutral]
    # Early margins are raised to the later ones and never later ones lowered: a bound that was measured is not given
    # up, and knowing more about a world never widens what is allowed for not knowing it.
    return np.maximum.accumulate(margin[::-1], axis=0)[::-1]


def r_squared(realised: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Share of the variance over worlds that is predicted, [eta], of [eta, world]; negative if worse than the mean."""
    spread = np.sum(np.square(realised - realised.mean(axis=1, keepdims=True)), axis=1)
    left = np.sum(np.square(realised - predicted), axis=1)
    return 1.0 - left / np.where(spread > 0.0, spread, np.nan)


def _tuples(values: np.ndarray) -> tuple[Any, ...]:
    return tuple(map(_tuples, values)) if values.ndim > 1 else tuple(values.tolist())
