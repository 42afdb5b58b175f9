"""How much of the evidence to believe.

The product of Gaussian factors counts every transition as independent. Transitions that follow one another are not, and
the posterior becomes surer than it should be. Tempering multiplies every factor's precision by t in (0, 1]:

    precision = 1 + t sum_i p_i,   mean = t sum_i p_i mu_i / precision

t is chosen so that the reference latents are most likely under the tempered posteriors. At that t the spread that the
posterior claims and the error it makes are as near as one number can bring them.
"""

from typing import NamedTuple

import numpy as np

SMALLEST = 1e-3
STEPS = 121


class Tempering(NamedTuple):
    """The factor, and whether the posterior tells the truth about itself."""

    factor: float
    square_before: np.ndarray
    """Mean squared error in units of the posterior's variance, by count; 1 is honest, more is overconfident."""
    square_after: np.ndarray
    """The same with the factor applied."""


def measure(weighted_mean_sum: np.ndarray, precision_sum: np.ndarray, reference: np.ndarray) -> Tempering:
    """Fit the factor on untempered sums.

    Args:
        weighted_mean_sum, precision_sum: [count, environment, latent]; without the prior.
        reference: [environment, latent].
    """
    factors = np.geomspace(SMALLEST, 1.0, STEPS)
    fits = [_squares(weighted_mean_sum, precision_sum, reference, factor) for factor in factors]
    likelihood = [
        np.sum(np.log1p(factor * precision_sum) - squares) for factor, squares in zip(factors, fits, strict=True)
    ]
    best = int(np.argmax(likelihood))
    return Tempering(float(factors[best]), fits[-1].mean(axis=(1, 2)), fits[best].mean(axis=(1, 2)))


def _squares(means: np.ndarray, precisions: np.ndarray, reference: np.ndarray, factor: float) -> np.ndarray:
    precision = 1.0 + factor * precisions
    return (factor * means / precision - reference) ** 2 * precision
