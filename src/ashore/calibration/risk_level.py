"""The risk level of a deployment on the device: by the number of transitions, or by what is believed as well.

The second is what `ashore_runtime.world_levels` computes, in float32 and for many worlds at once.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from ashore.types import Array
from ashore_runtime.schema import WorldCalibration
from ashore_runtime.world_levels import WorldLevels


class WorldTable(NamedTuple):
    """eta(N, z), ready to be read."""

    etas: Array
    """[eta]."""
    slope: Array
    """[count, eta, latent]."""
    room: Array
    """What slope . z may reach, [count, eta]."""
    low: Array
    """[latent]."""
    high: Array
    start: Array
    """eta(0, 0)."""
    outside: Array
    """The least that a belief outside [low, high] gets."""


Levels = Array | WorldTable
"""A risk level per count, [count], or the table of a rule that looks at the belief as well."""
Schedule = np.ndarray | WorldCalibration
"""The same on the host."""


def on_device(schedule: Schedule) -> Levels:
    """The schedule as `level_at` reads it; other numbers in the same shapes are no other program."""
    if not isinstance(schedule, WorldCalibration):
        return jnp.asarray(schedule, jnp.float32)
    ready = WorldLevels(schedule)
    parts = (ready.etas, ready.slope, ready.room, ready.low, ready.high, ready.start[0], ready.outside[0])
    return WorldTable(*(jnp.asarray(np.asarray(part, np.float32)) for part in parts))


def throughout(etas: tuple[float, ...], counts: int, latent: int, place: int) -> WorldTable:
    """One level of the grid whatever is seen, in the shapes of a world table: one program serves both."""
    open_to = np.where(np.arange(len(etas)) == place, np.inf, -np.inf)
    parts = (
        etas,
        np.zeros((counts, len(etas), latent)),
        np.tile(open_to, (counts, 1)),
        np.full(latent, -np.inf),
        np.full(latent, np.inf),
        etas[place],
        etas[place],
    )
    return WorldTable(*(jnp.asarray(np.asarray(part, np.float32)) for part in parts))


def level_at(counts: tuple[int, ...], levels: Levels, seen: Array, latent: Array) -> Array:
    """Risk level of a world that has seen so many transitions: the entry of the largest count not above it.

    Between two counts the level is held and not interpolated: caution is given up when a count is reached, not before.

    Args:
        latent: mean of what is believed; looked at only by a world table.
    """
    reached = jnp.sum((jnp.asarray(counts, jnp.int32) <= seen).astype(jnp.int32)) - 1
    if not isinstance(levels, WorldTable):
        return levels[reached]
    # A sum and not a product of matrices, which a GPU may round to ten bits.
    over = jnp.sum(levels.slope[reached] * latent[None], axis=1) - levels.room[reached]
    enough = over <= 0.0
    own = levels.etas[jnp.where(jnp.any(enough), jnp.argmax(enough), jnp.argmin(over))]
    inside = jnp.all((latent >= levels.low) & (latent <= levels.high))
    return jnp.where(inside, own, jnp.maximum(own, levels.outside))


def careful_start(levels: Levels) -> Array:
    """Risk level before any transition."""
    return levels.start if isinstance(levels, WorldTable) else levels[0]
