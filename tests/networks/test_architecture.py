"""All networks together: their sizes, their names on disk, the dynamics head."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load, save

from ashore.networks import actor, architecture, critic, dynamics_head, encoder
from ashore.networks.architecture import SIZES, Architecture, from_named_weights, named_weights
from ashore.networks.critic import COST

TINY = Architecture(3, 2, (0, 2), dataclasses.replace(SIZES["small"], critic_width=8, hidden=(8, 8), latent=2))


@pytest.fixture(scope="session")
def params():
    # Most of the time is compilation, which needs no optimisation here.
    quickly = {"xla_backend_optimization_level": 0}
    return jax.jit(architecture.init, static_argnums=1, compiler_options=quickly)(jax.random.key(0), TINY)


def test_declared_sizes():
    sizes = {name: (s.critic_width, s.fractions, s.hidden, s.latent, s.context) for name, s in SIZES.items()}
    assert sizes == {
        "paper": (512, 32, (256, 256, 256), 5, 128),
        "standard": (256, 16, (256, 256, 256), 5, 128),
        "small": (64, 8, (64, 64), 5, 128),
    }


def test_names_are_readable_and_stable(params):
    names = list(named_weights(params))
    assert names == sorted(names)
    actor_names = [f"actor/{layer}/{part}" for layer in ("dense0", "dense1", "output") for part in ("bias", "kernel")]
    assert [name for name in names if name.startswith("actor/")] == actor_names
    assert "critic_cost/heads/block0/dense0/kernel" in names
    assert "critic_reward/features/norm1/scale" in names
    assert "critic_reward/embedding/kernel" in names
    assert "dynamics/log_scale" in names
    assert {name.split("/")[0] for name in names} == {"actor", "critic_reward", "critic_cost", "encoder", "dynamics"}


def test_weights_survive_safetensors(params):
    written = save({name: np.asarray(leaf) for name, leaf in named_weights(params).items()})
    restored = from_named_weights(load(written))
    assert jax.tree.structure(restored) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, restored, params)


def test_half_a_pair_of_critics_is_refused(params):
    weights = named_weights(params)
    with pytest.raises(ValueError, match="come as a pair"):
        from_named_weights({name: leaf for name, leaf in weights.items() if "critic_cost" not in name})


def test_float64_is_refused_where_jax_would_make_float32_of_it():
    with pytest.raises(ValueError, match=r"compute float64 is for comparing .* under jax.enable_x64"):
        dataclasses.replace(SIZES["small"], compute="float64")
    with jax.enable_x64(True):
        assert dataclasses.replace(SIZES["small"], compute="float64").compute == "float64"


def test_dynamics_likelihood_by_hand():
    config = dataclasses.replace(TINY.dynamics, scale="learnt")
    params = {"log_scale": jnp.log(jnp.array([1.0, 2.0, 0.5, 1.0]))}
    target, prediction = jnp.array([1.0, 2.0, 1.0, 0.0]), jnp.zeros(4)
    # Errors 1, 2, 1, 0. Unit scale: (1 + 4 + 1 + 0) / 2 / 4 = 0.75.
    unit = dynamics_head.negative_log_likelihood(TINY.dynamics, params, prediction, target)
    assert unit == pytest.approx(0.75)
    # Scales 1, 2, 1/2, 1: (0.5 * 1) + (0.5 * 1 + ln 2) + (0.5 * 4 - ln 2) + 0 = 3, over four targets 0.75.
    learnt = dynamics_head.negative_log_likelihood(config, params, prediction, target)
    assert learnt == pytest.approx(0.75)


def test_learnt_scale_is_best_at_the_error_itself():
    # d/ds [e^2 / (2 s^2) + ln s] = 0 at s = |e|, here 0.2, 0.5, 1 and 2; the gradient there vanishes.
    config = dataclasses.replace(TINY.dynamics, scale="learnt")
    errors = jnp.array([0.2, 0.5, 1.0, 2.0])

    def loss(log_scale):
        params = {"log_scale": log_scale}
        return dynamics_head.negative_log_likelihood(config, params, jnp.zeros(4), errors)

    np.testing.assert_allclose(jax.grad(loss)(jnp.log(errors)), np.zeros(4), atol=1e-6)


def test_a_predicted_scale_is_softly_bounded_and_can_grow_again():
    config = dataclasses.replace(TINY.dynamics, scale="predicted")
    assert config.outputs == 2 * config.targets == 8
    # ln s = -3 + softplus(x + 3): ln 2 above the bound at x = -3, nearly at it far below, x itself far above.
    said = jnp.array([0.0, 0.0, 0.0, 0.0, -3.0, -20.0, 5.0, 0.0])
    mean, log_scale = dynamics_head.expected(config, {"log_scale": jnp.zeros(4)}, said)
    np.testing.assert_array_equal(mean, np.zeros(4))
    np.testing.assert_allclose(log_scale, [-3.0 + np.log(2.0), -3.0, 5.0, np.log1p(np.exp(-3.0))], atol=4e-4)

    def loss(free):
        prediction = jnp.concatenate([jnp.zeros(4), free])
        return dynamics_head.negative_log_likelihood(config, {"log_scale": jnp.zeros(4)}, prediction, jnp.ones(4))

    # Wrong by twenty of its scales, the head must be able to say so, even from below the bound.
    assert (jax.grad(loss)(jnp.full(4, -5.0)) < -1.0).all()


def test_dynamics_head_has_an_output_per_feature_and_for_reward_and_cost(params):
    out = dynamics_head.apply(TINY.dynamics, params["dynamics"], jnp.zeros(3), jnp.zeros(2), jnp.zeros(2))
    assert out.shape == (4,)
    with pytest.raises(ValueError, match="one of unit, learnt, predicted"):
        dataclasses.replace(TINY.dynamics, scale="free")


@pytest.mark.parametrize("hidden", [(8, 8), ()])
def test_an_actor_that_is_deaf_to_the_latent_still_takes_its_level(hidden):
    nets = dataclasses.replace(TINY, sizes=dataclasses.replace(TINY.sizes, hidden=hidden), risk_conditioned=True)
    weights = architecture.init(jax.random.key(1), nets)["actor"]

    def act(weights, latent, level):
        condition = architecture.condition(nets, jnp.full(nets.sizes.latent, latent), level)
        return actor.apply(nets.actor, weights, jnp.array([0.3, -1.0, 0.5]), condition)

    deaf = architecture.deaf_to_latent(nets, weights)
    assert (act(weights, 2.0, 0.5) != act(weights, -1.0, 0.5)).all()
    np.testing.assert_array_equal(act(deaf, 2.0, 0.5), act(deaf, -1.0, 0.5))
    np.testing.assert_array_equal(act(deaf, 2.0, 0.5), act(weights, 0.0, 0.5))
    assert (act(deaf, 0.0, 0.5) != act(deaf, 0.0, 0.9)).all()


@pytest.mark.parametrize("hidden", [(8, 8), ()])
def test_a_scale_of_actions_can_be_put_into_the_weights(hidden):
    plain = dataclasses.replace(TINY, sizes=dataclasses.replace(TINY.sizes, hidden=hidden))
    scaled = dataclasses.replace(plain, sizes=dataclasses.replace(plain.sizes, action_scale=5.0))
    params = architecture.init(jax.random.key(1), plain)
    named = {name: np.asarray(leaf) for name, leaf in named_weights(params).items()}
    inside = from_named_weights(architecture.with_scale_inside(scaled, named))
    observation, action, latent = jnp.array([0.3, -1.0, 0.5]), jnp.array([0.1, -0.2]), jnp.array([0.4, 0.9])

    def answers(nets, weights):
        fractions = jnp.array([0.2, 0.8])
        one = critic.one_of(weights["critics"], COST)
        vector = jnp.concatenate([observation[:2], action, jnp.array([0.1, 0.2, -0.5, 1.0])])
        return (
            critic.cost_quantiles(nets.critic, one, observation, action, latent, fractions),
            encoder.factor(nets.encoder, weights["encoder"], vector),
            dynamics_head.apply(nets.dynamics, weights["dynamics"], observation, action, latent),
        )

    for one, other in zip(*map(jax.tree.leaves, (answers(scaled, params), answers(plain, inside))), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    for one, other in zip(*map(jax.tree.leaves, (answers(plain, params), answers(plain, inside))), strict=True):
        assert not np.allclose(one, other, rtol=1e-3), "the scale has to matter"
    with pytest.raises(ValueError, match="action_scale must be positive"):
        dataclasses.replace(SIZES["small"], action_scale=0.0)
