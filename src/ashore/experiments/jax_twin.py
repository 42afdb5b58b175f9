"""A bundle's policy in JAX, in the full precision of its weights: the functions it was trained with, fed what travels.

Whoever asks whether the runtime computes what was trained compares with this one: in float32, or, with the same weights
as float64 and under `jax.enable_x64`, in float64.
"""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ashore.calibration import refinement
from ashore.calibration.careful_policy import CarefulPolicy, Caution
from ashore.calibration.refinement import RefinementConfig
from ashore.learning import normalisation
from ashore.learning.normalisation import Normalisers, RunningStatistics
from ashore.networks import actor, architecture, dynamics_head, encoder
from ashore.networks.architecture import Architecture, Sizes, from_named_weights
from ashore.types import Array
from ashore_runtime import golden
from ashore_runtime.schema import Manifest

_NORMALISER = "normaliser/"
_DRAWS = 4 * golden.LEAST
"""Golden inputs that are drawn; a quarter of them is kept."""
_NUDGES = 4
_AT_ONCE = 64


class Twin(NamedTuple):
    """A policy and the numbers it acts with: `policy.act(weights, observation, latent, eta)`."""

    policy: CarefulPolicy
    weights: Any


def twin(manifest: Manifest, tensors: Mapping[str, np.ndarray]) -> Twin:
    """The JAX side of a manifest and its named weights (sample counts may be among them and are not read).

    It computes in the precision of the weights, as the runtime does, whatever the networks were trained with.
    """
    compute = str(tensors["actor/output/bias"].dtype)
    params = from_named_weights({name: leaf for name, leaf in tensors.items() if not name.startswith(_NORMALISER)})

    def statistics(kind: str) -> RunningStatistics:
        mean, variance = (jnp.asarray(tensors[f"{_NORMALISER}{kind}/{part}"]) for part in ("mean", "variance"))
        return RunningStatistics(mean, variance, jnp.zeros((), jnp.int32))

    # The schema knows exactly these names, and has checked them.
    caution: Caution = manifest.caution  # pyright: ignore[reportAssignmentType]
    chosen = RefinementConfig(**asdict(manifest.refinement))
    policy = CarefulPolicy(networks(manifest, compute), manifest.budget.discounted, caution, chosen)
    return Twin(policy, (params, Normalisers(*(statistics(kind) for kind in Normalisers._fields))))


def networks(manifest: Manifest, compute: str) -> Architecture:
    """The shapes that a manifest describes, with matrix products of this kind."""
    shapes = manifest.network
    sizes = Sizes(
        critic_width=shapes.critic_width,
        fractions=shapes.fractions,
        hidden=shapes.hidden,
        latent=shapes.latent,
        critic_blocks=shapes.critic_blocks,
        critic_heads=shapes.critic_heads,
        cosines=shapes.cosines,
        activation=shapes.activation,
        dynamics_scale=shapes.dynamics_scale,
        compute=compute,
    )
    observation, action = len(manifest.observation), len(manifest.action)
    return Architecture(
        observation,
        action,
        manifest.dynamics_features,
        sizes,
        shapes.risk_conditioned,
        manifest.closeness,
        manifest.contrasts,
        manifest.approaches,
    )


def golden_outputs(found: Twin, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the trained networks make of `golden.inputs`, under the names that `golden.replay` expects.

    Critics, encoder and dynamics head may be missing, as in a bundle; they then say nothing.
    """
    rows = {name: jnp.asarray(values) for name, values in given.items()}
    return jax.device_get(_outputs(found.policy, found.weights, rows))


def golden_vectors(manifest: Manifest, tensors: Mapping[str, np.ndarray], seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs and trained outputs for a bundle, from draws whose answer is certain in float32.

    Far outside of what was seen in training, large activations cancel, and next to the kink of a ReLU a gradient jumps:
    there the last bit of a weight decides, two right machines differ, and a difference says nothing. Every draw is
    answered again by weights with their last bits changed; those whose answer hardly moves are kept.
    """
    given = golden.inputs(manifest, tensors, _DRAWS, seed)
    generator = np.random.default_rng(seed)
    answers = golden_outputs(twin(manifest, tensors), given)
    moved = np.zeros(_DRAWS)
    for _ in range(_NUDGES):
        others = golden_outputs(twin(manifest, nudged(tensors, generator)), given)
        moved = np.max([moved, *(_moved(name, answers[name], others[name]) for name in answers)], axis=0)
    # In the order they were drawn, so that typical and extreme inputs stay mixed as `inputs` mixes them.
    kept = np.sort(np.argsort(moved, kind="stable")[: golden.LEAST])
    return {name: values[kept] for name, values in (given | answers).items()}


def nudged(tensors: Mapping[str, np.ndarray], generator: np.random.Generator) -> dict[str, np.ndarray]:
    """The same networks with the last bit of every weight changed: what rounding might have made of them."""

    def nudge(leaf: np.ndarray) -> np.ndarray:
        last_bit = np.finfo(leaf.dtype).eps
        return leaf * (1.0 + last_bit * generator.choice([-1.0, 1.0], leaf.shape)).astype(leaf.dtype)

    # Not the normalisers: a field that never changed is divided by 1e-6, where a last bit is the whole range. By name:
    # tensors that were read from a file come in another order each time.
    return {name: leaf if name.startswith(_NORMALISER) else nudge(leaf) for name, leaf in sorted(tensors.items())}


def _moved(name: str, answer: np.ndarray, other: np.ndarray) -> np.ndarray:
    """How far each row moved, as a share of what `golden.replay` tolerates."""
    gradient = name.endswith("gradient")
    size = np.abs(answer).max(axis=-1, keepdims=True) if gradient else np.abs(answer)
    error = np.abs(answer - other) / np.maximum(1.0, size)
    return error.reshape(len(error), -1).max(axis=1) / (golden.GRADIENT_TOLERANCE if gradient else golden.TOLERANCE)


@partial(jax.jit, static_argnames="policy")
def _outputs(policy: CarefulPolicy, weights: Any, rows: dict[str, Array]) -> dict[str, Array]:
    nets = policy.nets
    params, normalisers = weights
    index = jnp.asarray(nets.features, jnp.int32)

    def one(row: dict[str, Array]) -> dict[str, Array]:
        observation, action, latent, eta = row["observation"], row["action"], row["latent"], row["eta"]
        seen = normalisation.see(nets, normalisers.observation, observation)
        level = jnp.zeros_like(eta) if policy.caution == "refinement" else eta
        condition = architecture.condition(nets, latent, level)
        found = {"action": actor.apply(nets.actor, params["actor"], seen, condition)}
        if "critics" in params:
            values = refinement.critic_values(nets, params["critics"], seen, condition, eta)
            for name, value in (("reward", values.reward), ("cost", values.cost)):
                found[f"{name}_value"], found[f"{name}_gradient"] = jax.value_and_grad(value)(action)
        if "encoder" in params:
            before, after = observation[index], row["next_observation"][index]
            vector = normalisation.encoder_input(
                normalisers, nets.features, before, action, after - before, row["reward"], row["cost"]
            )
            factor = encoder.factor(nets.encoder, params["encoder"], vector)
            found |= {"factor_mean": factor.mean, "factor_precision": factor.precision}
        if "dynamics" in params:
            found["prediction"] = dynamics_head.apply(nets.dynamics, params["dynamics"], seen, action, latent)
        return found

    return {golden.OUTPUT + name: values for name, values in jax.lax.map(one, rows, batch_size=_AT_ONCE).items()}
