"""Decisions made one at a time on an accelerator: a policy, compiled together with its weights.

What is deployed does not learn. As constants of the program its weights are prepared once, and a call passes three
small arrays instead of a hundred.
"""

from collections.abc import Callable
from typing import Any

import jax

from ashore.calibration import quick_refinement
from ashore.calibration.careful_policy import CarefulPolicy, Decision
from ashore.types import Array

Decide = Callable[[Array, Array, Array], Decision]
"""From one raw observation, one latent and a risk level to the action."""


def compiled(policy: CarefulPolicy, weights: Any) -> Decide:
    """`policy.act` with these weights, by the shorter way."""
    if policy.caution == "actor":
        return jax.jit(lambda observation, latent, eta: policy.act(weights, observation, latent, eta))
    critics = jax.jit(lambda pair: quick_refinement.prepare(policy.nets, pair))(weights[0]["critics"])

    def decide(observation: Array, latent: Array, eta: Array) -> Decision:
        situation = policy.situation(weights, observation, latent, eta)
        limits = (eta, policy.threshold)
        return Decision(*quick_refinement.refine(policy.refinement, policy.nets, critics, *situation, *limits))

    return jax.jit(decide)
