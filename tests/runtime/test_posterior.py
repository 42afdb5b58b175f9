"""The posterior: the prior exactly, order does not matter, precision only grows, and the encoder's own sums."""

import json

import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ashore.networks import encoder
from ashore_runtime import posterior
from volumes import examples


def factors(seed, count, latent=5):
    generator = np.random.default_rng(seed)
    means = generator.normal(size=(count, latent)).astype(np.float32)
    return means, generator.exponential(size=(count, latent)).astype(np.float32)


def product(means, precisions, order=None, tempering=1.0):
    found = posterior.prior(means.shape[1])
    for i in range(len(means)) if order is None else order:
        found = posterior.add(found, means[i], precisions[i], tempering)
    return found


def test_no_transition_is_the_prior_exactly():
    prior = posterior.prior(3)
    assert posterior.mean(prior).tolist() == [0.0] * 3 and posterior.deviation(prior).tolist() == [1.0] * 3


def test_two_transitions_by_hand():
    # Precisions 1 and 2 with means 3 and 0, and the prior's 1 with mean 0: precision 4, mean 3 / 4, deviation 1 / 2.
    found = product(np.array([[3.0], [0.0]], np.float32), np.array([[1.0], [2.0]], np.float32))
    assert posterior.mean(found).tolist() == [0.75] and posterior.deviation(found).tolist() == [0.5]
    # Tempered by a half: precision 1 + 1.5 = 2.5, mean 1.5 / 2.5.
    tempered = product(np.array([[3.0], [0.0]], np.float32), np.array([[1.0], [2.0]], np.float32), tempering=0.5)
    np.testing.assert_allclose(posterior.mean(tempered), [0.6], rtol=1e-6)


def test_same_as_the_trained_encoder():
    means, precisions = factors(0, 300)
    ours = product(means, precisions)
    theirs = encoder.combine(encoder.Factor(jnp.asarray(means), jnp.asarray(precisions)), jnp.ones(300, bool))
    np.testing.assert_allclose(posterior.mean(ours), encoder.mean(theirs), atol=1e-6)
    np.testing.assert_allclose(posterior.deviation(ours) ** 2, encoder.variance(theirs), rtol=1e-5)
    assert ours.count == int(theirs.count)


@examples(200, 10_000)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.randoms(use_true_random=False))
def test_order_does_not_matter_and_precision_only_grows(seed, count, random):
    means, precisions = factors(seed, count)
    order = list(range(count))
    random.shuffle(order)
    first, second = product(means, precisions), product(means, precisions, order)
    np.testing.assert_allclose(posterior.mean(first), posterior.mean(second), atol=1e-6)
    found = posterior.prior(5)
    for mean, precision in zip(means, precisions, strict=True):
        following = posterior.add(found, mean, precision)
        assert (following.precision_sum >= found.precision_sum).all()
        found = following


def test_fading_remembers_about_so_many():
    # Precision 1 each and a memory of 4: 1 + 3/4 + 9/16, and 4 in the end.
    found = posterior.prior(1)
    for mean in (1.0, 1.0, 3.0):
        found = posterior.add(posterior.fade(found, 4), np.array([mean]), np.ones(1))
    assert found == posterior.Posterior(np.array([3.0 + 0.75 + 0.5625]), np.array([2.3125]), 3)
    for _ in range(200):
        found = posterior.add(posterior.fade(found, 4), np.zeros(1), np.ones(1))
    np.testing.assert_allclose(found.precision_sum, 4.0)
    assert found.count == 4


def test_sums_come_back_bit_for_bit():
    found = product(*factors(2, 50))
    again = posterior.from_json(json.loads(json.dumps(posterior.to_json(found))), 5)
    assert again.weighted_mean_sum.tobytes() == found.weighted_mean_sum.tobytes()
    assert again.precision_sum.tobytes() == found.precision_sum.tobytes() and again.count == found.count


def test_discount_keeps_the_direction_and_widens():
    found = product(*factors(1, 9))
    half = posterior.discount(found, 0.5)
    assert half.count == 4
    assert (posterior.deviation(half) > posterior.deviation(found)).all()
    np.testing.assert_array_equal(np.sign(posterior.mean(half)), np.sign(posterior.mean(found)))
