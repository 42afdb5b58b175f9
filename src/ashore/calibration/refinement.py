"""Algorithm 1: from the nominal action to one whose upper-tail cost fits the budget.

    a~ = P(a + alpha_r (grad Q_r(a) - 2 beta_n (a - a_0))),   a' = P(a~ - alpha_c grad Q_c^eta(a~)),
    a_eta = P(a_0 + w(eta) (a' - a_0))

`ashore_runtime.refinement` does the same in NumPy, and the two must agree. What they agree on:

- P clips to the box [-1, 1] per action.
- Q_c^eta(a) is the greatest over the heads of the mean over F midpoints of [eta, 1] of the cost quantiles; its gradient
  is that of the greatest head, the first one on a tie. Q_r(a) is the mean over heads and F midpoints of [0, 1], in the
  critic's own unit (rewards times the training's reward scale). F is the number of fractions of the architecture.
- At eta = 0 the nominal action is returned bit for bit; so it is where Q_c^eta(a_0) <= d.
- Before each of at most K steps the candidate is judged, and the iteration ends when its cost is <= d.
- `keep="last"`, as printed: the candidate that is judged is the iterate a'; a_eta of the last iterate is executed.
  `keep="best"`: the candidate is a_eta, as it would be sent. The one with the lowest cost is executed, a_0 among them;
  the iteration ends when this cost is <= d. A cost is lower than the lowest so far if it is so by a thousandth, or if
  it is <= d: on a plateau rounding would choose, and every implementation otherwise.
- `variant="unit"` divides the cost gradient by max(its length, 1e-12): alpha_c is then a distance.
- w(eta) is eta, sqrt(eta), or 1 for every eta > 0; with w = 1 a_eta is a' itself, not a_0 + (a' - a_0).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from ashore import quantiles
from ashore.networks import critic
from ashore.networks.architecture import Architecture
from ashore.networks.critic import COST, REWARD
from ashore.networks.layers import Params
from ashore.types import Array

SHORTEST_GRADIENT = 1e-12
"""A cost gradient shorter than this has no direction."""
LEAST_GAIN = 1e-3
"""Share of a cost by which another must be lower to be better."""


@dataclass(frozen=True)
class RefinementConfig:
    """The numbers and variants of Algorithm 1; the names are those of the bundle's manifest."""

    steps: int = 5
    """K_ref."""
    reward_step: float = 0.01
    """alpha_r."""
    cost_step: float = 0.05
    """alpha_c."""
    proximal: float = 1.0
    """beta_n."""
    variant: Literal["paper", "unit"] = "paper"
    """`paper`: the cost gradient as it is; `unit`: scaled to length one."""
    weight: Literal["eta", "sqrt", "full"] = "eta"
    """w(eta): `eta` as in the paper, `sqrt`, or `full` (1 whenever eta > 0)."""
    keep: Literal["best", "last"] = "best"
    """`best`: judge every action that could be sent and send the best; `last`: as printed, send the last iterate."""
    threshold_scale: float = 1.0
    """The threshold is this times the discounted budget."""

    def __post_init__(self) -> None:
        if self.steps < 0 or self.threshold_scale <= 0.0:
            raise ValueError("Refinement needs a number of steps that is not negative and a positive threshold.")
        for name, known in (("variant", ("paper", "unit")), ("weight", ("eta", "sqrt", "full"))):
            if getattr(self, name) not in known:
                raise ValueError(f"The refinement's {name} must be one of {', '.join(known)}.")
        if self.keep not in ("best", "last"):
            raise ValueError("The refinement keeps the best or the last action.")


AS_PRINTED = RefinementConfig(keep="last")
"""Algorithm 1 to the letter."""


class ActionValues(NamedTuple):
    """What Algorithm 1 asks about an action in one state; anything that answers can be refined against."""

    reward: Callable[[Array], Array]
    """Q_r."""
    cost: Callable[[Array], Array]
    """Q_c^eta."""


class Refined(NamedTuple):
    """An action and what is known about it."""

    action: Array
    triggered: Array
    """Whether the nominal action did not fit the budget at this risk level, bool."""
    cost_before: Array
    """Q_c^eta of the nominal action."""
    cost_after: Array
    """Q_c^eta of the action that is executed."""
    steps: Array
    """Gradient steps taken, int32."""


class _Progress(NamedTuple):
    """The iteration between two steps; `judged` decides whether it goes on."""

    iterate: Array
    judged: Array
    best: Array
    best_cost: Array
    steps: Array


