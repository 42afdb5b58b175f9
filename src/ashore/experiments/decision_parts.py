"""The parts of a decision in each implementation, under the same names, so that how long they take can be compared.

Every part begins with a raw observation on the host and ends with its answer there. Where an implementation has no such
part the name is missing: the graphs of ONNX have no encoder, and one that refines computes all of a step, whatever of
it is asked for.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ashore.calibration import refinement
from ashore.calibration.careful_policy import CarefulPolicy
from ashore.calibration.refinement import ActionValues, RefinementConfig
from ashore.experiments.onnx_policy import OnnxPolicy
from ashore.learning import normalisation
from ashore.networks import encoder
from ashore.types import Array
from ashore_runtime.bundle import Bundle
from ashore_runtime.critics import CriticPair
from ashore_runtime.refinement import Box, Refined, refine
from ashore_runtime.schema import Manifest, Refinement

ACTOR = "actor"
COST, COST_GRADIENT, REWARD_GRADIENT = "upper-tail cost", "cost gradient", "reward gradient"
STEP = "one refinement step"
"""An action is judged, moved by one step of Algorithm 1, and judged again."""
EVIDENCE = "evidence of one transition"
"""The encoder's Gaussian factor."""
_REWARD, _COST = 0.1, 0.0
"""Of the transition."""
_NOTHING_FITS = -1.0
"""A threshold below every cost."""

Work = Callable[[int], Any]
"""Does one piece of work for the i-th observation."""
Parts = Iterator[tuple[str, Work]]


@dataclass(frozen=True)
class Question:
    """What every part is asked about."""

    observations: np.ndarray
    """Raw, [number, observation]: different ones, so that no answer is a repetition."""
    latent: np.ndarray
    action: np.ndarray
    """What is judged, and what a step begins with."""
    eta: float

    def seen(self, i: int) -> np.ndarray:
        """The i-th observation; after the last comes the first."""
        return self.observations[i % len(self.observations)]


def numpy_parts(found: Bundle, asked: Question) -> Parts:
    """As `ashore_runtime` does them."""
    networks, manifest = found.networks, found.manifest
    normalisers, critics = networks.normalisers, networks.critics
    # Under refinement the networks are told that nobody is careful.
    context = networks.context(asked.latent, 0.0)
    yield ACTOR, lambda i: networks.action(normalisers.see(asked.seen(i)), context)
    if critics is not None:
        box, settings = Box(manifest.action_low, manifest.action_high), _one_step(manifest)

        def about(ask: Callable[[CriticPair], Any]) -> Work:
            def work(i: int) -> Any:
                critics.prepare(normalisers.see(asked.seen(i)), context, asked.eta)
                return ask(critics)

            return work

        def step(answering: CriticPair) -> tuple[np.ndarray, float, float]:
            return _told(refine(answering, asked.action, asked.eta, _NOTHING_FITS, box, settings))

        yield COST, about(lambda answering: answering.cost(asked.action))
        yield COST_GRADIENT, about(lambda answering: answering.cost_gradient(asked.action))
        yield REWARD_GRADIENT, about(lambda answering: answering.reward_gradient(asked.action))
        yield STEP, about(step)
    if networks.identifies:

        def evidence(i: int) -> tuple[np.ndarray, np.ndarray]:
            before = asked.seen(i)
            target = normalisers.dynamics_target(before, asked.seen(i + 1), _REWARD, _COST)
            return networks.factor(normalisers.encoder_input(before, asked.action, target))

        yield EVIDENCE, evidence


def onnx_parts(policy: OnnxPolicy, manifest: Manifest, asked: Question) -> Parts:
    """As ONNX Runtime does them: its two files, one run each."""
    yield ACTOR, lambda i: policy.nominal(asked.seen(i), asked.latent, 0.0)
    if manifest.network.critic_heads:
        context, settings = policy.context(asked.latent, 0.0), _one_step(manifest)

        def step(i: int) -> tuple[np.ndarray, float, float]:
            return _told(policy.refine(asked.seen(i), context, asked.action, asked.eta, settings, _NOTHING_FITS))

        yield STEP, step


def jax_parts(policy: CarefulPolicy, weights: Any, manifest: Manifest, asked: Question) -> Parts:
    """As JAX does them: one program each, on the device that holds the weights."""
    nets, params = policy.nets, weights[0]
    index = jnp.asarray(nets.features, jnp.int32)
    settings = RefinementConfig(**asdict(_one_step(manifest)))
    belief = asked.latent, np.float32(asked.eta)

    def about(ask: Callable[[ActionValues, Array, Array], Any]) -> Work:
        @jax.jit
        def program(weights: Any, observation: Array, latent: Array, eta: Array, action: Array) -> Any:
            # The actor's answer is not asked for here, and the compiler leaves it out.
            seen, condition, _ = policy.situation(weights, observation, latent, eta)
            values = refinement.critic_values(nets, weights[0]["critics"], seen, condition, eta)
            return ask(values, action, eta)

        return lambda i: jax.device_get(program(weights, asked.seen(i), *belief, asked.action))

    def step(values: ActionValues, action: Array, eta: Array) -> tuple[Array, Array, Array]:
        refined = refinement.refine(settings, values, action, eta, _NOTHING_FITS)
        return refined.action, refined.cost_after, refined.cost_before

    @jax.jit
    def factor(weights: Any, observation: Array, action: Array, following: Array) -> tuple[Array, Array]:
        params, normalisers = weights
        before, change = observation[index], following[index] - observation[index]
        vector = normalisation.encoder_input(
            normalisers, nets.features, before, action, change, jnp.float32(_REWARD), jnp.float32(_COST)
        )
        said = encoder.factor(nets.encoder, params["encoder"], vector)
        return said.mean, said.precision

    nominal = jax.jit(lambda *given: policy.situation(*given).nominal)
    yield ACTOR, lambda i: jax.device_get(nominal(weights, asked.seen(i), *belief))
    if "critics" in params:
        yield COST, about(lambda values, action, _: values.cost(action))
        yield COST_GRADIENT, about(lambda values, action, _: jax.grad(values.cost)(action))
        yield REWARD_GRADIENT, about(lambda values, action, _: jax.grad(values.reward)(action))
        yield STEP, about(step)
    if "encoder" in params:
        yield EVIDENCE, lambda i: jax.device_get(factor(weights, asked.seen(i), asked.action, asked.seen(i + 1)))


def _told(refined: Refined) -> tuple[np.ndarray, float, float]:
    return refined.action, refined.cost, refined.nominal_cost


def _one_step(manifest: Manifest) -> Refinement:
    return replace(manifest.refinement, steps=1, keep="best")
