"""Does the encoder know its worlds? Looked up in the running collection, at no extra simulation."""

import jax
import numpy as np

from ashore.environments.base import Task
from ashore.learning.collect import Collector
from ashore.learning.evaluate import probe
from ashore.networks import encoder
from ashore.types import Parameters

MIN_CONTEXT = 64
"""Only worlds that have seen at least this many transitions of their running episode are asked."""
MIN_WORLDS = 32
"""Fewer worlds than this say nothing: half of them are fitted, half judged."""


def probe_worlds(task: Task, collector: Collector, parameters: Parameters) -> dict[str, float]:
    """R^2 of a linear probe from the posterior mean to each quantity the task declares identifiable.

    Args:
        task: declares the quantities.
        collector: of one seed.
        parameters: physical parameters of its worlds.

    Returns:
        `probe_<quantity>` by name; NaN while too few worlds have seen enough.
    """
    known = np.asarray(collector.posterior.count) >= MIN_CONTEXT
    means = np.asarray(jax.vmap(encoder.mean)(collector.posterior))[known]
    quantities = task.identifiable(parameters)
    enough = int(known.sum()) >= MIN_WORLDS
    return {
        f"probe_{name}": probe(means, np.asarray(values)[known]) if enough else float("nan")
        for name, values in quantities.items()
    }
