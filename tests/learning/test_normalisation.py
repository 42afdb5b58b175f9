"""Running statistics against NumPy on all data at once, and the vectors made with them."""

import jax.numpy as jnp
import numpy as np
import pytest

from ashore.learning import normalisation
from ashore.learning.normalisation import CLIP, MAX_COUNT, RunningStatistics
from ashore.networks.architecture import Architecture
from ashore.types import Approach

GENERATOR = np.random.default_rng(0)


def batches(*sizes):
    return [GENERATOR.normal(3.0, [0.1, 1.0, 20.0], (*size, 3)).astype(np.float32) for size in sizes]


def everything(shape):
    return jnp.ones(shape, jnp.bool)


def test_batches_equal_numpy_on_everything():
    parts = batches((5,), (1,), (4, 7), (100,))
    statistics = normalisation.empty((3,))
    for part in parts:
        statistics = normalisation.update(statistics, jnp.asarray(part), everything(part.shape[:-1]))
    whole = np.concatenate([part.reshape(-1, 3) for part in parts]).astype(np.float64)
    assert statistics.count == 134 and statistics.count.dtype == jnp.int32
    np.testing.assert_allclose(statistics.mean, whole.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(statistics.variance, whole.var(axis=0), rtol=1e-4)


def test_merge_does_not_care_for_order():
    parts = [
        normalisation.update(normalisation.empty((3,)), jnp.asarray(part), everything(part.shape[:-1]))
        for part in batches((50,), (3,), (11,))
    ]
    a, b, c = parts
    left = normalisation.merge(normalisation.merge(a, b), c)
    right = normalisation.merge(c, normalisation.merge(b, a))
    np.testing.assert_allclose(left.mean, right.mean, rtol=1e-5)
    np.testing.assert_allclose(left.variance, right.variance, rtol=1e-5)
    assert left.count == right.count == 64


def test_masked_samples_leave_no_trace():
    (part,) = batches((10,))
    spoilt = part.copy()
    spoilt[6:] = np.nan
    mask = jnp.arange(10) < 6
    masked = normalisation.update(normalisation.empty((3,)), jnp.asarray(spoilt), mask)
    clean = normalisation.update(normalisation.empty((3,)), jnp.asarray(part[:6]), everything(6))
    np.testing.assert_allclose(masked.mean, clean.mean, rtol=1e-6)
    np.testing.assert_allclose(masked.variance, clean.variance, rtol=1e-5)
    nothing = normalisation.update(clean, jnp.asarray(spoilt), jnp.zeros(10, jnp.bool))
    for old, new in zip(clean, nothing, strict=True):
        np.testing.assert_array_equal(old, new)


def test_small_variance_of_a_large_number_survives():
    # 1000 +- 0.25: the difference of squares in float32 (steps of 0.06 at 1e6) would give noise.
    samples = jnp.array([999.75, 1000.25] * 500)
    statistics = normalisation.update(normalisation.empty(()), samples, everything(1000))
    assert statistics.variance == pytest.approx(0.0625, rel=1e-3)


def test_count_stops_before_it_can_overflow_and_old_samples_fade():
    full = RunningStatistics(jnp.zeros(()), jnp.ones(()), jnp.int32(MAX_COUNT))
    # As many new samples as the window holds, all 2: the mean moves half-way, the count not at all.
    fresh = RunningStatistics(jnp.full((), 2.0), jnp.zeros(()), jnp.int32(MAX_COUNT))
    merged = normalisation.merge(full, fresh)
    assert merged.count == MAX_COUNT
    assert merged.mean == pytest.approx(1.0)
    # Halves of N(0, 1) and of the point 2: 1/2 * 1 + 1/2 * 0 + 2^2 * 1/4 = 1.5.
    assert merged.variance == pytest.approx(1.5)


def test_normalise_clips_and_survives_constants():
    statistics = RunningStatistics(jnp.array([1.0, 5.0]), jnp.array([4.0, 0.0]), jnp.int32(10))
    np.testing.assert_allclose(normalisation.normalise(statistics, jnp.array([5.0, 5.0])), [2.0, 0.0])
    np.testing.assert_allclose(normalisation.normalise(statistics, jnp.array([1e9, -3.0])), [CLIP, -CLIP])
    fresh = normalisation.empty((2,))
    np.testing.assert_allclose(normalisation.normalise(fresh, jnp.array([0.5, -2.0])), [0.5, -2.0])


def test_encoder_input_is_restricted_normalised_and_in_order():
    normalisers = normalisation.init(observation=3, features=2)._replace(
        observation=RunningStatistics(jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, 1.0, 4.0]), jnp.int32(9)),
        change=RunningStatistics(jnp.zeros(2), jnp.array([0.01, 0.25]), jnp.int32(9)),
        cost=RunningStatistics(jnp.float32(0.5), jnp.float32(1.0), jnp.int32(9)),
    )
    # Features 2 and 0: (7 - 3) / 2 = 2 and (1 - 1) / 1 = 0; action as it is; changes 0.2 / 0.1 = 2 and -1 / 0.5 = -2;
    # reward untouched (nothing seen yet), cost 1.5 - 0.5 = 1.
    row = normalisation.encoder_input(
        normalisers,
        (2, 0),
        jnp.array([7.0, 1.0]),
        jnp.array([0.3]),
        jnp.array([0.2, -1.0]),
        jnp.float32(0.7),
        jnp.float32(1.5),
    )
    np.testing.assert_allclose(row, [2.0, 0.0, 0.3, 2.0, -2.0, 0.7, 1.0], rtol=1e-5)


