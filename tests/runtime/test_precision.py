"""In float64 rounding decides nothing: the runtime does what was trained, refinement and all, in every state."""

import dataclasses
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.compilation import jit

from ashore.experiments import jax_twin
from ashore_runtime import Limits, Refused, Runtime, bundle, golden
from ashore_runtime.careful_policy import NO_DEADLINE, CarefulPolicy
from ashore_runtime.clock import Clock
from ashore_runtime.policy import PolicyNetworks
from ashore_runtime.results import recorded_decisions
from ashore_runtime.schema import Manifest, Refinement
from runtime import small_bundle

SHIPPED = Path(__file__).parents[2] / "bundles"
TIMELESS = Limits(deadline=float("inf"))
ROUNDING = 1e-9
"""Far more than float64 rounds off here, and far less than float32 does."""


class Answers(NamedTuple):
    """One row per state."""

    action: np.ndarray
    steps: np.ndarray


def wide(tensors):
    return {name: tensor.astype(np.float64) for name, tensor in tensors.items()}


def of_runtime(found: bundle.Bundle, given) -> Answers:
    policy = CarefulPolicy(found, Limits(), Clock())
    rows = zip(given["observation"], given["latent"], given["eta"], strict=True)
    chosen = [policy.act(seen, latent, float(eta), None, NO_DEADLINE).refined for seen, latent, eta in rows]
    return Answers(np.array([row.action for row in chosen]), np.array([row.steps for row in chosen]))


def of_training(found: bundle.Bundle, given) -> Answers:
    with jax.enable_x64(True):
        twin = jax_twin.twin(found.manifest, wide(found.weights))
        rows = tuple(jnp.asarray(given[name], jnp.float64) for name in ("observation", "latent", "eta"))
        decided = jit(jax.vmap(twin.policy.act, (None, 0, 0, 0)))(twin.weights, *rows)
        return Answers(*jax.device_get((decided.action, decided.steps)))


def assert_alike(found: bundle.Bundle, given) -> None:
    ours, theirs = of_runtime(found, given), of_training(found, given)
    assert ours.action.dtype == theirs.action.dtype == np.float64
    np.testing.assert_allclose(ours.action, theirs.action, rtol=0.0, atol=ROUNDING)
    np.testing.assert_array_equal(ours.steps, theirs.steps)
    assert np.mean(ours.steps > 0) > 0.5


def enlarged(activation: str, **changes) -> Manifest:
    """Every input that networks can have; numbers that float32 does not have are among those of the manifest."""
    network = dataclasses.replace(small_bundle.NETWORK, fractions=3, risk_conditioned=True, activation=activation)
    seen = {"closeness": (1,), "contrasts": ((0, 3, 0.3),), "approaches": ((0, 1, 2, 0.7, 0.1),)}
    return small_bundle.manifest(network, discounted=0.3, **seen, **changes)


def test_refined_actions_are_those_of_training_in_every_state(tmp_path):
    facts = enlarged("relu", caution="both", refinement=Refinement(weight="sqrt"))
    found = bundle.load(small_bundle.write(tmp_path / "b", facts), precision="float64")
    assert_alike(found, found.golden)


def test_the_shipped_policy_refines_as_trained_and_knows_its_float32_vectors():
    shipped = bundle.load(SHIPPED / "point_goal2", precision="float64")
    assert {tensor.dtype for tensor in shipped.weights.values()} == {np.dtype(np.float32)}
    found = bundle.with_caution(shipped, "refinement", Refinement(threshold_scale=0.01, variant="unit", steps=2))
    assert_alike(found, {name: rows[::8] for name, rows in found.golden.items()})


