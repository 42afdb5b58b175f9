"""Decisions made one at a time on an accelerator: a policy, compiled together with its weights.

What is deployed does not learn. As constants of the program its weights are prepared once, and what belongs to a risk
level is prepared when that changes. A decision is then one small array in and one out. The one that comes out lies in
pinned memory of the host, where the program writes it itself: to fetch an array from the device afterwards takes longer
than anything else in an empty program (docs/benchmarks.md).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from ashore.calibration import quick_refinement
from ashore.calibration.careful_policy import CarefulPolicy, Decision
from ashore.calibration.quick_refinement import Level
from ashore.types import Array


class Answer(NamedTuple):
    """A `Decision` that has arrived."""

    action: np.ndarray
    triggered: bool
    cost_before: float
    cost_after: float
    steps: int


Decide = Callable[[np.ndarray, np.ndarray, float], Answer]
"""From one raw observation, one latent and a risk level to the action."""
_COMPILER = {"bfloat16": {"xla_gpu_enable_triton_gemm": False}}
"""Whose products are faster by cuBLAS than by Triton, and are left to it (docs/benchmarks.md)."""


def compiled(policy: CarefulPolicy, weights: Any) -> Decide:
    """`policy.act` with these weights, by the shorter way."""
    weights = jax.device_put(weights)
    at_level, decide = _parts(policy, weights)
    (device,) = jax.tree.leaves(weights)[0].devices()
    at_the_host = SingleDeviceSharding(device, memory_kind="pinned_host")

    def packed(level: Any, given: Array) -> Array:
        decision = decide(level, given[: policy.nets.observation], given[policy.nets.observation :])
        rest = [field.astype(jnp.float32) for field in decision[1:]]
        return jnp.concatenate([decision.action, jnp.stack(rest)])

    options = _COMPILER.get(policy.nets.sizes.compute)
    program = jax.jit(packed, out_shardings=at_the_host, compiler_options=options)
    prepare = jax.jit(at_level)
    prepared: dict[float, Any] = {}

    def answer(observation: np.ndarray, latent: np.ndarray, eta: float) -> Answer:
        if eta not in prepared:
            prepared.clear()
            prepared[eta] = jax.device_put(prepare(np.float32(eta)), device)
        given = np.concatenate([observation, latent], dtype=np.float32)
        arriving = program(prepared[eta], given)
        while not arriving.is_ready():
            pass  # To sleep until it is there, and to be woken, would take longer.
        numbers = np.asarray(arriving)
        triggered, before, after, steps = numbers[policy.nets.action :].tolist()
        return Answer(numbers[: policy.nets.action], triggered > 0.0, before, after, int(steps))

    return answer


def _parts(policy: CarefulPolicy, weights: Any) -> tuple[Callable[[Array], Any], Callable[..., Decision]]:
    """What is prepared for a risk level, and the decision that uses it."""
    if policy.caution == "actor":
        return lambda eta: eta, lambda eta, observation, latent: policy.act(weights, observation, latent, eta)
    critics = jax.jit(lambda pair: quick_refinement.prepare(policy.nets, pair))(weights[0]["critics"])

    def decide(level: Level, observation: Array, latent: Array) -> Decision:
        situation = policy.situation(weights, observation, latent, level.eta)
        refined = quick_refinement.refine(policy.refinement, policy.nets, critics, level, *situation, policy.threshold)
        return Decision(*refined)

    return lambda eta: quick_refinement.at_level(policy.nets, critics, eta), decide
