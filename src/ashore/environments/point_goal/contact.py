"""Which vases the robot touches, from positions alone.

MuJoCo reports contacts of the moment *before* a step; cost is charged for the moment after it, so the overlap of the
shapes is computed here directly.
"""

import jax
import jax.numpy as jnp

from ashore.environments.point_goal import scene
from ashore.types import Array

_PARALLEL = 1e-6  # keeps the nine edge-edge tests quiet where two edges are parallel and their cross product vanishes


def touched(robot_position: Array, robot_yaw: Array, vase_positions: Array, vase_rotations: Array) -> Array:
    """Whether ball or nose of the robot overlaps each vase.

    Args:
        robot_position: [2].
        robot_yaw: scalar.
        vase_positions: [vases, 3].
        vase_rotations: [vases, 3, 3], vase frame to world.

    Returns:
        [vases], bool.
    """
    height = jnp.full((1,), scene.ROBOT_HEIGHT, jnp.float32)
    ball = jnp.concatenate([robot_position, height])
    cos, sin = jnp.cos(robot_yaw), jnp.sin(robot_yaw)
    nose = ball + scene.ARROW_CENTRE * jnp.stack([cos, sin, jnp.zeros_like(cos)])
    nose_rotation = rotation_about_z(robot_yaw)
    hit_ball = jax.vmap(_ball_meets_box, in_axes=(None, 0, 0))(ball, vase_positions, vase_rotations)
    hit_nose = jax.vmap(_boxes_meet, in_axes=(None, None, 0, 0))(nose, nose_rotation, vase_positions, vase_rotations)
    return hit_ball | hit_nose


def rotation_about_z(angle: Array) -> Array:
    """Rotation matrix [3, 3] from a frame turned by `angle` to the world."""
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    zero, one = jnp.zeros_like(cos), jnp.ones_like(cos)
    return jnp.stack([jnp.stack([cos, -sin, zero]), jnp.stack([sin, cos, zero]), jnp.stack([zero, zero, one])])


def rotation_of(quaternion: Array) -> Array:
    """Rotation matrix [3, 3] of a unit quaternion (w, x, y, z)."""
    w, x, y, z = quaternion / jnp.sqrt(jnp.sum(quaternion**2))
    return jnp.stack(
        [
            jnp.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)]),
            jnp.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)]),
            jnp.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]),
        ]
    )


def _ball_meets_box(ball: Array, box: Array, rotation: Array) -> Array:
    local = rotation.T @ (ball - box)
    nearest = jnp.clip(local, -scene.VASE_HALF, scene.VASE_HALF)
    return jnp.sum((local - nearest) ** 2) < scene.ROBOT_RADIUS**2


def _boxes_meet(nose: Array, nose_rotation: Array, vase: Array, vase_rotation: Array) -> Array:
    """Separating-axis test for two cubes: no face normal of either and no cross product of edges separates them."""
    relative = nose_rotation.T @ vase_rotation
    absolute = jnp.abs(relative) + _PARALLEL
    offset = nose_rotation.T @ (vase - nose)
    nose_half, vase_half = jnp.float32(scene.ARROW_HALF), jnp.float32(scene.VASE_HALF)

    nose_faces = jnp.abs(offset) <= nose_half + vase_half * jnp.sum(absolute, axis=1)
    vase_faces = jnp.abs(relative.T @ offset) <= vase_half + nose_half * jnp.sum(absolute, axis=0)
    # Axis i of the nose x axis j of the vase: each cube reaches as far as its two other axes let it.
    row_next, row_after = jnp.roll(relative, -1, axis=0), jnp.roll(relative, -2, axis=0)
    along = jnp.roll(offset, -2)[:, None] * row_next - jnp.roll(offset, -1)[:, None] * row_after
    nose_reach = nose_half * (jnp.roll(absolute, -1, axis=0) + jnp.roll(absolute, -2, axis=0))
    vase_reach = vase_half * (jnp.roll(absolute, -1, axis=1) + jnp.roll(absolute, -2, axis=1))
    edges = jnp.abs(along) <= nose_reach + vase_reach
    return jnp.all(nose_faces) & jnp.all(vase_faces) & jnp.all(edges)
