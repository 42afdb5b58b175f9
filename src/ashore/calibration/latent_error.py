"""epsilon(N): how far the belief after N transitions is from where it ends up."""

import math
from typing import NamedTuple

import numpy as np

from ashore.calibration import conformal

SETTLED = 0.05
"""Share of epsilon(1) that half of the reference may be away from the whole."""


class Table(NamedTuple):
    """A quantile over environments, by count (and risk level), and how sure of it we are."""

    value: np.ndarray
    standard_error: np.ndarray


class ReferenceCheck(NamedTuple):
    """Whether the reference can stand for the true latent: half of its transitions against all of them."""

    half_error: float
    """Distance between the two that an environment does not exceed."""
    ratio: float
    """The same as a share of epsilon(1); NaN where epsilon(1) is nothing."""
    settled: bool


def beliefs(weighted_mean_sum: np.ndarray, precision_sum: np.ndarray) -> np.ndarray:
    """Posterior means from natural parameters; the prior N(0, I) takes part."""
    return weighted_mean_sum / (1.0 + precision_sum)


def errors(latents: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """||z_ref - z_N||_2, [count, environment].

    Args:
        latents: [count, environment, latent].
        reference: [environment, latent], from transitions that `latents` has not seen: from the same ones, the error
            would vanish at the last count by construction.
    """
    assert latents.shape[1:] == reference.shape, (latents.shape, reference.shape)
    return np.linalg.norm(latents - reference, axis=2)


def table(errors: np.ndarray, level: float) -> Table:
    """The error that an environment does not exceed at this level, by count; a row for each of the errors' rows."""
    value = np.array([conformal.upper(row, level) for row in errors])
    return Table(value, np.array([conformal.standard_error(row, level) for row in errors]))


def half_reference(weighted_mean_sum: np.ndarray, precision_sum: np.ndarray) -> np.ndarray | None:
    """Beliefs from half of the deployments behind the reference, [environment, latent]; None where there is only one.

    Args:
        weighted_mean_sum, precision_sum: after the last decision, [environment, deployment, latent]; without the prior.
    """
    # Of an odd number the smaller half, whose error is the larger.
    half = weighted_mean_sum.shape[1] // 2
    return beliefs(weighted_mean_sum[:, :half].sum(axis=1), precision_sum[:, :half].sum(axis=1)) if half else None


def check_reference(half: np.ndarray, reference: np.ndarray, first: float, level: float) -> ReferenceCheck:
    """epsilon(N_ref / 2) against epsilon(1).

    The half is part of the whole on purpose. Of N independent transitions it is then as far from the whole as the whole
    is from the truth: its variance around the whole is 2 / N - 1 / N of one transition's.

    Args:
        half: [environment, latent].
        reference: the same from all transitions.
        first: epsilon(1).
    """
    half_error = conformal.upper(errors(half[None], reference)[0], level)
    return ReferenceCheck(half_error, half_error / first if first else math.nan, bool(half_error <= SETTLED * first))
