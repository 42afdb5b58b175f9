"""Does the runtime do what was trained? Its actions against those of JAX, on states that it met itself.

In float32, as it is deployed, the last bit decides next to the kink of a ReLU, and two right machines differ in some
of ten thousand states. In float64 on both sides rounding is too small to decide anything: what differs there is wrong.
"""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ashore.calibration.careful_policy import Agent, CarefulPolicy
from ashore.calibration.refinement import RefinementConfig
from ashore.experiments import deployment, deployment_environment, jax_twin
from ashore.experiments.deployment import NO_CAUTION, Caution
from ashore.experiments.suite_drivers import NeutralPolicy
from ashore.types import Array
from ashore_runtime import bundle as bundles
from ashore_runtime.bundle import Bundle
from ashore_runtime.schema import Refinement

TOLERANCE = 1e-5
"""Largest difference between two actions that are the same."""
_NUDGES = 64
"""Times that the last bits are changed; in some states as few as 6 in 100 of these put a unit beyond its kink."""


class States(NamedTuple):
    """What a runtime was asked and what it answered, one row per decision."""

    observation: np.ndarray
    latent: np.ndarray
    """Posterior mean at the time."""
    eta: np.ndarray
    action: np.ndarray
    """What was sent, float32."""
    steps: np.ndarray


class Parity(NamedTuple):
    """How far two implementations of one policy are apart."""

    states: int
    refined: int
    """States in which the runtime took at least one step."""
    largest: float
    """Largest difference of an action."""
    quantile_99_9: float
    differ: int
    """States whose actions are farther apart than `TOLERANCE`."""
    other_steps: int
    """Of these, states in which the number of steps differs: a cost within rounding of where a step is saved."""
    uncertain: int
    """Of the others, states in which JAX's own answer moves as far when the last bits of the weights change: a ReLU at
    its kink, or one cost within rounding of another."""

    @property
    def unexplained(self) -> int:
        """Differences that rounding does not explain."""
        return self.differ - self.other_steps - self.uncertain


def record(
    bundle: Path,
    caution: str,
    refinement: Refinement | None,
    etas: Sequence[float],
    decisions: int,
    shift: str = "train",
    task: str | None = None,
    seed: int = 0,
    precision: str = "float32",
) -> States:
    """States that a runtime meets in C MuJoCo, one world per risk level, with all the time it wants.

    Args:
        bundle: folder or zip.
        caution: `refinement`, `actor` or `both`; `none` for a bundle that is never refined.
        refinement: numbers of Algorithm 1 instead of the manifest's.
        etas: risk levels, each throughout a deployment of its own.
        decisions: at each level.
        shift: where the worlds come from.
        task: which task; the manifest's if left out.
        seed: chooses worlds and scenes.
        precision: what the runtime computes in.
    """
    rows: list[tuple[Any, ...]] = []
    for index, eta in enumerate(etas):
        way = Caution(
            eta,
            caution,
            float("inf"),
            detect_changes=False,
            over_budget=None,
            refinement=refinement,
            precision=precision,
        )
        runtime = deployment.load_runtime(bundle, way, freeze=False)
        manifest = runtime.bundle.manifest
        name = task or manifest.task.name
        parameters = deployment_environment.draw_parameters(name, None, shift, seed + index, 1)[0]
        env = deployment_environment.world(manifest, name, None, parameters)
        for count, moment in enumerate(deployment.moments(runtime, env, decisions, seed + index), start=1):
            result = moment.result
            rows.append((moment.observation, result.z_mean, result.eta, result.action, result.k_used))
            if count == decisions:
                break
        runtime.close()
    observation, latent, eta, action, steps = (np.array(column) for column in zip(*rows, strict=True))
    return States(observation, latent, eta.astype(np.float32), action, steps)


def compare(
    bundle: Path | Bundle, caution: str, refinement: Refinement | None, states: States, precision: str = "float32"
) -> Parity:
    """The recorded actions against JAX's for the same states, in the precision in which they were recorded."""
    loaded = bundle if isinstance(bundle, Bundle) else bundles.load(bundle)
    manifest = loaded.manifest
    numbers = RefinementConfig(**asdict(refinement or manifest.refinement))
    weights = {name: leaf.astype(precision) for name, leaf in loaded.weights.items()}
    # What the runtime's networks are given is float32 in every precision.
    inputs = [part.astype(np.float32).astype(precision) for part in (states.observation, states.latent, states.eta)]

    def answers(tensors: Any, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with jax.enable_x64(precision == "float64"):
            twin = jax_twin.twin(manifest, tensors)
            nets = twin.policy.nets
            policy = (
                NeutralPolicy(nets)
                if caution == NO_CAUTION
                else CarefulPolicy(nets, twin.policy.budget, caution, numbers)  # pyright: ignore[reportArgumentType]
            )
            given = (jnp.asarray(part[chosen]) for part in inputs)
            return jax.device_get(_act(policy, twin.weights, *given))

    everything = np.arange(len(states.eta))
    action, steps = answers(weights, everything)
    apart = np.abs(action - states.action).max(axis=1)
    differ = np.flatnonzero(apart > TOLERANCE)
    other_steps = steps[differ] != states.steps[differ]
    uncertain = np.zeros(len(differ), bool)
    generator = np.random.default_rng(0)
    for _ in range(_NUDGES if len(differ) else 0):
        moved, moved_steps = answers(jax_twin.nudged(weights, generator), differ)
        far = np.abs(moved - action[differ]).max(axis=1) > 0.5 * apart[differ]
        uncertain |= far | (moved_steps != steps[differ])
    return Parity(
        states=len(apart),
        refined=int(np.sum(states.steps > 0)),
        largest=float(apart.max()),
        quantile_99_9=float(np.quantile(apart, 0.999)),
        differ=len(differ),
        other_steps=int(other_steps.sum()),
        uncertain=int((uncertain & ~other_steps).sum()),
    )


@partial(jax.jit, static_argnames="policy")
def _act(policy: Agent, weights: Any, observation: Array, latent: Array, eta: Array) -> tuple[Array, Array]:
    def one(row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        decision = policy.act(weights, *row)
        return decision.action, decision.steps

    return jax.lax.map(one, (observation, latent, eta), batch_size=_AT_ONCE)


_AT_ONCE = 64
