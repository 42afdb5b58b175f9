"""An update without a latent: who moves, what travels along, and how the augmented Lagrangian presses."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.learning.small_learner import CONFIG, LAMBDA, NETS, jit, moved, prepared

from ashore.learning import augmented_lagrangian, lagrangian, plain_updates
from ashore.learning.augmented_lagrangian import AugmentedConfig, AugmentedState
from ashore.networks import encoder

AUGMENTED = AugmentedConfig()
LIMIT = 0.5


@functools.cache
def start():
    return jit(plain_updates.init, static_argnums=(0, 1))(CONFIG, lagrangian.PIDConfig(), jax.random.key(1))


@functools.cache
def updated():
    augmented = start()._replace(multiplier=augmented_lagrangian.init(AUGMENTED))

    @jit
    def both(plain, augmented):
        return (
            plain_updates.update_step(CONFIG, plain, prepared(plain), LAMBDA),
            plain_updates.augmented_update_step(AUGMENTED, LIMIT, CONFIG, augmented, prepared(augmented), LAMBDA),
        )

    return both(start(), augmented)


def test_critics_and_actor_learn_and_the_encoder_is_left_alone():
    for after, metrics in updated():
        for name, weights in start().params.items():
            assert moved(weights, after.params[name]) == (name in ("actor", "critics")), name
        assert moved(start().targets, after.targets) and after.updates == 1
        assert all(value.shape == () and bool(jnp.isfinite(value)) for value in metrics.values())
        assert metrics["kl"] == 0.0


def test_encoder_that_travels_along_has_no_opinion():
    rows = 5.0 * jax.random.normal(jax.random.key(0), (100, NETS.encoder.inputs))
    posterior = encoder.encode(NETS.encoder, start().params["encoder"], rows, jnp.ones(100, bool))
    np.testing.assert_array_equal(encoder.mean(posterior), np.zeros(3))
    np.testing.assert_array_equal(encoder.variance(posterior), np.ones(3))


def test_augmented_multiplier_follows_the_predicted_cost():
    _, (after, metrics) = updated()
    # From lambda 5 and c 2: lambda <- 5 + 2 (Q_c - d), and c falls to its cap of 1.
    assert isinstance(after.multiplier, AugmentedState)
    predicted = (float(after.multiplier.multiplier) - 5.0) / 2.0 + LIMIT
    # The cost critic's softplus starts near ln 2.
    assert predicted == pytest.approx(float(metrics["q_cost"]), abs=0.3)
    assert after.multiplier.curvature == 1.0 == metrics["curvature"]


def test_augmented_lagrangian_by_hand():
    state = AugmentedState(jnp.float32(3.0), jnp.float32(2.0))
    # g = 1: 3 + 1 = 4, slope 5. g = -1: -3 + 1 = -2, slope 1. g = -2: slope 3 - 4 < 0, so -9/4 and flat.
    for excess, charge, slope, moved_to in ((1.0, 4.0, 5.0, 5.0), (-1.0, -2.0, 1.0, 1.0), (-2.0, -2.25, 0.0, 0.0)):
        value, gradient = jax.value_and_grad(lambda g: augmented_lagrangian.charge(state, g))(jnp.float32(excess))
        assert (float(value), float(gradient)) == (pytest.approx(charge), pytest.approx(slope))
        assert augmented_lagrangian.update(AUGMENTED, state, jnp.float32(excess)).multiplier == moved_to
    far = augmented_lagrangian.update(AUGMENTED, state, jnp.float32(1e6))
    assert far.multiplier == 100.0 and far.curvature == 1.0
    # A critic that says nonsense moves nothing.
    assert augmented_lagrangian.update(AUGMENTED, state, jnp.float32(jnp.nan)) == state
