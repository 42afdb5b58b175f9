"""Decisions made one at a time on an accelerator: a policy, compiled together with its weights.

What is deployed does not learn. As constants of the program its weights are prepared once, and a call passes three
small arrays instead of a hundred. The decision is packed into one array in pinned memory of the host, which the
program writes itself: to fetch an array from the device afterwards takes longer than anything else in an empty program
(docs/benchmarks.md).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from ashore.calibration import quick_refinement
from ashore.calibration.careful_policy import CarefulPolicy, Decision
from ashore.types import Array


class Answer(NamedTuple):
    """A `Decision` that has arrived."""

    action: np.ndarray
    triggered: bool
    cost_before: float
    cost_after: float
    steps: int


Decide = Callable[[Array, Array, Array], Answer]
"""From one raw observation, one latent and a risk level to the action."""


def compiled(policy: CarefulPolicy, weights: Any) -> Decide:
    """`policy.act` with these weights, by the shorter way."""
    weights = jax.device_put(weights)
    decide = _unpacked(policy, weights)
    (device,) = jax.tree.leaves(weights)[0].devices()
    at_the_host = SingleDeviceSharding(device, memory_kind="pinned_host")

    def packed(observation: Array, latent: Array, eta: Array) -> Array:
        decision = decide(observation, latent, eta)
        rest = [field.astype(jnp.float32) for field in decision[1:]]
        return jnp.concatenate([decision.action, jnp.stack(rest)])

    program = jax.jit(packed, out_shardings=at_the_host)

    def answer(observation: Array, latent: Array, eta: Array) -> Answer:
        numbers = np.asarray(program(observation, latent, eta))
        triggered, before, after, steps = numbers[policy.nets.action :].tolist()
        return Answer(numbers[: policy.nets.action], triggered > 0.0, before, after, int(steps))

    return answer


def _unpacked(policy: CarefulPolicy, weights: Any) -> Callable[[Array, Array, Array], Decision]:
    if policy.caution == "actor":
        return lambda observation, latent, eta: policy.act(weights, observation, latent, eta)
    critics = jax.jit(lambda pair: quick_refinement.prepare(policy.nets, pair))(weights[0]["critics"])

    def decide(observation: Array, latent: Array, eta: Array) -> Decision:
        situation = policy.situation(weights, observation, latent, eta)
        limits = (eta, policy.threshold)
        return Decision(*quick_refinement.refine(policy.refinement, policy.nets, critics, *situation, *limits))

    return decide
