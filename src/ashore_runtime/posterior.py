"""What has been learnt about the world: a Gaussian over z as a running sum of natural parameters.

    q(z | D) ~ N(z; 0, I) prod_i N(z; mu_i, 1 / p_i),   precision = 1 + sum_i p_i,   mean = sum_i p_i mu_i / precision

The prior is a factor, so that no transition gives the prior exactly. One more transition costs one addition, and the
order of transitions does not matter. Sums are float64: after a million transitions they are still exact enough to take
part of them away.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np


class Posterior(NamedTuple):
    """Sums over the transitions seen, without the prior; the prior joins when the posterior is read."""

    weighted_mean_sum: np.ndarray
    """sum_i p_i mu_i, [latent]."""
    precision_sum: np.ndarray
    """sum_i p_i, [latent]."""
    count: int
    """Transitions behind the sums."""


def prior(latent: int) -> Posterior:
    """The posterior after no transition at all: N(0, I)."""
    return Posterior(np.zeros(latent), np.zeros(latent), 0)


def add(posterior: Posterior, mean: np.ndarray, precision: np.ndarray, tempering: float = 1.0) -> Posterior:
    """The posterior after one more transition, whose evidence counts `tempering` times."""
    weight = precision.astype(np.float64) * tempering
    return Posterior(posterior.weighted_mean_sum + weight * mean, posterior.precision_sum + weight, posterior.count + 1)


def discount(posterior: Posterior, share: float) -> Posterior:
    """The posterior that believes only a share of its evidence; the count is rounded down."""
    return Posterior(posterior.weighted_mean_sum * share, posterior.precision_sum * share, int(posterior.count * share))


def fade(posterior: Posterior, memory: int) -> Posterior:
    """The posterior before one more transition, if it is to remember about `memory` of them: older ones count less."""
    share = 1.0 - 1.0 / memory
    sums = (posterior.weighted_mean_sum * share, posterior.precision_sum * share)
    return Posterior(*sums, min(posterior.count, memory - 1))


def mean(posterior: Posterior) -> np.ndarray:
    """E[z], float32: what actor and critics are conditioned on."""
    return (posterior.weighted_mean_sum / (1.0 + posterior.precision_sum)).astype(np.float32)


def deviation(posterior: Posterior) -> np.ndarray:
    """Standard deviation of z per dimension, 1 for the prior."""
    return 1.0 / np.sqrt(1.0 + posterior.precision_sum)


def to_json(posterior: Posterior) -> dict[str, Any]:
    """Plain numbers; `from_json` gives the same sums back bit for bit."""
    sums = (posterior.weighted_mean_sum.tolist(), posterior.precision_sum.tolist())
    return dict(zip(Posterior._fields, (*sums, posterior.count), strict=True))


def from_json(content: Mapping[str, Any], latent: int) -> Posterior:
    """The inverse of `to_json`; a ValueError, KeyError or TypeError if it is not a posterior over so many numbers."""
    weighted, precision = (np.array(content[name], np.float64) for name in Posterior._fields[:2])
    count = int(content["count"])
    whole = weighted.shape == precision.shape == (latent,) and count >= 0
    if not (whole and np.isfinite(weighted).all() and np.isfinite(precision).all() and (precision >= 0.0).all()):
        raise ValueError("These are not the sums of a posterior.")
    return Posterior(weighted, precision, count)