def test_every_network_says_what_it_says_in_training(compiled_quickly):
    facts = enlarged("silu", caution="both")
    weights = small_bundle.weights(facts, seed=4)
    given = golden.inputs(facts, weights)
    ours = golden.outputs(facts, PolicyNetworks(facts, weights, "float64"), given)
    with jax.enable_x64(True):
        theirs = jax_twin.golden_outputs(jax_twin.twin(facts, wide(weights)), wide(given))
    assert set(ours) == set(theirs)
    for name, expected in theirs.items():
        # Ours come rounded to float32, and that is all.
        assert expected.dtype == np.float64
        np.testing.assert_allclose(ours[name], expected, rtol=1e-7, atol=ROUNDING, err_msg=name)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_everything_is_computed_in_the_precision_asked_for(bundle_folder, precision):
    found = bundle.load(bundle_folder)
    asked = {} if precision == "float32" else {"precision": precision}
    networks = PolicyNetworks(found.manifest, found.weights, **asked)
    observation, action, latent = (found.golden[name][0] for name in ("observation", "action", "latent"))
    normal = networks.normalisers.see(observation)
    target = networks.normalisers.dynamics_target(observation, found.golden["next_observation"][0], 0.1, 0.2)
    context = networks.context(latent, 0.5)
    assert networks.critics is not None
    networks.critics.prepare(normal, context, 0.5)
    computed = (
        normal,
        target,
        networks.action(normal, context),
        *networks.factor(networks.normalisers.encoder_input(observation, action, target)),
        networks.prediction(normal, action, latent),
        networks.critics.cost_critic.quantiles(action),
        networks.critics.cost_gradient(action),
        networks.critics.reward_gradient(action),
    )
    assert {part.dtype for part in computed} == {np.dtype(precision)}


@pytest.mark.parametrize("precision", ["float16", "double", None])
def test_an_unknown_precision_is_refused(bundle_folder, precision):
    with pytest.raises(Refused, match=rf"^Networks compute in float32 or float64, not in {precision!r}\.$"):
        Runtime.load(bundle_folder, precision=precision, freeze=False)


def test_what_is_sent_written_and_learnt_from_is_float32(tight_folder, make_runtime, tmp_path):
    runtime = make_runtime(tight_folder, journal=tmp_path / "run.jnl", precision="float64", eta=0.9, limits=TIMELESS)
    networks, generator = runtime.bundle.networks, np.random.default_rng(0)
    sent, sums = [], np.zeros((2, 3))
    for _ in range(20):
        observation, following = generator.uniform(-1, 1, (2, 4)).astype(np.float32)
        result = runtime.act(observation)
        assert result.action.dtype == result.z_mean.dtype == np.float32 and result.k_used > 0
        runtime.observe(following, 0.1, 0.2)
        target = networks.normalisers.dynamics_target(observation, following, 0.1, 0.2)
        mean, precision = networks.factor(networks.normalisers.encoder_input(observation, result.action, target))
        sums += precision * mean, precision
        sent.append(result.action)
    np.testing.assert_array_equal(sums, [runtime.posterior.weighted_mean_sum, runtime.posterior.precision_sum])
    runtime.close()
    written = list(recorded_decisions(tmp_path / "run.jnl", 4))
    np.testing.assert_array_equal([row.action for row in written], sent)
    again = Runtime.resume(tmp_path / "run.jnl", rule="trust", freeze=False, precision="float64", eta=0.9)
    assert again.snapshot() == runtime.snapshot()
    again.close()


def test_both_precisions_act_alike_but_for_rounding(tight_folder, make_runtime):
    both = [make_runtime(tight_folder, precision=name, eta=0.9, limits=TIMELESS) for name in ("float32", "float64")]
    observations = np.random.default_rng(1).uniform(-1, 1, (50, 4))
    narrow, broad = (np.array([runtime.act(seen).action for seen in observations]) for runtime in both)
    apart = np.abs(narrow - broad).max(axis=1)
    # Not the same numbers, or nothing would have been computed otherwise; a kink may lie between a few of them.
    assert np.any(apart > 0.0) and np.median(apart) < 1e-6 and apart.max() < 0.1
