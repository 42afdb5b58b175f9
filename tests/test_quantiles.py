"""Fractions, means and upper-tail means, against hand arithmetic and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ashore.quantiles import expectation, midpoints, upper_tail_mean

QUARTERS = jnp.array([0.125, 0.375, 0.625, 0.875])


def test_midpoints_of_the_whole_and_of_the_upper_half():
    np.testing.assert_allclose(midpoints(0.0, 4), [0.125, 0.375, 0.625, 0.875], rtol=1e-6)
    # [0.5, 1] in two cells of 0.25: middles at 0.625 and 0.875.
    np.testing.assert_allclose(midpoints(0.5, 2), [0.625, 0.875], rtol=1e-6)


def test_midpoints_take_a_traced_level():
    traced = jax.jit(lambda level: midpoints(level, 32))(jnp.float32(0.3))
    np.testing.assert_allclose(traced, midpoints(0.3, 32), rtol=1e-6)


@pytest.mark.parametrize(
    ("level", "by_hand"),
    [
        (0.0, 2.5),  # (1 + 2 + 3 + 4) / 4
        (0.25, 3.0),  # (2 + 3 + 4) / 3
        (0.5, 3.5),  # (3 + 4) / 2
        (0.6, 3.625),  # (0.15 * 3 + 0.25 * 4) / 0.4 = 1.45 / 0.4
        (0.9, 4.0),  # nothing but the last step
    ],
)
def test_tail_mean_of_four_steps_by_hand(level, by_hand):
    values = jnp.array([1.0, 2.0, 3.0, 4.0])
    assert upper_tail_mean(QUARTERS, values, level) == pytest.approx(by_hand, rel=1e-6)


def test_tail_mean_ignores_order_and_repairs_crossing():
    # The pairs are shuffled, and the value read at 0.875 lies below the one at 0.625: as outcomes still 1, 2, 3, 4.
    fractions = jnp.array([0.875, 0.125, 0.625, 0.375])
    crossing = jnp.array([3.0, 1.0, 4.0, 2.0])
    assert upper_tail_mean(fractions, crossing, 0.5) == pytest.approx(3.5)


@pytest.mark.parametrize("level", [0.0, 0.3, 0.95])
def test_midpoints_of_the_tail_weigh_the_same(level):
    values = jnp.array([0.5, 2.0, 2.5, 7.0, 11.0])
    assert upper_tail_mean(midpoints(level, 5), values, level) == pytest.approx(float(expectation(values)), rel=1e-5)


@pytest.mark.parametrize("level", [0.0, 0.25, 0.5, 0.75, 0.9])
def test_tail_mean_against_closed_forms(level):
    taus = midpoints(level, 4096)
    # Uniform on [0, 1]: F^{-1}(tau) = tau, tail mean (1 + eta) / 2.
    assert upper_tail_mean(taus, taus, level) == pytest.approx((1.0 + level) / 2.0, rel=1e-5)
    # Exponential: F^{-1}(tau) = -ln(1 - tau), tail mean 1 - ln(1 - eta).
    assert upper_tail_mean(taus, -jnp.log1p(-taus), level) == pytest.approx(1.0 - np.log1p(-level), rel=2e-4)


@given(
    st.lists(st.floats(-100.0, 100.0, width=32), min_size=2, max_size=12),
    st.floats(0.0, 0.98),
    st.floats(0.0, 0.98),
    st.integers(0, 2**31 - 1),
)
@settings(max_examples=100, deadline=None)
def test_tail_mean_never_falls_with_the_level(values, one_level, other_level, seed):
    values = jnp.array(values, jnp.float32)
    fractions = jax.random.uniform(jax.random.key(seed), values.shape)
    low, high = sorted((one_level, other_level))
    gap = upper_tail_mean(fractions, values, high) - upper_tail_mean(fractions, values, low)
    # Dividing the last cell by 1 - level costs digits when little is left above the level.
    assert gap >= -1e-3 * (1.0 + float(jnp.max(jnp.abs(values))))


def test_reading_a_crossing_network_anew_at_every_level_guarantees_nothing():
    # A network gone wrong: its quantiles fall, Z_tau = -tau. Read at midpoints of [eta, 1] its tail mean is
    # -(1 + eta) / 2 and falls, sorted or not; read once over [0, 1] and rearranged it is U[-1, 0]'s, -(1 - eta) / 2.
    once = midpoints(0.0, 64)
    for level in (0.0, 0.25, 0.5, 0.75):
        anew = midpoints(level, 64)
        assert upper_tail_mean(anew, -anew, level) == pytest.approx(-(1.0 + level) / 2.0, rel=1e-5)
        assert upper_tail_mean(once, -once, level) == pytest.approx(-(1.0 - level) / 2.0, rel=1e-5)


def test_gradient_flows_to_the_tail_alone():
    slope = jax.grad(lambda values: upper_tail_mean(QUARTERS, values, 0.5))(jnp.array([1.0, 2.0, 3.0, 4.0]))
    np.testing.assert_allclose(slope, [0.0, 0.0, 0.5, 0.5], atol=1e-6)
