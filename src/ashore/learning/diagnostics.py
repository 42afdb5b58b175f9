"""Does the encoder know its worlds? Looked up in what was collected anyway, at no extra simulation."""

import jax
import jax.numpy as jnp
import numpy as np

from ashore.environments.base import Task
from ashore.learning import normalisation
from ashore.learning.collect import Collector
from ashore.learning.evaluate import probe
from ashore.learning.normalisation import Normalisers
from ashore.learning.replay import ReplayState
from ashore.networks import encoder
from ashore.networks.architecture import Architecture
from ashore.networks.layers import Params
from ashore.types import Array, Parameters

MIN_CONTEXT = 64
"""Only worlds that have seen at least this many transitions of their running episode are asked."""
MIN_WORLDS = 32
"""Fewer worlds than this say nothing: half of them are fitted, half judged."""


ASKED_AFTER = (0, 1, 4, 16, 64)
"""Numbers of transitions N at which the error of the latent is logged."""
ASKED_TASKS = 256
"""Tasks it is averaged over: the first ones, whose parameters are as random as any."""


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


def latent_errors(
    nets: Architecture, params: Params, normalisers: Normalisers, replay: ReplayState
) -> dict[str, Array]:
    """The curve epsilon(N): how far the latent is, after N consecutive transitions, from where M of them bring it.

    Judged on the last M decisions of the replay, by the encoder as it is now. A curve that does not fall says that
    transitions teach nothing; one that starts at zero says that the posterior does not leave the prior.

    Returns:
        `latent_error_<N>` by name, the mean distance over tasks.
    """
    capacity = replay.valid.shape[1]
    length = min(nets.sizes.context, capacity)
    tasks = slice(0, min(ASKED_TASKS, replay.valid.shape[0]))
    # Oldest first, as a deployed policy meets them.
    where = (replay.cursor - length + jnp.arange(length, dtype=jnp.int32)) % capacity
    stored = jax.tree.map(lambda ring: ring[tasks][:, where].astype(jnp.float32), replay.experience)
    valid = replay.valid[tasks][:, where]
    index = jnp.asarray(nets.features, jnp.int32)

    def one_task(observation: Array, action: Array, change: Array, reward: Array, cost: Array, valid: Array) -> Array:
        def opinion(observation: Array, *rest: Array) -> encoder.Factor:
            row = normalisation.encoder_input(normalisers, nets.features, observation[index], *rest)
            return encoder.factor(nets.encoder, params["encoder"], row)

        factors = jax.vmap(opinion)(observation, action, change, reward, cost)
        end = encoder.mean(encoder.combine(factors, valid))
        order = jnp.arange(length)
        after = [encoder.mean(encoder.combine(factors, valid & (order < count))) for count in ASKED_AFTER]
        return jnp.stack([jnp.linalg.norm(mean - end) for mean in after])

    fields = (stored.observation, stored.action, stored.change, stored.reward, stored.cost)
    errors = jnp.mean(jax.vmap(one_task)(*fields, valid), axis=0)
    return {f"latent_error_{count}": errors[place] for place, count in enumerate(ASKED_AFTER)}
