"""Mean and upper-tail mean of a quantile function, and the fractions at which to read it."""

import jax
import jax.numpy as jnp

from ashore.types import Array


def midpoints(level: Array | float, count: int) -> Array:
    """Midpoints of `count` equal cells of [level, 1]: level + (1 - level)(i - 1/2) / count, i = 1..count.

    Fixed fractions instead of random ones make a decision that rests on them repeatable, and these are the same to the
    last bit on every machine. The last bit matters: a critic takes the cosine of pi i tau with i up to 64, which makes
    1e-5 of it. Compilers differ in it: some round a product before they add to it, and some do not. So product and sum
    are taken in whole numbers, of which nothing is rounded, and the level to the nearest of as many as fit.
    """
    level = jnp.asarray(level, jnp.float32)
    assert level.ndim == 0, f"level must be a scalar, not {level.shape}"
    bits = min(24, 31 - (2 * count).bit_length())
    whole = jnp.round(level * 2.0**bits).astype(jnp.int32)
    odd = jnp.arange(1, 2 * count, 2, dtype=jnp.int32)
    parts = whole * (2 * count - odd) + (odd << bits)
    fractions = parts.astype(jnp.float32) * (0.5**bits / (2 * count))
    # Only a power of two is multiplied without rounding. Any other factor would be folded into the pi that comes next,
    # and pi tau would have another last bit than elsewhere.
    return fractions if count.bit_count() == 1 else jax.lax.optimization_barrier(fractions)


def expectation(values: Array) -> Array:
    """Mean of a quantile function read at uniform fractions: E_{tau ~ U[0,1]}[Z_tau].

    Args:
        values: the quantile function at random or midpoint fractions of [0, 1], [fractions].
    """
    assert values.ndim == 1, values.shape
    return jnp.mean(values)


def upper_tail_mean(fractions: Array, values: Array, level: Array | float) -> Array:
    """Mean of the worst (1 - level) share of outcomes: Q^eta = 1/(1 - eta) int_eta^1 F^{-1}(tau) d tau.

    The pairs are taken as a step function whose steps meet half-way between neighbouring fractions. Values are
    sorted on their own: a trained quantile network may cross, and the increasing rearrangement is the quantile
    function of the same outcomes. For one set of pairs the result therefore never falls when the level rises.

    Midpoints of [level, 1] all weigh the same: there the result is the plain mean and sorting changes nothing. A
    network that crosses, read anew at such midpoints for every level, can have a tail mean that falls; to rule that
    out, read it once over [0, 1].

    Args:
        fractions: where the quantile function was read, in any order, [fractions].
        values: what was read there, [fractions].
        level: eta in [0, 1).
    """
    assert fractions.ndim == 1 and fractions.shape == values.shape, (fractions.shape, values.shape)
    level = jnp.asarray(level, jnp.float32)
    assert level.ndim == 0, f"level must be a scalar, not {level.shape}"
    ordered = jnp.sort(fractions)
    inner_edges = 0.5 * (ordered[1:] + ordered[:-1])
    edges = jnp.concatenate([jnp.zeros(1, jnp.float32), inner_edges, jnp.ones(1, jnp.float32)])
    weights = jnp.diff(jnp.maximum(edges, level))
    return jnp.sum(weights * jnp.sort(values)) / (1.0 - level)
