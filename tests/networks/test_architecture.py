"""All networks together: their sizes, their names on disk, the dynamics head."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load, save

from ashore.networks import architecture, dynamics_head
from ashore.networks.architecture import SIZES, Architecture, from_named_weights, named_weights

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


def test_dynamics_head_has_an_output_per_feature_and_for_reward_and_cost(params):
    out = dynamics_head.apply(TINY.dynamics, params["dynamics"], jnp.zeros(3), jnp.zeros(2), jnp.zeros(2))
    assert out.shape == (4,)
    with pytest.raises(ValueError, match="'unit' or 'learnt'"):
        dataclasses.replace(TINY.dynamics, scale="free")
