"""The product of Gaussians and its KL, against closed forms and identities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ashore.networks import encoder
from ashore.networks.encoder import EncoderConfig, Factor

CONFIG = EncoderConfig(features=3, action=2, latent=4, hidden=(16, 16))


def factors(count, seed=0):
    mean_key, precision_key = jax.random.split(jax.random.key(seed))
    precision = jax.random.uniform(precision_key, (count, 4), minval=0.01, maxval=3.0)
    return Factor(jax.random.normal(mean_key, (count, 4)), precision)


def some(count, places):
    return jnp.arange(places) < count


def test_two_factors_by_hand():
    # Prior N(0, 1) with factors N(2, 1/3) and N(-1, 1/4): precision 1 + 3 + 4 = 8, mean (3 * 2 - 4 * 1) / 8 = 1/4.
    pair = Factor(jnp.array([[2.0], [-1.0]]), jnp.array([[3.0], [4.0]]))
    posterior = encoder.combine(pair, some(2, 2))
    assert encoder.mean(posterior)[0] == pytest.approx(0.25)
    assert encoder.variance(posterior)[0] == pytest.approx(1.0 / 8.0)
    # KL = (ln 8 - 7/8 + 1/16) / 2 = (2.0794415 - 0.875 + 0.0625) / 2 = 0.6334708.
    assert encoder.kl_to_prior(posterior) == pytest.approx(0.6334708, rel=1e-6)
    # A draw with noise 2: 0.25 + 2 / sqrt(8) = 0.9571068.
    assert encoder.sample(posterior, jnp.array([2.0]))[0] == pytest.approx(0.9571068, rel=1e-6)


def test_product_against_densities_multiplied_on_a_grid():
    drawn = factors(5)
    posterior = encoder.combine(drawn, some(5, 5))
    grid = np.linspace(-8.0, 8.0, 20001)
    for d in range(4):
        log_density = -0.5 * grid**2
        for i in range(5):
            log_density -= 0.5 * float(drawn.precision[i, d]) * (grid - float(drawn.mean[i, d])) ** 2
        density = np.exp(log_density - log_density.max())
        density /= density.sum()
        mean = (density * grid).sum()
        assert encoder.mean(posterior)[d] == pytest.approx(mean, abs=1e-5)
        assert encoder.variance(posterior)[d] == pytest.approx((density * (grid - mean) ** 2).sum(), rel=1e-4)


def test_repeated_evidence_is_evidence_merged_with_itself():
    once = encoder.combine(factors(6), some(6, 6))
    thrice = encoder.repeated(once, jnp.int32(3))
    for found, expected in zip(thrice, encoder.merge(once, encoder.merge(once, once)), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    for found, expected in zip(encoder.repeated(once, jnp.int32(0)), encoder.prior(4), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_no_context_is_the_prior_exactly():
    empty = encoder.combine(factors(8), some(0, 8))
    for posterior in (empty, encoder.prior(4)):
        np.testing.assert_array_equal(encoder.mean(posterior), np.zeros(4))
        np.testing.assert_array_equal(encoder.variance(posterior), np.ones(4))
        assert encoder.kl_to_prior(posterior) == 0.0
        assert posterior.count == 0


def test_order_of_transitions_does_not_matter():
    drawn = factors(32)
    order = jax.random.permutation(jax.random.key(1), 32)
    straight = encoder.combine(drawn, some(32, 32))
    shuffled = encoder.combine(Factor(drawn.mean[order], drawn.precision[order]), some(32, 32))
    np.testing.assert_allclose(encoder.mean(straight), encoder.mean(shuffled), atol=1e-6)
    np.testing.assert_allclose(encoder.variance(straight), encoder.variance(shuffled), rtol=1e-5)


def test_running_and_merged_equal_the_batch():
    drawn = factors(20)
    batch = encoder.combine(drawn, some(20, 20))
    running, _ = jax.lax.scan(lambda p, f: (encoder.add(p, f), None), encoder.prior(4), drawn)
    first = encoder.combine(Factor(drawn.mean[:7], drawn.precision[:7]), some(7, 7))
    second = encoder.combine(Factor(drawn.mean[7:], drawn.precision[7:]), some(13, 13))
    for other in (running, encoder.merge(first, second)):
        assert other.count == 20
        np.testing.assert_allclose(encoder.mean(batch), encoder.mean(other), atol=1e-6)
        np.testing.assert_allclose(encoder.variance(batch), encoder.variance(other), rtol=1e-5)


def test_masked_places_are_ignored_even_when_not_finite():
    drawn = factors(6)
    spoilt = Factor(drawn.mean.at[3:].set(jnp.nan), drawn.precision.at[3:].set(jnp.inf))
    posterior = encoder.combine(spoilt, some(3, 6))
    clean = encoder.combine(Factor(drawn.mean[:3], drawn.precision[:3]), some(3, 3))
    np.testing.assert_allclose(encoder.mean(posterior), encoder.mean(clean), atol=1e-6)
    unchanged = encoder.add(clean, Factor(jnp.full(4, jnp.nan), jnp.full(4, jnp.nan)), use=False)
    jax.tree.map(np.testing.assert_array_equal, unchanged, clean)


def test_network_gives_proper_factors_and_padding_changes_nothing():
    params = encoder.init(jax.random.key(0), CONFIG)
    rows = 50.0 * jax.random.normal(jax.random.key(1), (10, CONFIG.inputs))
    one = encoder.factor(CONFIG, params, rows[0])
    assert jnp.all(one.precision >= 0.0) and jnp.all(one.precision <= encoder.MAX_PRECISION)
    short = encoder.encode(CONFIG, params, rows[:4], some(4, 4))
    padded = encoder.encode(CONFIG, params, rows, some(4, 10))
    np.testing.assert_allclose(encoder.mean(short), encoder.mean(padded), rtol=1e-4, atol=1e-5)
    assert short.count == padded.count == 4


@given(
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=8),
    st.lists(st.floats(0.0, 1e6, width=32), min_size=8, max_size=8),
)
@settings(max_examples=100, deadline=None)
def test_kl_is_never_negative_and_matches_the_textbook(means, precisions):
    precision = np.array(precisions[: len(means)], np.float32)
    weighted = np.array(means, np.float32) * precision
    posterior = encoder.NaturalPosterior(jnp.asarray(weighted), jnp.asarray(precision), jnp.int32(1))
    kl = float(encoder.kl_to_prior(posterior))
    assert kl >= 0.0
    variance = 1.0 / (1.0 + precision.astype(np.float64))
    mean = weighted.astype(np.float64) * variance
    textbook = 0.5 * np.sum(variance + mean**2 - 1.0 - np.log(variance))
    assert kl == pytest.approx(textbook, rel=1e-4, abs=1e-6)


def test_kl_against_monte_carlo():
    posterior = encoder.combine(factors(3), some(3, 3))
    mean, variance = encoder.mean(posterior), encoder.variance(posterior)
    noise = jax.random.normal(jax.random.key(5), (200_000, 4))
    z = jax.vmap(lambda noise: encoder.sample(posterior, noise))(noise)
    log_q = -0.5 * jnp.sum(jnp.square(z - mean[None]) / variance[None] + jnp.log(variance)[None], axis=1)
    log_p = -0.5 * jnp.sum(jnp.square(z), axis=1)
    assert encoder.kl_to_prior(posterior) == pytest.approx(float(jnp.mean(log_q - log_p)), rel=0.02)
