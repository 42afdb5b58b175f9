"""The Lagrange multiplier as a PID controller of the measured cost.

The error is relative, e = (J - d) / d up to a limit, so that gains mean the same for every budget; J and d may be in
any unit as long as it is one. J is measured on rollouts: a cost critic is too biased to steer by.

`positional` (default; Stooke et al. 2020):

    I <- clip(I + Ki e, 0, cap)            P <- a P + (1 - a) e            S <- b S + (1 - b) J / d
    lambda = clip(Kp P + I + Kd max(0, S - S_previous), 0, cap)

`incremental` (the paper as written): lambda <- max(0, lambda + Kp e + Ki sum_j e_j + Kd (e - e_previous)). Its sum is
integrated once more by the update itself and is never projected, so it overshoots; kept for comparison.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp

from ashore.types import Array


@dataclass(frozen=True)
class PIDConfig:
    """Gains and limits of the multiplier."""

    proportional: float = 0.05
    integral: float = 0.0005
    derivative: float = 0.1
    error_smoothing: float = 0.95
    """a: share of the old value in the smoothed error."""
    cost_smoothing: float = 0.95
    """b: share of the old value in the smoothed cost whose rise is the derivative."""
    error_limit: float | None = None
    """Largest relative error taken in: what a policy costs before it can drive must not wind the integral up."""
    initial: float = 0.0
    cap: float = 100.0
    form: str = "positional"
    """`positional` or `incremental`."""

    def __post_init__(self) -> None:
        if self.form not in ("positional", "incremental"):
            raise ValueError(f"The multiplier's form is 'positional' or 'incremental', not '{self.form}'.")
        if not 0.0 <= self.initial <= self.cap:
            raise ValueError(f"The multiplier must start between 0 and its cap {self.cap}, not at {self.initial}.")


class MultiplierState(NamedTuple):
    """The multiplier and the controller's memory, float32 scalars but for the count."""

    multiplier: Array
    integral: Array
    """Projected integral (positional) or plain sum of errors (incremental)."""
    smoothed_error: Array
    smoothed_cost: Array
    previous_error: Array
    updates: Array
    """Measurements taken in, int32."""


def init(config: PIDConfig) -> MultiplierState:
    """A multiplier that has seen no measurement; in the positional form the integral carries the initial value."""
    zero = jnp.zeros((), jnp.float32)
    initial = jnp.asarray(config.initial, jnp.float32)
    integral = initial if config.form == "positional" else zero
    return MultiplierState(initial, integral, zero, zero, zero, jnp.zeros((), jnp.int32))


def update(config: PIDConfig, state: MultiplierState, measured_cost: Array, budget: Array | float) -> MultiplierState:
    """Take in one measurement of the cost.

    Args:
        measured_cost: J, the mean cost of recent noise-free episodes.
        budget: d > 0, in the unit of J.
    """
    measured_cost, budget = jnp.asarray(measured_cost, jnp.float32), jnp.asarray(budget, jnp.float32)
    assert measured_cost.ndim == 0 and budget.ndim == 0, (measured_cost.shape, budget.shape)
    cost = measured_cost / budget
    step = _positional if config.form == "positional" else _incremental
    limit = jnp.inf if config.error_limit is None else config.error_limit
    return step(config, state, jnp.minimum(cost - 1.0, limit), cost)


def _positional(config: PIDConfig, state: MultiplierState, error: Array, cost: Array) -> MultiplierState:
    a, b = config.error_smoothing, config.cost_smoothing
    integral = jnp.clip(state.integral + config.integral * error, 0.0, config.cap)
    smoothed_error = a * state.smoothed_error + (1.0 - a) * error
    # The first measurement is where the cost starts, not a rise from zero.
    previous_cost = jnp.where(state.updates == 0, cost, state.smoothed_cost)
    smoothed_cost = b * previous_cost + (1.0 - b) * cost
    rise = jnp.maximum(smoothed_cost - previous_cost, 0.0)
    signal = config.proportional * smoothed_error + integral + config.derivative * rise
    return MultiplierState(
        multiplier=jnp.clip(signal, 0.0, config.cap),
        integral=integral,
        smoothed_error=smoothed_error,
        smoothed_cost=smoothed_cost,
        previous_error=error,
        updates=state.updates + 1,
    )


def _incremental(config: PIDConfig, state: MultiplierState, error: Array, cost: Array) -> MultiplierState:
    integral = state.integral + error
    previous_error = jnp.where(state.updates == 0, error, state.previous_error)
    change = config.proportional * error + config.integral * integral + config.derivative * (error - previous_error)
    return MultiplierState(
        multiplier=jnp.clip(state.multiplier + change, 0.0, config.cap),
        integral=integral,
        smoothed_error=error,
        smoothed_cost=cost,
        previous_error=error,
        updates=state.updates + 1,
    )
