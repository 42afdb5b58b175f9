"""Delta_c(eta | N): what caution at level eta takes off the cost, given the belief after N transitions.

Nothing makes it positive: refinement changes one action and trusts the critics. It is measured, reported as it comes
out, and never assumed.
"""

import numpy as np

from ashore.calibration import conformal
from ashore.calibration.cost_sensitivity import paired_error
from ashore.calibration.latent_error import Table


def reductions(neutral: np.ndarray, careful: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """J_c(pi | z_N) - J_c(pi_eta | z_N) in the same scenes, and its standard error over episodes.

    Args:
        neutral: costs at eta = 0, [count, environment, episode].
        careful: costs at each eta, [count, eta, environment, episode].

    Returns:
        Two arrays [count, eta, environment].
    """
    assert careful.shape[0] == neutral.shape[0] and careful.shape[2:] == neutral.shape[1:], careful.shape
    paired = neutral[:, None] - careful
    return np.mean(paired, axis=3), paired_error(paired)


def table(reductions: np.ndarray, level: float) -> Table:
    """The reduction that an environment does not fall below at this level, [count, eta]."""
    value = np.array([[conformal.lower(row, level) for row in rows] for rows in reductions])
    spread = np.array([[conformal.standard_error(-row, level) for row in rows] for rows in reductions])
    return Table(value, spread)


def at_all_counts(measured: Table, measured_counts: tuple[int, ...], counts: tuple[int, ...]) -> Table:
    """A table for every count from one for some of them: in between, the smaller of the two neighbours."""
    places = np.asarray(measured_counts)
    below = np.clip(np.searchsorted(places, counts, side="right") - 1, 0, len(places) - 1)
    above = np.clip(np.searchsorted(places, counts, side="left"), 0, len(places) - 1)
    lower = measured.value[below] <= measured.value[above]
    return Table(*(np.where(lower, part[below], part[above]) for part in measured))
