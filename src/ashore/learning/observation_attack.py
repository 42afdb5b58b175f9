"""An attacker who disturbs what the policy sees, as far as it may, to make it do what is worst.

    maximise over |delta|_inf <= eps:   Q(s, pi(s + delta, z), z)       (Liu et al. 2023)

Q is the mean of the cost critic (maximum cost) or of the reward critic (maximum reward: greed makes careless). The
critic knows the true s; only the policy is fooled. delta is in normalised units, found by a few steps along the sign of
the gradient, and starts where the last decision's ended.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from ashore import quantiles
from ashore.learning import normalisation
from ashore.learning.collect import Attack, See
from ashore.learning.normalisation import Normalisers
from ashore.networks import actor, critic
from ashore.networks.architecture import Architecture
from ashore.networks.critic import COST, REWARD
from ashore.networks.layers import Params
from ashore.types import Array

REACH = 2.5
"""All steps together could cross the radius this often: enough to come from one side of the ball to the other."""
STEEPNESS = 5.0
"""Over one ramp the radius reaches 1 - exp(-5) = 0.993 of its full size."""
KINDS = {"cost": COST, "reward": REWARD}


@dataclass(frozen=True)
class AttackConfig:
    """Who attacks, how hard, and from when on."""

    kind: str = "cost"
    """Whose critic is maximised: `cost` or `reward`."""
    radius: float = 0.05
    """eps, in standard deviations of each observed number."""
    steps: int = 5
    """Gradient steps per decision."""
    fractions: int = 8
    """Quantiles behind the critic's mean."""
    start: float = 0.1
    """Share of the run before the first attack."""
    ramp: float = 0.3
    """Share of the run over which the radius grows to its full size."""
    worlds: str = "nominal"
    """Shift from which the training worlds are drawn: `nominal` as in the reference, or `train`."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"An attack maximises the {' or the '.join(KINDS)}, not '{self.kind}'.")
        if self.radius < 0.0 or self.steps < 1 or self.fractions < 1 or self.ramp <= 0.0:
            raise ValueError("An attack has a radius that is not negative, and at least one step, fraction and ramp.")


def ascend(value: Callable[[Array], Array], begin: Array, radius: Array, steps: int) -> Array:
    """Climb inside the ball |delta|_inf <= radius by projected steps along the sign of the gradient.

    A sign step does not get shorter near the top, so the best place on the way is kept, not the last.

    Args:
        value: of disturbances [world, observation], one number per world that depends on its own disturbance alone.
        begin: where to start; what lies outside the ball is brought to its surface.
    """
    stride = radius * (REACH / steps)

    def total(delta: Array) -> tuple[Array, Array]:
        values = value(delta)
        return jnp.sum(values), values

    def higher(best: tuple[Array, Array], delta: Array, values: Array) -> tuple[Array, Array]:
        better = values > best[1]
        return jnp.where(better[:, None], delta, best[0]), jnp.where(better, values, best[1])

    def one_step(_: int, carry: tuple[Array, tuple[Array, Array]]) -> tuple[Array, tuple[Array, Array]]:
        delta, best = carry
        slope, values = jax.grad(total, has_aux=True)(delta)
        stepped = jnp.clip(delta + stride * jnp.sign(slope), -radius, radius)
        return stepped, higher(best, delta, values)

    begin = jnp.clip(begin, -radius, radius)
    nowhere = (begin, jnp.full(begin.shape[0], -jnp.inf))
    last, best = jax.lax.fori_loop(0, steps, one_step, (begin, nowhere))
    return higher(best, last, value(last))[0]


def disturb(
    config: AttackConfig,
    nets: Architecture,
    params: Params,
    normalisers: Normalisers,
    see: See,
    observations: Array,
    condition: Array,
    last: Array,
    radius: Array,
) -> Array:
    """The disturbance of every world's observation, in standard deviations, [world, observation].

    Args:
        see: what the networks see of one raw observation.
        observations: what there is to see, raw, [world, observation].
        last: the disturbance before, where the search begins.
    """
    place = KINDS[config.kind]
    weights = critic.one_of(params["critics"], place)
    ask = critic.cost_quantiles if place == COST else critic.reward_quantiles
    fractions = quantiles.midpoints(0.0, config.fractions)

    def one(delta: Array, observation: Array, condition: Array) -> Array:
        shown = normalisation.disturbed(normalisers.observation, observation, delta)
        action = actor.apply(nets.actor, params["actor"], see(shown), condition)
        return jnp.mean(ask(nets.critic, weights, see(observation), action, condition, fractions))

    return ascend(lambda delta: jax.vmap(one)(delta, observations, condition), last, radius, config.steps)


def radius_after(config: AttackConfig, decisions: Array, total: int) -> Array:
    """eps (1 - exp(-5 (t - start) / ramp)), 0 before the start; `total` decisions are the whole run."""
    start, ramp = config.start * total, config.ramp * total
    grown = 1.0 - jnp.exp(-STEEPNESS * jnp.maximum(decisions.astype(jnp.float32) - start, 0.0) / ramp)
    return config.radius * grown


def ramped(config: AttackConfig, total: int) -> Attack:
    """The attacker of a training run of `total` decisions: weak at first."""
    return _attacker(config, lambda decisions: radius_after(config, decisions, total))


def at_full_radius(config: AttackConfig) -> Attack:
    """The attacker whom a finished policy meets."""
    return _attacker(config, lambda _: jnp.float32(config.radius))


def _attacker(config: AttackConfig, radius_at: Callable[[Array], Array]) -> Attack:
    def attack(
        nets: Architecture,
        params: Params,
        normalisers: Normalisers,
        see: See,
        observations: Array,
        condition: Array,
        last: Array,
        decisions: Array,
    ) -> Array:
        radius = radius_at(decisions)
        return disturb(config, nets, params, normalisers, see, observations, condition, last, radius)

    return attack
