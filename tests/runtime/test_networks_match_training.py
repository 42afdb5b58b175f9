"""The NumPy networks against the ones that were trained: values and gradients, small and standard sizes."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ashore.learning import normalisation
from ashore.learning.normalisation import Normalisers, RunningStatistics
from ashore.networks import actor, architecture, critic, dynamics_head, encoder
from ashore.networks.architecture import SIZES, Architecture, Sizes, from_named_weights
from ashore.networks.critic import COST, REWARD
from ashore.quantiles import midpoints
from ashore_runtime import critics, golden, schema
from ashore_runtime.policy import PolicyNetworks
from ashore_runtime.refinement import Box, refine
from ashore_runtime.schema import Field, Manifest, Network, Refinement
from runtime import small_bundle
from volumes import examples, volume

jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def network_of(sizes: Sizes, risk_conditioned: bool) -> Network:
    return Network(
        latent=sizes.latent,
        hidden=sizes.hidden,
        critic_width=sizes.critic_width,
        critic_blocks=sizes.critic_blocks,
        critic_heads=sizes.critic_heads,
        feature_layers=2,
        cosines=sizes.cosines,
        fractions=sizes.fractions,
        activation=sizes.activation,
        dynamics_scale=sizes.dynamics_scale,
        risk_conditioned=risk_conditioned,
    )


Outputs = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


def trained_outputs(nets: Architecture, facts: Manifest, weights: dict) -> Outputs:
    """Every golden output for rows of inputs, from the functions that are used in training; compiled once."""
    params = from_named_weights({name: w for name, w in weights.items() if not name.startswith("normaliser/")})
    normalisers = Normalisers(
        *(
            RunningStatistics(
                jnp.asarray(weights[f"normaliser/{kind}/mean"]),
                jnp.asarray(weights[f"normaliser/{kind}/variance"]),
                jnp.zeros((), jnp.int32),
            )
            for kind in Normalisers._fields
        )
    )
    index = jnp.asarray(nets.features)

    def one(row: dict) -> dict:
        observation, action, latent, eta = row["observation"], row["action"], row["latent"], row["eta"]
        normal = normalisation.see(nets, normalisers.observation, observation)
        fed = eta if facts.caution != "refinement" else jnp.zeros((), jnp.float32)
        condition = architecture.condition(nets, latent, fed)
        change = row["next_observation"][index] - observation[index]
        vector = normalisation.encoder_input(
            normalisers, nets.features, observation[index], action, change, row["reward"], row["cost"]
        )
        factor = encoder.factor(nets.encoder, params["encoder"], vector)

        def reward_value(action):
            taus = midpoints(0.0, nets.sizes.fractions)
            pair = critic.one_of(params["critics"], REWARD)
            return jnp.mean(critic.reward_quantiles(nets.critic, pair, normal, action, condition, taus))

        def cost_value(action):
            taus = midpoints(eta, nets.sizes.fractions)
            pair = critic.one_of(params["critics"], COST)
            quantiles = critic.cost_quantiles(nets.critic, pair, normal, action, condition, taus)
            return jnp.max(jnp.mean(quantiles, axis=1))

        reward, reward_gradient = jax.value_and_grad(reward_value)(action)
        cost, cost_gradient = jax.value_and_grad(cost_value)(action)
        return {
            "output/action": actor.apply(nets.actor, params["actor"], normal, condition),
            "output/factor_mean": factor.mean,
            "output/factor_precision": factor.precision,
            "output/prediction": dynamics_head.apply(nets.dynamics, params["dynamics"], normal, action, latent),
            "output/reward_value": reward,
            "output/reward_gradient": reward_gradient,
            "output/cost_value": cost,
            "output/cost_gradient": cost_gradient,
        }

    compiled = jit(lambda rows: jax.lax.map(one, rows))
    return lambda given: jax.device_get(compiled({name: jnp.asarray(array) for name, array in given.items()}))


TINY = Sizes(critic_width=16, fractions=4, hidden=(16, 16), latent=3, cosines=16)
CASES = {
    "tiny": (TINY, False, "refinement"),
    "smooth": (
        Sizes(critic_width=16, fractions=4, hidden=(16,), latent=2, cosines=8, activation="silu"),
        False,
        "refinement",
    ),
    "knows eta": (TINY, True, "both"),
    "knows eta, unused": (TINY, True, "refinement"),
    "sharpened": (TINY, False, "refinement"),
    "says how sure": (replace(TINY, dynamics_scale="predicted"), False, "refinement"),
    "standard": (SIZES["standard"], False, "refinement"),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case):
    sizes, risk_conditioned, caution = CASES[case]
    observation = tuple(Field(f"s{i}", "1", -3.0, 3.0) for i in range(9))
    facts = small_bundle.manifest(
        network_of(sizes, risk_conditioned),
        observation=observation,
        caution=caution,
        dynamics_features=(0, 1, 5),
        closeness=(2, 7, 8) if case == "sharpened" else (),
        contrasts=((0, 4, 5.0),) if case == "sharpened" else (),
        approaches=((4, 0, 3, 2.0, 0.1),) if case == "sharpened" else (),
    )
    nets = Architecture(9, 2, (0, 1, 5), sizes, risk_conditioned, facts.closeness, facts.contrasts, facts.approaches)
    weights = small_bundle.weights(facts, seed=3)
    draws = [golden.inputs(facts, weights, seed=seed) for seed in range(volume(1, 16))]
    given = {name: np.concatenate([draw[name] for draw in draws]) for name in draws[0]}
    expected = trained_outputs(nets, facts, weights)(given)
    networks = PolicyNetworks(facts, weights)
    found = golden.outputs(facts, networks, given)
    assert set(found) == set(expected)
    for name in found:
        size = np.maximum(1.0, np.abs(expected[name]).max(axis=-1, keepdims=True))
        error = np.abs(found[name] - expected[name]) / size
        # A unit within rounding of its kink may fall on either side of it, and the gradient jumps there.
        rows = error.reshape(len(error), -1).max(axis=1)
        assert np.mean(rows <= 1e-5) >= (0.99 if "gradient" in name else 1.0), (name, rows.max())
    golden.replay(facts, networks, {name: rows[: golden.LEAST] for name, rows in (given | expected).items()})


@functools.cache
def small_pair(fractions: int) -> tuple[Outputs, Outputs]:
    """One set of weights, read by the runtime and by training; smooth, so that no gradient jumps."""
    sizes = Sizes(critic_width=16, fractions=fractions, hidden=(16,), latent=3, cosines=16, activation="silu")
    facts = small_bundle.manifest(network_of(sizes, True), caution="both")
    weights = small_bundle.weights(facts, seed=7)
    networks = PolicyNetworks(facts, weights)
    trained = trained_outputs(Architecture(4, 2, (0, 2), sizes, True), facts, weights)
    return lambda given: golden.outputs(facts, networks, given), trained


def row(size: int, low: float, high: float) -> st.SearchStrategy[np.ndarray]:
    return arrays(np.float32, (1, size), elements=st.floats(low, high, width=32))


def number(low: float, high: float) -> st.SearchStrategy[np.ndarray]:
    return row(1, low, high).map(lambda found: found[0])


# As far out as anything gets: the sensors' bounds, the action box, a posterior's mean, and the risk levels of a table.
situations = st.fixed_dictionaries(
    {
        "observation": row(4, -2.0, 2.0),
        "action": row(2, -1.0, 1.0),
        "next_observation": row(4, -2.0, 2.0),
        "reward": number(-5.0, 5.0),
        "cost": number(0.0, 5.0),
        "latent": row(3, -4.0, 4.0),
        "eta": number(0.0, 0.96875),
    }
)


@examples(100, 10_000)
@drawn(st.sampled_from([1, 4, 16]), situations)
def test_any_state_latent_and_level_is_read_as_in_training(fractions, situation):
    ours, theirs = (outputs(situation) for outputs in small_pair(fractions))
    assert set(ours) == set(theirs)
    for name in ours:
        # A layer norm divides by the spread of its inputs. Where that is small a gradient's rounding is 3e-5 and more.
        tolerance = golden.GRADIENT_TOLERANCE if "gradient" in name else 1e-5
        size = max(1.0, float(np.abs(theirs[name]).max()))
        np.testing.assert_allclose(ours[name], theirs[name], rtol=0.0, atol=tolerance * size, err_msg=name)


@pytest.mark.parametrize("scale", schema.DYNAMICS_SCALES)
def test_what_happened_is_as_likely_as_in_training(scale):
    facts = small_bundle.manifest(network_of(replace(TINY, dynamics_scale=scale), False))
    weights = small_bundle.weights(facts, seed=5)
    networks = PolicyNetworks(facts, weights)
    features, targets = len(facts.dynamics_features), len(facts.dynamics_features) + 2
    head = dynamics_head.DynamicsConfig(1, 1, features, scale=scale)
    generator = np.random.default_rng(0)
    for _ in range(20):
        # Scales far above and far below the least one.
        said = generator.normal(size=head.outputs, scale=3.0).astype(np.float32)
        happened = generator.normal(size=targets).astype(np.float32)
        params = {"log_scale": weights["dynamics/log_scale"]}
        mean, log_scale = map(np.asarray, dynamics_head.expected(head, params, jnp.asarray(said)))
        squares = np.square((happened - mean) / np.exp(log_scale))
        assert networks.surprise(said, happened) == pytest.approx(np.mean(squares), rel=1e-4)
        likely = -np.sum((0.5 * squares + log_scale)[:features])
        assert networks.log_likelihood(said, happened) == pytest.approx(likely, rel=1e-4)


class TrainedCritics:
    """The critics of training, asked one action at a time."""

    def __init__(self, nets: Architecture, weights: dict) -> None:
        params = from_named_weights({name: w for name, w in weights.items() if name.startswith("critic_")})["critics"]

        def reward(action, normal, latent):
            taus = midpoints(0.0, nets.sizes.fractions)
            return jnp.mean(
                critic.reward_quantiles(nets.critic, critic.one_of(params, REWARD), normal, action, latent, taus)
            )

        def cost(action, normal, latent, eta):
            taus = midpoints(eta, nets.sizes.fractions)
            values = critic.cost_quantiles(nets.critic, critic.one_of(params, COST), normal, action, latent, taus)
            return jnp.max(jnp.mean(values, axis=1))

        self._cost, self._cost_gradient, self._reward_gradient = jit(cost), jit(jax.grad(cost)), jit(jax.grad(reward))

    def prepare(self, normal, latent, eta):
        self._state = (normal, latent, jnp.float32(eta))

    def cost(self, action):
        return float(self._cost(action, *self._state))

    def cost_gradient(self, action):
        return np.asarray(self._cost_gradient(action, *self._state))

    def reward_gradient(self, action):
        return np.asarray(self._reward_gradient(action, *self._state[:2]))


@pytest.mark.parametrize(
    "chosen",
    [Refinement(), Refinement(variant="unit", weight="full"), Refinement(keep="last", weight="sqrt", steps=15)],
)
def test_refined_actions(chosen):
    # In float64: on some processors float32 puts a unit on the other side of its kink, and the action 1.5e-5 aside.
    facts = small_bundle.manifest(network_of(TINY, False))
    weights = small_bundle.weights(facts, seed=5)
    given = {name: rows.astype(np.float64) for name, rows in golden.inputs(facts, weights).items()}
    weights = {name: tensor.astype(np.float64) for name, tensor in weights.items()}
    with jax.enable_x64(True):
        nets = Architecture(4, 2, (0, 2), replace(TINY, compute="float64"))
        _refine_alike(PolicyNetworks(facts, weights, "float64"), TrainedCritics(nets, weights), given, chosen)


def _refine_alike(networks: PolicyNetworks, trained: TrainedCritics, given: Mapping, chosen: Refinement) -> None:
    assert networks.critics is not None
    box = Box(np.full(2, -1.0, np.float32), np.full(2, 1.0, np.float32))
    moved = 0
    for i in range(100):
        normal = networks.normalisers.observation.normalise(given["observation"][i])
        latent, eta = given["latent"][i], float(given["eta"][i])
        nominal = networks.action(normal, latent)
        networks.critics.prepare(normal, latent, eta)
        trained.prepare(normal, latent, eta)
        ours, theirs = (refine(asked, nominal, eta, 0.5, box, chosen) for asked in (networks.critics, trained))
        np.testing.assert_allclose(ours.action, theirs.action, rtol=0.0, atol=1e-9)
        assert ours.steps == theirs.steps
        moved += ours.action is not nominal
    assert moved > 50


@pytest.mark.parametrize("count", [3, 4, 32])
def test_midpoints_are_the_trained_ones_to_the_last_bit(count):
    # Compiled with optimisation, as products and sums in one go: a last bit that differs is 1e-5 in the cosines.
    levels = np.random.default_rng(0).uniform(0.0, 0.99, 500).astype(np.float32)
    levels[:4] = 0.0, 0.5, 0.9, 0.95
    trained, angles = jax.jit(jax.vmap(lambda level: (midpoints(level, count), jnp.pi * midpoints(level, count))))(
        levels
    )
    ours = np.array([critics.midpoints(float(level), count) for level in levels])
    np.testing.assert_array_equal(ours, trained)
    # And what is multiplied next is not folded into them.
    np.testing.assert_array_equal(np.float32(np.pi) * ours, angles)
