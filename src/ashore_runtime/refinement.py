"""Algorithm 1: from the nominal action to one whose upper-tail cost fits the budget, one step at a time.

    a~ = P(a + alpha_r (grad Q_r(a) - 2 beta_n (a - a_0))),   a' = P(a~ - alpha_c grad Q_c^eta(a~)),
    a_eta = a_0 + w(eta) (a' - a_0)

P clips to the action box. As printed (`keep="last"`) the iteration stops when its iterate a' fits the budget and sends
the interpolation a_eta of the last iterate, which nothing has judged. With `keep="best"` every a_eta is judged as it
would be sent, the iteration stops at the first that fits, and otherwise the one with the lowest cost is sent, a_0 among
them: more time then never gives a worse answer. One cost is lower than another if it is lower by a thousandth: on a
plateau rounding would choose otherwise. With w = 1 and an early stop the two are the same. Either way the action that
is returned has been evaluated, and its value is returned with it.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ashore_runtime.critics import ActionCritics
from ashore_runtime.schema import Refinement

_SHORTEST = 1e-12
"""A cost gradient shorter than this has no direction."""
LEAST_GAIN = 1e-3
"""Share of a cost by which another must be lower to be better."""


class Refined(NamedTuple):
    """An action and what is known about it."""

    action: np.ndarray
    cost: float
    """Q_c^eta of `action`; NaN when nothing was evaluated (eta = 0)."""
    nominal_cost: float
    """Q_c^eta of the nominal action; NaN when nothing was evaluated."""
    steps: int


class Box(NamedTuple):
    """The actions that may be sent."""

    low: np.ndarray
    high: np.ndarray

    def project(self, action: np.ndarray) -> np.ndarray:
        """The nearest action inside."""
        return np.minimum(np.maximum(action, self.low), self.high)


def interpolation_weight(kind: str, eta: float) -> float:
    """w(eta), of eta to float32 as the networks get it."""
    level = float(np.float32(min(max(eta, 0.0), 1.0)))
    if kind == "full":
        return 1.0 if level > 0.0 else 0.0
    return math.sqrt(level) if kind == "sqrt" else level


def _always(_steps: int) -> bool:
    return True


def refine(
    critics: ActionCritics,
    nominal: np.ndarray,
    eta: float,
    threshold: float,
    box: Box,
    settings: Refinement,
    may_step: Callable[[int], bool] = _always,
) -> Refined:
    """The action to send.

    Args:
        critics: answer for the current state and eta.
        nominal: a_0, inside the box.
        eta: risk level; at 0 the nominal action comes back bit for bit and nothing is evaluated.
        threshold: d, in the unit of Q_c.
        box: where the action must stay.
        settings: steps, step sizes, variants.
        may_step: asked before every step, with the number of steps done; the caller's clock decides.
    """
    weight = interpolation_weight(settings.weight, eta)
    if weight == 0.0:
        return Refined(nominal, float("nan"), float("nan"), 0)
    nominal_cost = critics.cost(nominal)
    if nominal_cost <= threshold or not settings.steps:
        return Refined(nominal, nominal_cost, nominal_cost, 0)
    run = _judge_what_is_sent if settings.keep == "best" else _as_printed
    return run(critics, nominal, nominal_cost, weight, threshold, box, settings, may_step)


def _judge_what_is_sent(
    critics: ActionCritics,
    nominal: np.ndarray,
    nominal_cost: float,
    weight: float,
    threshold: float,
    box: Box,
    settings: Refinement,
    may_step: Callable[[int], bool],
) -> Refined:
    iterate, best, best_cost, steps = nominal, nominal, nominal_cost, 0
    while steps < settings.steps and best_cost > threshold and may_step(steps):
        iterate = _step(critics, nominal, iterate, box, settings)
        candidate = _between(nominal, iterate, weight, box)
        cost = critics.cost(candidate)
        steps += 1
        if cost <= threshold or cost < best_cost - LEAST_GAIN * abs(best_cost):
            best, best_cost = candidate, cost
    return Refined(best, best_cost, nominal_cost, steps)


def _as_printed(
    critics: ActionCritics,
    nominal: np.ndarray,
    nominal_cost: float,
    weight: float,
    threshold: float,
    box: Box,
    settings: Refinement,
    may_step: Callable[[int], bool],
) -> Refined:
    iterate, cost, steps = nominal, nominal_cost, 0
    while steps < settings.steps and cost > threshold and may_step(steps):
        iterate = _step(critics, nominal, iterate, box, settings)
        cost = critics.cost(iterate)
        steps += 1
    if weight == 1.0 or not steps:
        return Refined(iterate, cost, nominal_cost, steps)
    sent = _between(nominal, iterate, weight, box)
    return Refined(sent, critics.cost(sent), nominal_cost, steps)


def _between(nominal: np.ndarray, iterate: np.ndarray, weight: float, box: Box) -> np.ndarray:
    # With the full weight the iterate itself, and not what is left of it after subtracting and adding a_0 again.
    return iterate if weight == 1.0 else box.project(nominal + weight * (iterate - nominal))


def _step(
    critics: ActionCritics, nominal: np.ndarray, iterate: np.ndarray, box: Box, settings: Refinement
) -> np.ndarray:
    moved = iterate
    if settings.reward_step:
        pull = critics.reward_gradient(iterate) - 2.0 * settings.proximal * (iterate - nominal)
        moved = box.project(iterate + settings.reward_step * pull)
    gradient = critics.cost_gradient(moved)
    if settings.variant == "unit":
        gradient = gradient / max(np.sqrt(np.sum(np.square(gradient))), _SHORTEST)
    return box.project(moved - settings.cost_step * gradient)
