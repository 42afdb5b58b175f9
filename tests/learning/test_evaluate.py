"""Evaluation: a deployment adds up to what its episodes did, and a probe knows signal from noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.toy_world import PERIOD, TRAIN, Cart, CartConfig, CartParameters

from ashore.environments import randomisation
from ashore.learning import evaluate, normalisation
from ashore.networks import architecture
from ashore.networks.architecture import SIZES, Architecture

NETS = Architecture(observation=2, action=1, features=(1,), sizes=SIZES["small"])


def test_a_deployment_reports_every_episode_of_every_world():
    task = Cart(CartConfig(decisions=5, start_width=0.0))
    parameters = randomisation.sample(TRAIN, CartParameters, jax.random.key(0), 4)
    params = architecture.init(jax.random.key(1), NETS)
    # A constant push: every weight of the last layer zero, bias atanh(0.5).
    last = params["actor"]["output"]
    last["kernel"], last["bias"] = jnp.zeros_like(last["kernel"]), jnp.full_like(last["bias"], jnp.arctanh(0.5))
    normalisers = normalisation.init(2, 1)
    deployment = evaluate.deploy(task, NETS, params, normalisers, parameters, jax.random.key(2), episodes=3)
    # From rest under a constant push u: x_5 = h^2 a (5 * 6 / 2) with a = (1 + thrust) u / mass; effort 0.1 u^2 each.
    acceleration = 0.5 * (1.0 + np.asarray(parameters.thrust)) / np.asarray(parameters.mass)
    way = PERIOD**2 * acceleration * 15.0
    expected = way - 5 * 0.1 * 0.5**2
    assert deployment.episode_return.shape == (3, 4)
    np.testing.assert_allclose(deployment.episode_return, np.tile(expected, (3, 1)), rtol=1e-4)
    np.testing.assert_allclose(deployment.metrics["distance"], np.tile(way, (3, 1)), rtol=1e-4)
    # The posterior is kept from episode to episode: it only gets narrower.
    assert deployment.latent.shape == (15, 4, NETS.sizes.latent)
    assert np.all(np.diff(np.asarray(deployment.deviation), axis=0) <= 1e-6)
    assert np.all(np.asarray(deployment.diverged) == 0)


def test_a_probe_finds_what_is_there_and_nothing_else():
    generator = np.random.default_rng(0)
    latents = generator.normal(size=(400, 5))
    linear = latents @ np.array([1.0, -2.0, 0.0, 0.5, 0.0]) + 3.0
    assert evaluate.probe(latents, linear) == pytest.approx(1.0, abs=1e-9)
    # Signal and noise of equal variance: half of it can be explained.
    noisy = linear + generator.normal(size=400) * np.std(linear)
    assert evaluate.probe(latents, noisy) == pytest.approx(0.5, abs=0.1)
    assert evaluate.probe(latents, generator.normal(size=400)) < 0.05