def test_closeness_is_seen_twice_more_in_its_near_range():
    # 0.5: 4 * 0.5^8 = 0.015625, 6 * 0.5^32 = 1.4e-9; contact: 4 and 6. Out of range is cut; the rest is as ever.
    nets = Architecture(3, 1, (0,), closeness=(1, 2))
    seen = normalisation.see(nets, normalisation.init(3, 1).observation, jnp.array([2.0, 0.5, 1.5]))
    assert nets.seen == 7
    np.testing.assert_allclose(seen, [2.0, 0.5, 1.5, 0.015625, 4.0, 6 * 0.5**32, 6.0], rtol=1e-6)
    plain = Architecture(3, 1, (0,))
    np.testing.assert_array_equal(
        normalisation.see(plain, normalisation.init(3, 1).observation, jnp.array([2.0, 0.5, 1.5])), [2.0, 0.5, 1.5]
    )


def test_a_contrast_is_a_scaled_difference_of_raw_numbers():
    # 15 * (0.7 - 0.5) = 3, after the three normalised numbers themselves.
    nets = Architecture(3, 1, (0,), contrasts=((2, 0, 15.0),))
    seen = normalisation.see(nets, normalisation.init(3, 1).observation, jnp.array([0.5, 9.0, 0.7]))
    assert nets.seen == 4
    np.testing.assert_allclose(seen, [0.5, 9.0, 0.7, 3.0], rtol=1e-5)


def test_an_approach_is_how_soon_a_gap_closes():
    # 5 * (0.7 - 0.5) / 0.4 = 2.5; who falls back does not close in; a gap below the floor counts as the floor, and
    # what comes out is cut at 5: 5 * 0.2 / 0.1 = 10.
    nets = Architecture(3, 1, (0,), approaches=(Approach(2, 0, 1, 5.0, 0.1), Approach(0, 2, 1, 5.0, 0.1)))
    statistics = normalisation.init(3, 1).observation
    seen = normalisation.see(nets, statistics, jnp.array([0.5, 0.4, 0.7]))
    assert nets.seen == 5
    np.testing.assert_allclose(seen, [0.5, 0.4, 0.7, 2.5, 0.0], rtol=1e-5)
    touching = normalisation.see(nets, statistics, jnp.array([0.5, -0.4, 0.7]))
    np.testing.assert_allclose(touching[3:], [5.0, 0.0])
