"""What PointGoal2 shows, rewards and charges, given where everything is."""

import jax.numpy as jnp
import numpy as np

from ashore.environments.base import Field
from ashore.environments.point_goal import scene
from ashore.environments.point_goal.config import PointGoalConfig
from ashore.environments.point_goal.contact import touched
from ashore.environments.point_goal.lidar import BINS, lidar
from ashore.types import Array

GOAL_BONUS = 1.0
VASE_SPEED_LIMIT = 1e-4  # Safety-Gymnasium: any one vase at this speed or more, in m/s
SPIDR_SPEED_LIMIT = 0.05  # SPiDR: the norm of all vase velocities together above this
# Sensors have no natural bounds; these are beyond what the widest parameter ranges reach, and readings are clipped.
_SENSOR_BOUNDS = {"accelerometer": 100.0, "velocimeter": 20.0, "gyro": 30.0, "magnetometer": 0.5}
_SENSOR_UNITS = {"accelerometer": "m/s^2", "velocimeter": "m/s", "gyro": "rad/s", "magnetometer": "1"}
_SENSORS_39 = (0, 1, 3, 4, 8, 9, 10)  # accelerometer xy, velocimeter xy, gyro z, magnetometer xy


def observation_fields(config: PointGoalConfig) -> tuple[Field, ...]:
    """Names, units and bounds of the observation, in its order."""
    sensors = tuple(
        Field(f"{sensor}_{axis}", _SENSOR_UNITS[sensor], -bound, bound)
        for sensor, bound in _SENSOR_BOUNDS.items()
        for axis in "xyz"
    )
    if config.observation == "spidr":
        return _lidar_fields("obstacles") + _lidar_fields("goal") + tuple(sensors[i] for i in _SENSORS_39)
    return sensors + _lidar_fields("goal") + _lidar_fields("hazards") + _lidar_fields("vases")


def _lidar_fields(target: str) -> tuple[Field, ...]:
    return tuple(Field(f"{target}_lidar_{index}", "1", 0.0, 1.0, closeness=True) for index in range(BINS))


def dynamics_features(config: PointGoalConfig) -> tuple[int, ...]:
    """Where the observation holds forward speed, sideways speed and yaw rate."""
    names = [field.name for field in observation_fields(config)]
    return tuple(names.index(name) for name in ("velocimeter_x", "velocimeter_y", "gyro_z"))


def sensors(qpos: Array, qvel: Array, qacc: Array) -> Array:
    """Accelerometer, velocimeter, gyro and magnetometer of the robot: [12].

    The robot's slide joints come before its yaw joint, so that its origin moves with the first two coordinates and
    turns with the third; the sensors follow in closed form.
    """
    cos, sin = jnp.cos(qpos[2]), jnp.sin(qpos[2])
    zero, gravity = jnp.zeros_like(cos), jnp.full_like(cos, scene.GRAVITY)
    field_x, field_y, field_z = (jnp.full_like(cos, part) for part in scene.MAGNETIC_FIELD)

    def in_robot_frame(x: Array, y: Array, z: Array) -> Array:
        return jnp.stack([cos * x + sin * y, cos * y - sin * x, z])

    return jnp.concatenate(
        [
            in_robot_frame(qacc[0], qacc[1], gravity),
            in_robot_frame(qvel[0], qvel[1], zero),
            jnp.stack([zero, zero, qvel[2]]),
            in_robot_frame(field_x, field_y, field_z),
        ]
    )


def observe(config: PointGoalConfig, readings: Array, robot: Array, goal: Array, hazards: Array, vases: Array) -> Array:
    """The observation from sensor readings [12], robot pose [3] and positions [.., 2]."""
    bound = np.repeat(np.array(list(_SENSOR_BOUNDS.values()), np.float32), 3)
    readings = jnp.clip(readings, -bound, bound)
    goal_lidar = lidar(robot[:2], robot[2], goal[None, :])
    if config.observation == "spidr":
        obstacle_lidar = lidar(robot[:2], robot[2], jnp.concatenate([vases, hazards]))
        return jnp.concatenate([obstacle_lidar, goal_lidar, readings[np.array(_SENSORS_39)]])
    hazard_lidar = lidar(robot[:2], robot[2], hazards)
    vase_lidar = lidar(robot[:2], robot[2], vases)
    return jnp.concatenate([readings, goal_lidar, hazard_lidar, vase_lidar])


def reward_terms(distance_before: Array, distance_after: Array, reached: Array) -> dict[str, Array]:
    """Progress towards the goal in metres, and a bonus on reaching it."""
    return {"progress": distance_before - distance_after, "goal": jnp.where(reached, GOAL_BONUS, 0.0)}


def cost_terms(
    config: PointGoalConfig,
    robot: Array,
    hazards: Array,
    vase_positions: Array,
    vase_rotations: Array,
    vase_velocities: Array,
) -> dict[str, Array]:
    """Cost of one env step: 1 if any cause holds; causes that hold together share it, so that the terms sum to it."""
    distance = jnp.sqrt(jnp.sum((hazards - robot[None, :2]) ** 2, axis=1))
    in_hazard = jnp.any(distance <= scene.HAZARD_RADIUS)
    touching = jnp.any(touched(robot[:2], robot[2], vase_positions, vase_rotations))
    if config.cost_rule == "spidr":
        moving = jnp.sqrt(jnp.sum(vase_velocities**2)) > SPIDR_SPEED_LIMIT
    else:
        moving = jnp.any(jnp.sqrt(jnp.sum(vase_velocities**2, axis=1)) >= VASE_SPEED_LIMIT)
    causes = jnp.stack([in_hazard, touching, moving]).astype(jnp.float32)
    shares = causes / jnp.maximum(jnp.sum(causes), 1.0)
    return {"hazard": shares[0], "vase_contact": shares[1], "vase_motion": shares[2]}
