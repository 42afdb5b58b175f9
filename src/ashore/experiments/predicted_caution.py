"""Does caution lower the cost that the critics themselves predict? One policy, the same states, more and more caution.

Every action is judged by one yardstick: the mean of the worst tenth of the cost, if the policy went on without caution
afterwards. A yardstick that moved with the risk level would rise with it, whatever the actions did.
"""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ashore.calibration import refinement
from ashore.calibration.careful_policy import CarefulPolicy
from ashore.calibration.refinement import RefinementConfig
from ashore.experiments import jax_twin
from ashore.learning import normalisation
from ashore.networks import architecture
from ashore.types import Array
from ashore_runtime.bundle import Bundle

JUDGED_AT = 0.9
"""Risk level of the yardstick."""
_AT_ONCE = 64


class Predicted(NamedTuple):
    """One risk level over all states."""

    eta: float
    cost: float
    """Predicted upper-tail cost of the action, in the critics' unit, mean over the states."""
    lower: float
    """Share of the states in which it is lower than that of the action at eta = 0; the others are as high or higher."""
    higher: float
    triggered: float
    """Share of the states in which the nominal action did not fit; none where nobody asked."""


def predict(
    found: Bundle, caution: str, observation: np.ndarray, latent: np.ndarray, etas: Sequence[float]
) -> list[Predicted]:
    """What the critics expect of the actions at each risk level.

    Args:
        found: a bundle with critics.
        caution: `refinement`, `actor` or `both`.
        observation: raw, [state, ...].
        latent: what was believed there, [state, ...].
        etas: risk levels.
    """
    twin = jax_twin.twin(found.manifest, found.weights)
    numbers = RefinementConfig(**asdict(found.manifest.refinement))
    policy = CarefulPolicy(twin.policy.nets, twin.policy.budget, caution, numbers)  # pyright: ignore[reportArgumentType]
    given = jnp.asarray(observation, jnp.float32), jnp.asarray(latent, jnp.float32)

    def judged(eta: float) -> tuple[np.ndarray, np.ndarray]:
        return jax.device_get(_judged(policy, twin.weights, *given, jnp.float32(eta)))

    without, _ = judged(0.0)
    rows = []
    for eta in etas:
        cost, triggered = judged(eta)
        shares = np.mean(cost < without), np.mean(cost > without), np.mean(triggered)
        rows.append(Predicted(eta, float(np.mean(cost)), *map(float, shares)))
    return rows


@partial(jax.jit, static_argnames="policy")
def _judged(policy: CarefulPolicy, weights: Any, observation: Array, latent: Array, eta: Array) -> tuple[Array, Array]:
    params, normalisers = weights

    def one(state: tuple[Array, Array]) -> tuple[Array, Array]:
        decision = policy.act(weights, *state, eta)
        seen = normalisation.see(policy.nets, normalisers.observation, state[0])
        condition = architecture.condition(policy.nets, state[1], jnp.zeros_like(eta))
        yardstick = jnp.asarray(JUDGED_AT, jnp.float32)
        values = refinement.critic_values(policy.nets, params["critics"], seen, condition, yardstick)
        return values.cost(decision.action), decision.triggered

    return jax.lax.map(one, (observation, latent), batch_size=_AT_ONCE)
