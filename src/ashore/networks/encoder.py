"""The environment encoder: which world produced these transitions?

    q(z | D) ~ N(z; 0, I) prod_i Psi(z | D_i),   Psi(z | D_i) = N(mu_i, 1 / p_i)        (eq 3)

Each transition gives one diagonal Gaussian factor. The prior is a factor of the product as well, so an empty context
gives the prior exactly, and in natural parameters the product is a sum:

    precision = 1 + sum_i p_i,   mean = sum_i p_i mu_i / precision

A new transition therefore costs one addition, whatever was seen before, and the order of transitions cannot matter.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ashore.networks.layers import Params, mlp, mlp_init
from ashore.types import Array

MAX_PRECISION = 1e4
"""No single transition may claim to know z better than to 0.01 prior standard deviations."""

INITIAL_PRECISION_BIAS = -2.0
"""softplus(-2) = 0.127: before training 128 transitions claim a precision of about 16, not of about 90."""


@dataclass(frozen=True)
class EncoderConfig:
    """Shape of the encoder."""

    features: int
    """Dynamics features: how many entries of the observation the encoder looks at."""
    action: int
    latent: int = 5
    hidden: tuple[int, ...] = (256, 256, 256)
    action_scale: float = 1.0
    compute: str = "float32"

    @property
    def inputs(self) -> int:
        """Length of one normalised transition (s, a, s' - s, r, c)."""
        return 2 * self.features + self.action + 2


class Factor(NamedTuple):
    """One transition's Gaussian opinion about z."""

    mean: Array
    precision: Array


class NaturalPosterior(NamedTuple):
    """What has been learnt about z so far: sums over the transitions seen, without the prior.

    The prior N(0, I) joins when the posterior is read (`mean`, `variance`), so that merging is plain addition.
    """

    weighted_mean_sum: Array
    """sum_i p_i mu_i, [latent]."""
    precision_sum: Array
    """sum_i p_i, [latent]."""
    count: Array
    """Transitions seen, int32."""


def init(key: Array, config: EncoderConfig) -> Params:
    """Weights of the per-transition MLP."""
    params = mlp_init(key, config.inputs, config.hidden, 2 * config.latent)
    bias = jnp.full(config.latent, INITIAL_PRECISION_BIAS, jnp.float32)
    params["output"]["bias"] = jnp.concatenate([jnp.zeros(config.latent, jnp.float32), bias])
    return params


def factor(config: EncoderConfig, params: Params, transition: Array) -> Factor:
    """Psi(z | D_i) for one normalised transition vector: mean linear, precision min(softplus(.), 1e4).

    The network gives a precision rather than a variance: a transition that says nothing is then an ordinary output
    (precision zero) instead of an infinite one.
    """
    assert transition.shape == (config.inputs,), (transition.shape, config.inputs)
    scale = jnp.ones_like(transition)
    scale = scale.at[config.features : config.features + config.action].set(config.action_scale)
    out = mlp(params, scale * transition, config.compute)
    precision = jnp.minimum(jax.nn.softplus(out[config.latent :]), MAX_PRECISION)
    return Factor(mean=out[: config.latent], precision=precision)


def prior(latent: int) -> NaturalPosterior:
    """The posterior after no transition at all: N(0, I)."""
    return NaturalPosterior(jnp.zeros(latent, jnp.float32), jnp.zeros(latent, jnp.float32), jnp.zeros((), jnp.int32))


def add(posterior: NaturalPosterior, factor: Factor, use: Array | bool = True) -> NaturalPosterior:
    """The posterior after one more transition; unchanged where `use` is false."""
    assert factor.mean.shape == factor.precision.shape == posterior.precision_sum.shape, factor.mean.shape
    use = jnp.asarray(use)
    precision = jnp.where(use, factor.precision, 0.0)
    return NaturalPosterior(
        posterior.weighted_mean_sum + jnp.where(use, factor.precision * factor.mean, 0.0),
        posterior.precision_sum + precision,
        posterior.count + use.astype(jnp.int32),
    )


def merge(first: NaturalPosterior, second: NaturalPosterior) -> NaturalPosterior:
    """The posterior after the transitions of both."""
    return jax.tree.map(jnp.add, first, second)


def repeated(posterior: NaturalPosterior, times: Array) -> NaturalPosterior:
    """The posterior after the same transitions so many times.

    Args:
        posterior: what one time of them told.
        times: int32; after none it is the prior.
    """
    assert times.shape == () and times.dtype == jnp.int32, (times.shape, times.dtype)
    share = times.astype(posterior.precision_sum.dtype)
    return NaturalPosterior(
        share * posterior.weighted_mean_sum, share * posterior.precision_sum, times * posterior.count
    )


def combine(factors: Factor, mask: Array) -> NaturalPosterior:
    """Product of the factors of a whole context (eq 3).

    Args:
        factors: one factor per place of the context, [places, latent]; what stands in unused places is ignored.
        mask: which places hold a transition, bool [places]; none at all gives the prior.
    """
    assert mask.ndim == 1 and factors.mean.shape[0] == mask.shape[0], (factors.mean.shape, mask.shape)
    used = mask[:, None]
    return NaturalPosterior(
        jnp.sum(jnp.where(used, factors.precision * factors.mean, 0.0), axis=0),
        jnp.sum(jnp.where(used, factors.precision, 0.0), axis=0),
        jnp.sum(mask.astype(jnp.int32)),
    )


def encode(config: EncoderConfig, params: Params, transitions: Array, mask: Array) -> NaturalPosterior:
    """q(z | D) of one context: normalised transitions [places, inputs] and their mask [places]."""
    return combine(jax.vmap(lambda row: factor(config, params, row))(transitions), mask)


def mean(posterior: NaturalPosterior) -> Array:
    """E[z], the estimate of the latent context."""
    return posterior.weighted_mean_sum / (1.0 + posterior.precision_sum)


def variance(posterior: NaturalPosterior) -> Array:
    """Var[z] per dimension, 1 for the prior."""
    return 1.0 / (1.0 + posterior.precision_sum)


def sample(posterior: NaturalPosterior, noise: Array) -> Array:
    """mean + std * noise: a draw from the posterior when the noise is standard normal."""
    assert noise.shape == posterior.precision_sum.shape, noise.shape
    return mean(posterior) + jnp.sqrt(variance(posterior)) * noise


def kl_to_prior(posterior: NaturalPosterior) -> Array:
    """KL(q || N(0, I)) = 1/2 sum_d (var + mean^2 - 1 - ln var), summed over dimensions (eq of L_KL).

    Written with var = 1 / (1 + p): var - 1 = -p / (1 + p) and -ln var = log1p(p) lose nothing when p is small, and
    the prior gives exactly zero.
    """
    precision = posterior.precision_sum
    terms = jnp.log1p(precision) - precision / (1.0 + precision) + jnp.square(mean(posterior))
    return 0.5 * jnp.sum(terms)
