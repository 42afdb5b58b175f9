"""Why closeness is sharpened: a network that must tell contact from near learns it with the powers, and not without."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tests.compilation import jit

from ashore.environments.point_goal.lidar import lidar
from ashore.learning import normalisation
from ashore.networks.architecture import Architecture
from ashore.networks.layers import mlp, mlp_init

HAZARDS, CONTACT, BINS = 10, 0.2, 16
STEPS, BATCH = 400, 256


def moment(key):
    """Lidar of ten hazards scattered around a robot, and whether it stands in one."""
    place_key, hazard_key = jax.random.split(key)
    robot = jax.random.uniform(place_key, (2,), minval=-1.8, maxval=1.8)
    hazards = jax.random.uniform(hazard_key, (HAZARDS, 2), minval=-2.0, maxval=2.0)
    inside = jnp.min(jnp.linalg.norm(hazards - robot[None], axis=1)) < CONTACT
    return lidar(robot, jnp.float32(0.0), hazards), inside.astype(jnp.float32)


@functools.partial(jit, static_argnums=0)
def explained(nets):
    """Share of the variance of `inside` that the network explains after a short training on noisy targets."""
    spread = normalisation.RunningStatistics(jnp.full(BINS, 0.25), jnp.full(BINS, 0.27**2), jnp.ones((), jnp.int32))
    see = jax.vmap(lambda observation: normalisation.see(nets, spread, observation))
    predict = jax.vmap(lambda params, x: mlp(params, x, "float32")[0], in_axes=(None, 0))
    params = mlp_init(jax.random.key(0), nets.seen, (128, 128), 1)
    optimiser = optax.adam(1e-3)

    def step(carry, key):
        params, memory = carry
        sample_key, noise_key = jax.random.split(key)
        seen, inside = jax.vmap(moment)(jax.random.split(sample_key, BATCH))
        target = inside + 0.5 * jax.random.normal(noise_key, inside.shape)
        gradient = jax.grad(lambda params: jnp.mean(jnp.square(predict(params, see(seen)) - target)))(params)
        with jax.numpy_dtype_promotion("standard"):
            change, memory = optimiser.update(gradient, memory)
        return (optax.apply_updates(params, change), memory), None

    start = (params, optimiser.init(params))
    (params, _), _ = jax.lax.scan(step, start, jax.random.split(jax.random.key(1), STEPS))
    seen, inside = jax.vmap(moment)(jax.random.split(jax.random.key(2), 4096))
    return 1.0 - jnp.mean(jnp.square(inside - predict(params, see(seen)))) / jnp.var(inside)


def test_contact_is_learnt_with_the_powers_and_not_without():
    plain, sharpened = Architecture(BINS, 1, (0,)), Architecture(BINS, 1, (0,), closeness=tuple(range(BINS)))
    without, with_powers = float(explained(plain)), float(explained(sharpened))
    assert without < 0.15 and with_powers > 0.4, (without, with_powers)


@pytest.mark.parametrize("distance", [0.1, 0.2, 0.3])
def test_a_tenth_of_a_metre_is_a_visible_difference(distance):
    # Readings 0.1 m apart differ by 0.033, an eighth of a standard deviation; sharpened by more than half of one unit.
    nets = Architecture(1, 1, (0,), closeness=(0,))
    spread = normalisation.RunningStatistics(jnp.full(1, 0.25), jnp.full(1, 0.27**2), jnp.ones((), jnp.int32))
    near, far = (normalisation.see(nets, spread, jnp.array([1.0 - d / 3.0])) for d in (distance, distance + 0.1))
    difference = np.abs(np.asarray(near) - np.asarray(far))
    assert difference[0] == pytest.approx(0.1 / 3.0 / 0.27, rel=1e-3)
    assert difference[1:].max() > 0.35
