"""Caution from refinement, from the actor, or from both: who is told the risk level, and who judges."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.calibration import refinement
from ashore.calibration.careful_policy import CarefulPolicy
from ashore.learning import normalisation
from ashore.learning.collect import update_posterior
from ashore.networks import actor, architecture, encoder
from ashore.networks.architecture import Architecture, Sizes
from ashore.types import Transition
from tests.compilation import jit

SIZES = Sizes(critic_width=16, fractions=4, hidden=(8,), latent=3, critic_blocks=1)
NEUTRAL = Architecture(4, 2, (0, 2), SIZES)
CONDITIONED = Architecture(4, 2, (0, 2), SIZES, risk_conditioned=True)
OBSERVATION = jnp.array([0.3, -1.0, 2.0, 0.5])
LATENT = jnp.array([0.5, -0.5, 1.0])
ETA = jnp.float32(0.8)


@functools.cache
def weights(nets):
    params = jit(architecture.init, static_argnums=1)(jax.random.key(0), nets)
    # As initialised all actions are nearly zero; make the risk level matter.
    params["actor"]["output"]["kernel"] = params["actor"]["output"]["kernel"] * 10.0
    return params, normalisation.init(4, 2)


@functools.cache
def compiled(policy):
    return jit(policy.act)


def act(policy, eta=ETA):
    return compiled(policy)(weights(policy.nets), OBSERVATION, LATENT, jnp.float32(eta))


def refined(policy, level):
    """What refining the nominal action at a level comes to, the critics being told that level as well."""
    params, _ = weights(policy.nets)
    condition, first = architecture.condition(policy.nets, LATENT, level), nominal(policy.nets, level)

    def one(eta):
        values = refinement.critic_values(policy.nets, params["critics"], OBSERVATION, condition, eta)
        return refinement.refine(policy.refinement, values, first, eta, policy.budget)

    return jit(one)(ETA)


def nominal(nets, level):
    @jit
    def one(params, normalisers):
        seen = normalisation.normalise(normalisers.observation, OBSERVATION)
        return actor.apply(nets.actor, params["actor"], seen, architecture.condition(nets, LATENT, level))

    return one(*weights(nets))


@pytest.mark.parametrize("nets", [NEUTRAL, CONDITIONED])
def test_refinement_starts_from_the_risk_neutral_action(nets):
    policy = CarefulPolicy(nets, budget=0.1)
    np.testing.assert_allclose(act(policy, 0.0).action, nominal(nets, 0.0), atol=1e-6)
    careful = act(policy)
    np.testing.assert_allclose(careful.action, refined(policy, 0.0).action, atol=1e-6)
    assert bool(careful.triggered) and int(careful.steps) > 0


def test_a_conditioned_actor_is_careful_by_itself():
    policy = CarefulPolicy(CONDITIONED, budget=0.1, caution="actor")
    decision = act(policy)
    np.testing.assert_allclose(decision.action, nominal(CONDITIONED, 0.8), atol=1e-6)
    assert np.max(np.abs(decision.action - nominal(CONDITIONED, 0.0))) > 1e-3
    assert not bool(decision.triggered) and np.isnan(decision.cost_before)


def test_both_refine_the_careful_action_by_critics_that_know_the_level():
    policy = CarefulPolicy(CONDITIONED, budget=0.1, caution="both")
    np.testing.assert_allclose(act(policy).action, refined(policy, 0.8).action, atol=1e-6)


def test_a_higher_threshold_leaves_more_alone():
    policy = CarefulPolicy(NEUTRAL, budget=0.1)
    easy = replace(policy, refinement=replace(policy.refinement, threshold_scale=1e3))
    assert not bool(act(easy).triggered)


def test_evidence_adds_up_to_the_posterior_of_learning():
    policy = CarefulPolicy(NEUTRAL, budget=0.1)
    params, normalisers = weights(NEUTRAL)
    keys = jax.random.split(jax.random.key(3), 3)
    false = jnp.zeros(5, bool)
    steps = Transition(
        jax.random.normal(keys[0], (5, 4)),
        jax.random.normal(keys[1], (5, 2)),
        jnp.ones(5),
        jnp.zeros(5),
        jax.random.normal(keys[2], (5, 4)),
        false,
        false,
        false.at[3].set(True),
    )
    said = jit(jax.vmap(policy.evidence, in_axes=(None, 0)))((params, normalisers), steps)
    prior = jax.vmap(lambda _: encoder.prior(3))(jnp.arange(5))
    learnt = jit(update_posterior, static_argnums=0)(NEUTRAL, params, normalisers, prior, steps)
    np.testing.assert_allclose(said.precision_sum, learnt.precision_sum, rtol=1e-5)
    np.testing.assert_allclose(said.weighted_mean_sum, learnt.weighted_mean_sum, atol=1e-6)
    np.testing.assert_array_equal(said.count, [1, 1, 1, 0, 1])


@pytest.mark.parametrize("caution", ["actor", "both"])
def test_an_actor_that_takes_no_level_cannot_be_asked_for_caution(caution):
    with pytest.raises(ValueError, match="takes a risk level"):
        CarefulPolicy(NEUTRAL, 0.1, caution)
    with pytest.raises(ValueError, match="not from 'prayer'"):
        CarefulPolicy(NEUTRAL, 0.1, "prayer")  # pyright: ignore[reportArgumentType]