def critic_values(
    nets: Architecture, critics: Params, observation: Array, condition: Array, eta: Array
) -> ActionValues:
    """Q_r and Q_c^eta of the trained critics in one state, at fixed midpoint fractions.

    Args:
        critics: the pair, reward first.
        observation: normalised.
        condition: what the critics are conditioned on, see `architecture.condition`.
        eta: risk level, a scalar that may be traced.
    """
    reward_params, cost_params = critic.one_of(critics, REWARD), critic.one_of(critics, COST)
    everywhere = quantiles.midpoints(0.0, nets.sizes.fractions)
    upper_tail = quantiles.midpoints(eta, nets.sizes.fractions)

    def reward(action: Array) -> Array:
        values = critic.reward_quantiles(nets.critic, reward_params, observation, action, condition, everywhere)
        return jnp.mean(values)

    def cost(action: Array) -> Array:
        values = critic.cost_quantiles(nets.critic, cost_params, observation, action, condition, upper_tail)
        by_head = jnp.mean(values, axis=1)
        # Not `max`: on a tie its gradient is shared between the heads, and the runtime follows the first.
        return by_head[jnp.argmax(by_head)]

    return ActionValues(reward, cost)


def weight(config: RefinementConfig, eta: Array) -> Array:
    """w(eta)."""
    level = jnp.clip(eta, 0.0, 1.0)
    if config.weight == "full":
        return (level > 0.0).astype(level.dtype)
    return jnp.sqrt(level) if config.weight == "sqrt" else level


def refine(config: RefinementConfig, values: ActionValues, nominal: Array, eta: Array, threshold: float) -> Refined:
    """The action to execute in one state.

    Args:
        values: Q_r and Q_c^eta in this state.
        nominal: a_0 = pi(s, z), inside the box.
        eta: risk level, a scalar.
        threshold: d, in the unit of Q_c; already times `threshold_scale`.
    """
    assert nominal.ndim == 1 and eta.ndim == 0, (nominal.shape, eta.shape)
    share = weight(config, eta)
    nominal_cost = values.cost(nominal)
    triggered = (eta > 0.0) & (nominal_cost > threshold)

    def sent(iterate: Array) -> Array:
        # With the full weight the iterate itself, and not what is left of it after subtracting and adding a_0 again.
        return iterate if config.weight == "full" else project(nominal + share * (iterate - nominal))

    def unfinished(now: _Progress) -> Array:
        return triggered & (now.steps < config.steps) & (now.judged > threshold)

    def one_step(now: _Progress) -> _Progress:
        moved = after_reward(config, jax.grad(values.reward)(now.iterate), nominal, now.iterate)
        iterate = after_cost(config, jax.grad(values.cost)(moved), moved)
        if config.keep == "last":
            return _Progress(iterate, values.cost(iterate), now.best, now.best_cost, now.steps + 1)
        candidate = sent(iterate)
        cost = values.cost(candidate)
        better = (cost <= threshold) | (cost < now.best_cost - LEAST_GAIN * jnp.abs(now.best_cost))
        best = jnp.where(better, candidate, now.best)
        best_cost = jnp.where(better, cost, now.best_cost)
        return _Progress(iterate, best_cost, best, best_cost, now.steps + 1)

    # A loop with a condition and not K masked steps: over a batch it takes as many steps as the slowest needs, and the
    # result is the same. Where nobody needs one, calibration at eta = 0 among others, no gradient is computed.
    start = _Progress(nominal, nominal_cost, nominal, nominal_cost, jnp.zeros((), jnp.int32))
    end = jax.lax.while_loop(unfinished, one_step, start)
    if config.keep == "best":
        action, cost = end.best, end.best_cost
    elif config.weight == "full":
        action, cost = end.iterate, end.judged
    else:
        action = sent(end.iterate)
        cost = values.cost(action)
    return executed(nominal, nominal_cost, triggered, action, cost, end.steps)


def executed(
    nominal: Array, nominal_cost: Array, triggered: Array, action: Array, cost: Array, steps: Array
) -> Refined:
    """What came of it: where no step was taken, the nominal action itself."""
    moved = steps > 0
    return Refined(
        action=jnp.where(moved, action, nominal),
        triggered=triggered,
        cost_before=nominal_cost,
        cost_after=jnp.where(moved, cost, nominal_cost),
        steps=steps,
    )


def after_reward(config: RefinementConfig, gradient: Array, nominal: Array, iterate: Array) -> Array:
    """a~: one step up the reward, held back to the nominal action."""
    return project(iterate + config.reward_step * (gradient - 2.0 * config.proximal * (iterate - nominal)))


def after_cost(config: RefinementConfig, gradient: Array, moved: Array) -> Array:
    """a': one step down the cost."""
    if config.variant == "unit":
        gradient = gradient / jnp.maximum(jnp.sqrt(jnp.sum(jnp.square(gradient))), SHORTEST_GRADIENT)
    return project(moved - config.cost_step * gradient)


def project(action: Array) -> Array:
    """P: onto the box."""
    return jnp.clip(action, -1.0, 1.0)
