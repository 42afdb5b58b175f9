"""The mean of all weights that a network has had, the later ones counting more.

With the step (p + 1) / (t + p) the t-th weights count in proportion to t (t + 1) ... (t + p - 1), about t^p: the mean
forgets where a run began without being told how long it will be (polynomial-decay averaging, Shamir and Zhang 2013,
"Stochastic gradient descent for non-smooth optimization").
"""

import jax

from ashore.networks.layers import Params
from ashore.types import Array


def include(exponent: float, count: Array, mean: Params, new: Params) -> Params:
    """The mean of `count` weights, of which `new` are the last and `mean` is that of the others.

    Args:
        exponent: p; 0 is the plain mean.
        count: from 1 on; the first weights are their own mean.
    """
    step = (exponent + 1.0) / (count + exponent)
    return jax.tree.map(lambda old, latest: old + step * (latest - old), mean, new)
