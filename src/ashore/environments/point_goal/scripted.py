"""A hand-written driver: steers at the goal, slows down near hazards and vases. Not safe, but it gets there."""

import numpy as np

from ashore.environments.base import TaskDescription
from ashore.environments.point_goal.lidar import BINS

_SWERVE_AT = 0.8  # closeness: 0.6 m
_SLOW_AT = 0.85  # 0.45 m


class ScriptedDriver:
    """Maps an observation to an action from the lidars alone."""

    def __init__(self, description: TaskDescription) -> None:
        names = [field.name for field in description.observation]
        self._goal = np.array([index for index, name in enumerate(names) if name.startswith("goal_lidar")])
        blocking = ("hazards_lidar", "vases_lidar", "obstacles_lidar")
        self._blocking = [
            np.array([index for index, name in enumerate(names) if name.startswith(kind)]) for kind in blocking
        ]

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Throttle and yaw rate for this sight."""
        bearing = self._bearing(observation[self._goal])
        obstacles = np.max([observation[index] for index in self._blocking if index.size], axis=0)
        left, right = obstacles[:3].max(), obstacles[-3:].max()
        near = max(left, right)
        swerve = 0.0 if near < _SWERVE_AT else 0.8 * np.sign(right - left)
        yaw_rate = np.clip(1.2 * bearing + swerve, -1.0, 1.0)
        throttle = max(0.0, np.cos(bearing)) * (0.6 if near < _SLOW_AT else 0.3)
        return np.array([throttle, yaw_rate], np.float32)

    @staticmethod
    def _bearing(reading: np.ndarray) -> float:
        """Direction of the one goal, in (-pi, pi]: the fullest bin plus the share that bled into the next one."""
        own = int(np.argmax(reading))
        if reading[own] <= 0.0:
            return np.pi / 2  # beyond the lidar's reach: keep turning
        passed = reading[(own + 1) % BINS] / reading[own]
        angle = (own + passed) * 2.0 * np.pi / BINS
        return float((angle + np.pi) % (2.0 * np.pi) - np.pi)
