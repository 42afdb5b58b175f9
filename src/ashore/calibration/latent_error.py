"""epsilon(N): how far the belief after N transitions is from where it ends up."""

from typing import NamedTuple

import numpy as np

from ashore.calibration import conformal


class Table(NamedTuple):
    """A quantile over environments, by count (and risk level), and how sure of it we are."""

    value: np.ndarray
    standard_error: np.ndarray


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
