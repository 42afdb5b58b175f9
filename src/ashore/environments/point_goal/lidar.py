"""Safety-Gymnasium's pseudo-lidar: how near the nearest object is in each of sixteen directions."""

import jax.numpy as jnp

from ashore.types import Array

BINS = 16
MAX_DISTANCE = 3.0
_BIN_SIZE = 2.0 * jnp.pi / BINS


def lidar(robot_position: Array, robot_yaw: Array, objects: Array) -> Array:
    """Closeness (1 on the robot, 0 at three metres and beyond) per bin, counted anticlockwise from straight ahead.

    An object fills the bin it lies in and, so that readings change smoothly, bleeds into both neighbours: into the
    next bin by the share of its own bin that it has passed, into the previous one by the rest.

    Args:
        robot_position: [2].
        robot_yaw: scalar.
        objects: [objects, 2], positions in the world.

    Returns:
        [16], in [0, 1].
    """
    offset = objects - robot_position[None, :]
    distance = jnp.sqrt(jnp.sum(offset**2, axis=1))
    closeness = jnp.maximum(0.0, MAX_DISTANCE - distance) / MAX_DISTANCE
    angle = jnp.mod(jnp.arctan2(offset[:, 1], offset[:, 0]) - robot_yaw, 2.0 * jnp.pi)
    # In float32 the remainder can round up to a full turn, which is bin 16 of 16.
    own = jnp.minimum(jnp.floor(angle / _BIN_SIZE).astype(jnp.int32), BINS - 1)
    passed = jnp.clip(angle / _BIN_SIZE - own.astype(jnp.float32), 0.0, 1.0)

    ahead = jnp.mod(jnp.arange(BINS, dtype=jnp.int32)[None, :] - own[:, None], BINS)
    share = jnp.where(ahead == 0, 1.0, 0.0)
    share = jnp.where(ahead == 1, passed[:, None], share)
    share = jnp.where(ahead == BINS - 1, 1.0 - passed[:, None], share)
    return jnp.max(share * closeness[:, None], axis=0)
