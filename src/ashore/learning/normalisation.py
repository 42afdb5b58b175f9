"""Running mean and variance, and the normalised vectors that the networks are fed.

Statistics are merged batch by batch (Chan et al.): with counts n, m and d the difference of the two means,

    mean = mean_a + d m / (n + m),   var = (n var_a + m var_b) / (n + m) + d^2 n m / (n + m)^2

The variance itself is stored, not a sum of squares, so no entry grows with the run. The count is an int32 that stops at
2^24, the last number up to which float32 counts exactly: from there on the statistics are those of a sliding window of
about 2^24 samples, which in learning is no loss (the policy that produced older samples is gone) and cannot overflow.
"""

from typing import NamedTuple

import jax.numpy as jnp

from ashore.networks.architecture import SHARPENED, SOONEST, Architecture
from ashore.types import Array

MAX_COUNT = 1 << 24
CLIP = 10.0
"""Normalised numbers stay within +-10 standard deviations."""
MIN_DEVIATION = 1e-6
"""Floor of the standard deviation, for entries that never change."""


class RunningStatistics(NamedTuple):
    """Mean and variance of everything seen; N(0, 1) before anything was."""

    mean: Array
    variance: Array
    count: Array
    """Samples behind the statistics, int32, at most 2^24."""


def empty(shape: tuple[int, ...]) -> RunningStatistics:
    """Statistics of nothing: `normalise` is then the identity up to clipping."""
    return RunningStatistics(jnp.zeros(shape, jnp.float32), jnp.ones(shape, jnp.float32), jnp.zeros((), jnp.int32))


def merge(first: RunningStatistics, second: RunningStatistics) -> RunningStatistics:
    """Statistics of both samples together; the order does not matter below the cap."""
    assert first.mean.shape == second.mean.shape, (first.mean.shape, second.mean.shape)
    total = first.count + second.count
    divisor = jnp.maximum(total, 1).astype(jnp.float32)
    share_first = first.count.astype(jnp.float32) / divisor
    share_second = second.count.astype(jnp.float32) / divisor
    difference = second.mean - first.mean
    mean = first.mean + difference * share_second
    spread = jnp.square(difference) * (share_first * share_second)
    variance = share_first * first.variance + share_second * second.variance + spread
    return RunningStatistics(
        mean=jnp.where(total > 0, mean, first.mean),
        variance=jnp.where(total > 0, variance, first.variance),
        count=jnp.minimum(total, MAX_COUNT),
    )


def update(statistics: RunningStatistics, samples: Array, mask: Array) -> RunningStatistics:
    """Statistics with a batch added.

    Args:
        samples: any batch axes, then the shape of the statistics.
        mask: which samples count, bool, the batch axes alone. Masked samples may be anything, NaN included.
    """
    assert samples.shape == mask.shape + statistics.mean.shape, (samples.shape, mask.shape, statistics.mean.shape)
    shape = statistics.mean.shape
    samples = samples.reshape(-1, *shape).astype(jnp.float32)
    used = mask.reshape(-1, *(1,) * len(shape))
    count = jnp.sum(mask.astype(jnp.int32))
    divisor = jnp.maximum(count, 1).astype(jnp.float32)
    mean = jnp.sum(jnp.where(used, samples, 0.0), axis=0) / divisor
    # Two passes: the difference of large squares would lose the variance of a large, steady number.
    deviation = jnp.where(used, samples - mean[None], 0.0)
    variance = jnp.sum(jnp.square(deviation), axis=0) / divisor
    return merge(statistics, RunningStatistics(mean, variance, count))


def deviation(statistics: RunningStatistics) -> Array:
    """max(std, 1e-6): how much of a raw number is one normalised unit."""
    return jnp.maximum(jnp.sqrt(statistics.variance), MIN_DEVIATION)


def disturbed(statistics: RunningStatistics, samples: Array, disturbance: Array) -> Array:
    """Raw samples [..., n] moved by so many standard deviations."""
    assert samples.shape == disturbance.shape, (samples.shape, disturbance.shape)
    return samples + disturbance * jnp.broadcast_to(deviation(statistics), samples.shape)


def normalise(statistics: RunningStatistics, x: Array) -> Array:
    """clip((x - mean) / max(std, 1e-6), -10, 10) for one sample."""
    assert x.shape == statistics.mean.shape, (x.shape, statistics.mean.shape)
    return jnp.clip((x.astype(statistics.mean.dtype) - statistics.mean) / deviation(statistics), -CLIP, CLIP)


class Normalisers(NamedTuple):
    """One set of statistics per kind of number that enters a network."""

    observation: RunningStatistics
    change: RunningStatistics
    """Change of the dynamics features in one decision."""
    reward: RunningStatistics
    cost: RunningStatistics


def init(observation: int, features: int) -> Normalisers:
    """Normalisers that have seen nothing."""
    return Normalisers(empty((observation,)), empty((features,)), empty(()), empty(()))


def see(nets: Architecture, statistics: RunningStatistics, observation: Array) -> Array:
    """What actor, critics and dynamics head see of one observation.

    All of it normalised, then what a network would be slow to find in it: closenesses sharpened, contrasts, and
    how soon gaps close.
    """
    raw = observation.astype(statistics.mean.dtype)
    near = jnp.clip(raw[jnp.asarray(nets.closeness, jnp.int32)], 0.0, 1.0)
    contrasts = [scale * (raw[first] - raw[second]) for first, second, scale in nets.contrasts]
    closing = [
        jnp.minimum(scale * jnp.maximum(raw[faster] - raw[slower], 0.0) / jnp.maximum(raw[gap], floor), SOONEST)
        for faster, slower, gap, scale, floor in nets.approaches
    ]
    return jnp.concatenate(
        [
            normalise(statistics, observation),
            *(scale * near**power for power, scale in SHARPENED),
            *(contrast[None] for contrast in contrasts),
            *(approach[None] for approach in closing),
        ]
    )


def update_all(
    normalisers: Normalisers, observation: Array, change: Array, reward: Array, cost: Array, mask: Array
) -> Normalisers:
    """Add a batch of decisions with any batch axes; decisions outside the mask leave no trace."""
    return Normalisers(
        observation=update(normalisers.observation, observation, mask),
        change=update(normalisers.change, change, mask),
        reward=update(normalisers.reward, reward, mask),
        cost=update(normalisers.cost, cost, mask),
    )


def dynamics_target(normalisers: Normalisers, change: Array, reward: Array, cost: Array) -> Array:
    """(s' - s, r, c) of one decision, normalised: what the dynamics head predicts, [features + 2]."""
    scalars = [normalise(normalisers.reward, reward)[None], normalise(normalisers.cost, cost)[None]]
    return jnp.concatenate([normalise(normalisers.change, change), *scalars])


def encoder_input(
    normalisers: Normalisers,
    features: tuple[int, ...],
    feature_values: Array,
    action: Array,
    change: Array,
    reward: Array,
    cost: Array,
) -> Array:
    """(s, a, s' - s, r, c) of one decision, normalised and restricted to the dynamics features, for the encoder.

    Args:
        features: indices of the dynamics features in the observation.
        feature_values: the raw observation at these indices, [features].
        change: their raw change, s' - s, [features].
    """
    index = jnp.asarray(features, jnp.int32)
    statistics = normalisers.observation
    restricted = RunningStatistics(statistics.mean[index], statistics.variance[index], statistics.count)
    target = dynamics_target(normalisers, change, reward, cost)
    return jnp.concatenate([normalise(restricted, feature_values), action.astype(target.dtype), target])
