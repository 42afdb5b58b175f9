"""Where things stand: scenes drawn by rejection, as Safety-Gymnasium draws them, in fixed time."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ashore.environments.point_goal import scene
from ashore.types import Array

ROBOT_KEEPOUT = 0.4  # Safety-Gymnasium's free space around each kind of object, in metres
HAZARD_KEEPOUT = 0.18
VASE_KEEPOUT = 0.15
# Safety-Gymnasium tries 100 times per object and 10,000 times per new goal, one after the other. Here a fixed number
# of candidates is drawn at once and the first valid one taken. At least 40 % of the floor is free for the last object
# of a scene (32 misses: 1e-7) but sometimes only a few per cent for a new goal.
_SCENE_CANDIDATES = 32
_GOAL_CANDIDATES = 256


class Layout(NamedTuple):
    """One scene: positions in metres, [.., 2]."""

    robot: Array
    goal: Array
    hazards: Array
    vases: Array


def keepouts(goal_keepout: float) -> np.ndarray:
    """Free space around each object, in the order of placement: robot, goal, hazards, vases."""
    per_kind = ((1, ROBOT_KEEPOUT), (1, goal_keepout), (scene.HAZARDS, HAZARD_KEEPOUT), (scene.VASES, VASE_KEEPOUT))
    return np.concatenate([np.full(count, keepout, np.float32) for count, keepout in per_kind])


def draw_layout(key: Array, goal_keepout: float) -> Layout:
    """Place robot, goal, hazards and vases in this order, each clear of those before it."""
    keepout = jnp.asarray(keepouts(goal_keepout))
    count = keepout.shape[0]
    reach = (scene.EXTENT - keepout)[:, None, None]
    candidates = jax.random.uniform(key, (count, _SCENE_CANDIDATES, 2), jnp.float32, -1.0, 1.0) * reach

    def place(placed: Array, index: Array) -> tuple[Array, None]:
        # Objects not yet placed lie far outside the floor and are in nobody's way.
        chosen = _first_clear(candidates[index], keepout[index], placed, keepout)
        return placed.at[index].set(chosen), None

    far_away = jnp.full((count, 2), 1e3, jnp.float32)
    placed, _ = jax.lax.scan(place, far_away, jnp.arange(count))
    return Layout(placed[0], placed[1], placed[2 : 2 + scene.HAZARDS], placed[2 + scene.HAZARDS :])


def draw_goal(key: Array, goal_keepout: float, robot: Array, hazards: Array, vases: Array) -> Array:
    """A new goal, clear of robot, hazards and vases as they stand now."""
    keepout = jnp.asarray(np.delete(keepouts(goal_keepout), 1))
    candidates = jax.random.uniform(key, (_GOAL_CANDIDATES, 2), jnp.float32, -1.0, 1.0) * (scene.EXTENT - goal_keepout)
    others = jnp.concatenate([robot[None, :], hazards, vases])
    return _first_clear(candidates, jnp.float32(goal_keepout), others, keepout)


def _first_clear(candidates: Array, own_keepout: Array, others: Array, other_keepouts: Array) -> Array:
    """The first candidate that is clear of all others; if none is, the one that comes nearest to it."""
    distance = jnp.sqrt(jnp.sum((candidates[:, None, :] - others[None, :, :]) ** 2, axis=2))
    clearance = jnp.min(distance - other_keepouts[None, :] - own_keepout, axis=1)
    # A clear candidate scores more than any other, an early one more than a late one.
    count = candidates.shape[0]
    score = jnp.where(clearance >= 0.0, jnp.arange(count, 0, -1, dtype=jnp.float32), clearance)
    return candidates[jnp.argmax(score)]
