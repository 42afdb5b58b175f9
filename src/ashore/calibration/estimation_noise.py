"""Taking the noise of measurement out of the spread between worlds.

A world's cost is estimated from a few episodes. The estimates spread more than the worlds do, and a high quantile of
them is as much a quantile of luck. Of the variance v of the estimates over worlds, n (their mean squared standard
error) is noise. Drawn towards their mean by sqrt(1 - n / v), the estimates spread as the worlds do:

    x' = mean + sqrt(max(0, 1 - n / v)) (x - mean)

The quantiles of x' are right if worlds and noise have the same shape of distribution, and only approximately conformal.
Whoever wants the promise rather than the better guess leaves the noise in.
"""

import numpy as np


def removed(estimates: np.ndarray, standard_errors: np.ndarray) -> np.ndarray:
    """Estimates that spread over the last axis, [..., world], as the worlds do.

    Args:
        standard_errors: of each estimate; where they are unknown (one episode) nothing is removed.
    """
    assert estimates.shape == standard_errors.shape, (estimates.shape, standard_errors.shape)
    mean = estimates.mean(axis=-1, keepdims=True)
    variance = estimates.var(axis=-1, ddof=1, keepdims=True)
    noise = np.mean(np.square(standard_errors), axis=-1, keepdims=True)
    known = np.isfinite(noise) & (variance > 0.0)
    share = np.where(known, noise, 0.0) / np.where(known, variance, 1.0)
    return mean + np.sqrt(np.maximum(0.0, 1.0 - share)) * (estimates - mean)
