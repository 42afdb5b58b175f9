"""PointGoal2 in C MuJoCo and NumPy: the same rules written a second time, for one world.

Where the batched task computes something in closed form (sensors aside), this one asks MuJoCo: contacts come from its
collision detection and every vase is in the model. That makes it the yardstick of the batched one.
"""

import math
from dataclasses import replace

import mujoco
import numpy as np

from ashore.environments.base import CStep, TaskDescription
from ashore.environments.point_goal import layout, rules, scene
from ashore.environments.point_goal.config import PointGoalConfig
from ashore.environments.point_goal.lidar import BINS, MAX_DISTANCE
from ashore.environments.point_goal.parameters import PointGoalParameters, into_c
from ashore.environments.point_goal.physics import servo_force, yaw_inertia
from ashore.environments.point_goal.picture import paint
from ashore.environments.point_goal.task import VASE_SINK, describe

_TRIES_PER_OBJECT = 100  # Safety-Gymnasium's numbers of attempts
_TRIES_PER_GOAL = 10_000
_REWARD_TERMS = ("progress", "goal")
_COST_TERMS = ("hazard", "vase_contact", "vase_motion")
_BROKEN = (mujoco.mjtWarning.mjWARN_BADQPOS, mujoco.mjtWarning.mjWARN_BADQVEL, mujoco.mjtWarning.mjWARN_BADQACC)


class PointGoalCWorld:
    """One world with fixed physical parameters."""

    def __init__(self, config: PointGoalConfig, parameters: PointGoalParameters) -> None:
        self.config = config
        # One world on a CPU can afford to let the solver finish.
        self.model = scene.build_model(replace(config, solver_iterations=100, line_search_iterations=50))
        self._yaw_inertia = yaw_inertia(self.model) * float(parameters.mass) ** config.inertia_power
        into_c(self.model, parameters, config)
        self.data = mujoco.MjData(self.model)
        self.description: TaskDescription = describe(config)
        self._sensor_low, self._sensor_high = self.description.observation_bounds
        names = [field.name for field in self.description.observation]
        self._lidars = {
            kind: [index for index, name in enumerate(names) if name.startswith(f"{kind}_lidar")]
            for kind in ("goal", "hazards", "vases", "obstacles")
        }
        self._robot_geoms = (self.model.geom("robot").id, self.model.geom("arrow").id)
        self.goal = np.zeros(2)
        self.hazards = np.zeros((scene.HAZARDS, 2))
        self.goals_reached = 0
        self._generator = np.random.default_rng()

    # --- the contract

    def reset(self, generator: np.random.Generator) -> np.ndarray:
        """Draw a new scene; everything is at rest."""
        self._generator = generator
        placed = self._draw_layout()
        turns = generator.uniform(0.0, 2.0 * np.pi, 1 + scene.VASES)
        mujoco.mj_resetData(self.model, self.data)
        self.goal, self.hazards = placed[1], placed[2 : 2 + scene.HAZARDS]
        self.data.qpos[:3] = (*placed[0], turns[0])
        vases = self.data.qpos[3:].reshape(scene.VASES, -1)
        vases[:, :2] = placed[2 + scene.HAZARDS :]
        if self.config.vases == "planar":
            vases[:, 2] = turns[1:]
        else:
            vases[:, 2] = scene.VASE_HALF - VASE_SINK
            vases[:, 3], vases[:, 6] = np.cos(turns[1:] / 2), np.sin(turns[1:] / 2)
        self.goals_reached = 0
        mujoco.mj_step1(self.model, self.data)
        return self.observe()

    def step(self, action: np.ndarray) -> CStep:
        """Hold one action for `action_repeat` env steps."""
        throttle, yaw_rate = float(action[0]) * self.config.throttle_scale, float(action[1])
        totals: dict[str, float] = dict.fromkeys(_REWARD_TERMS + _COST_TERMS, 0.0)
        for _ in range(self.config.action_repeat):
            before = self._goal_distance()
            self._env_step(throttle, yaw_rate)
            for name, value in {**self.reward_terms(before), **self.cost_terms()}.items():
                totals[name] += value
            if self._goal_distance() <= self.config.goal_distance:
                self.goals_reached += 1
                self.goal = self._draw_goal()
        reward_terms = {name: totals[name] for name in _REWARD_TERMS}
        cost_terms = {name: totals[name] for name in _COST_TERMS}
        return CStep(
            observation=self.observe(),
            reward=sum(reward_terms.values()),
            cost=sum(cost_terms.values()),
            reward_terms=reward_terms,
            cost_terms=cost_terms,
            terminated=False,
            diverged=self._diverged(),
        )

    def episode_metrics(self) -> dict[str, float]:
        """Goals reached so far."""
        return {"goals_reached": float(self.goals_reached)}

    def picture(self) -> np.ndarray:
        """The arena from above."""
        vases = self.data.qpos[3:].reshape(scene.VASES, -1)
        turns = vases[:, 2] if self.config.vases == "planar" else 2.0 * np.arctan2(vases[:, 6], vases[:, 3])
        observation = self.observe()
        rings = {kind: observation[where] for kind, where in self._lidars.items()}
        return paint(self.data.qpos[:3], self.goal, self.hazards, vases[:, :2], turns, rings)

    # --- the rules, a second time

    def _env_step(self, throttle: float, yaw_rate: float) -> None:
        model, data = self.model, self.data
        data.ctrl[0] = throttle
        for _ in range(self.config.substeps):
            data.ctrl[1] = yaw_rate
            if self.config.servo == "implicit":
                force = servo_force(
                    float(data.qvel[2]),
                    yaw_rate,
                    float(model.actuator_gear[1, 0]),
                    float(model.dof_damping[2]),
                    self._yaw_inertia,
                    self.config.timestep,
                )
                data.ctrl[1] = min(max(force, -scene.FORCE_LIMIT), scene.FORCE_LIMIT)
            # Second half first: afterwards positions, velocities and contacts are those of the new moment.
            mujoco.mj_step2(model, data)
            mujoco.mj_step1(model, data)

    def reward_terms(self, distance_before: float) -> dict[str, float]:
        """Progress since `distance_before`, and the bonus if the goal is reached."""
        distance = self._goal_distance()
        reached = distance <= self.config.goal_distance
        return {"progress": distance_before - distance, "goal": rules.GOAL_BONUS if reached else 0.0}

    def cost_terms(self) -> dict[str, float]:
        """Cost of this moment by cause."""
        velocities = self.data.qvel[3:].reshape(scene.VASES, -1)
        speeds = np.linalg.norm(velocities[:, : 2 if self.config.vases == "planar" else 3], axis=1)
        if self.config.cost_rule == "spidr":
            moving = float(np.linalg.norm(speeds)) > rules.SPIDR_SPEED_LIMIT
        else:
            moving = float(speeds.max()) >= rules.VASE_SPEED_LIMIT
        distances = np.linalg.norm(self.hazards - self.data.qpos[:2], axis=1)
        causes = {
            "hazard": float(distances.min()) <= scene.HAZARD_RADIUS,
            "vase_contact": self.touching(),
            "vase_motion": moving,
        }
        share = 1.0 / max(1, sum(causes.values()))
        return {name: share if holds else 0.0 for name, holds in causes.items()}

    def touching(self) -> bool:
        """Whether MuJoCo reports a contact between the robot and a vase (vases also touch the floor)."""
        return any(
            self.data.contact.geom[index, side] in self._robot_geoms
            for index in range(self.data.ncon)
            for side in (0, 1)
        )

    def observe(self) -> np.ndarray:
        """The observation, float32, clipped to its declared bounds."""
        data = self.data
        x, y, yaw = data.qpos[:3]
        to_robot = np.array([[math.cos(yaw), math.sin(yaw)], [-math.sin(yaw), math.cos(yaw)]])
        acceleration, velocity = to_robot @ data.qacc[:2], to_robot @ data.qvel[:2]
        magnet = to_robot @ np.array(scene.MAGNETIC_FIELD[:2])
        vases = data.qpos[3:].reshape(scene.VASES, -1)[:, :2]
        goal = _lidar(np.array([x, y]), yaw, self.goal[None, :])
        if self.config.observation == "spidr":
            obstacles = _lidar(np.array([x, y]), yaw, np.concatenate([vases, self.hazards]))
            parts = (obstacles, goal, acceleration, velocity, data.qvel[2:3], magnet)
        else:
            sensors = (acceleration, [scene.GRAVITY], velocity, [0.0, 0.0, 0.0, data.qvel[2]], magnet, [0.0])
            lidars = (goal, _lidar(np.array([x, y]), yaw, self.hazards), _lidar(np.array([x, y]), yaw, vases))
            parts = (*sensors, *lidars)
        return np.clip(np.concatenate(parts).astype(np.float32), self._sensor_low, self._sensor_high)

    def _diverged(self) -> bool:
        # C MuJoCo resets a world that left the finite numbers and only leaves a warning behind.
        warned = any(self.data.warning[kind].number > 0 for kind in _BROKEN)
        return warned or not (np.isfinite(self.data.qpos).all() and np.isfinite(self.data.qvel).all())

    def _goal_distance(self) -> float:
        return math.hypot(self.data.qpos[0] - self.goal[0], self.data.qpos[1] - self.goal[1])

    def _draw_layout(self) -> np.ndarray:
        keepouts = layout.keepouts(self.config.goal_keepout)
        while True:
            placed = np.zeros((len(keepouts), 2))
            for index, keepout in enumerate(keepouts):
                clear = self._try_to_place(float(keepout), placed[:index], keepouts[:index], _TRIES_PER_OBJECT)
                if clear is None:
                    break  # start this scene over, as Safety-Gymnasium does
                placed[index] = clear
            else:
                return placed

    def _draw_goal(self) -> np.ndarray:
        vases = self.data.qpos[3:].reshape(scene.VASES, -1)[:, :2]
        others = np.concatenate([self.data.qpos[None, :2], self.hazards, vases])
        keepouts = np.delete(layout.keepouts(self.config.goal_keepout), 1)
        goal = self._try_to_place(self.config.goal_keepout, others, keepouts, _TRIES_PER_GOAL)
        # A floor without room for a goal has not been seen; keeping the old one would hand out its bonus every step.
        return self._generator.uniform(-scene.EXTENT, scene.EXTENT, 2) if goal is None else goal

    def _try_to_place(
        self, keepout: float, others: np.ndarray, other_keepouts: np.ndarray, tries: int
    ) -> np.ndarray | None:
        reach = scene.EXTENT - keepout
        for _ in range(tries):
            candidate = self._generator.uniform(-reach, reach, 2)
            if np.all(np.linalg.norm(others - candidate, axis=1) >= other_keepouts + keepout):
                return candidate
        return None


def _lidar(position: np.ndarray, yaw: float, objects: np.ndarray) -> np.ndarray:
    reading = np.zeros(BINS)
    offset = objects - position
    closeness = np.maximum(0.0, MAX_DISTANCE - np.hypot(offset[:, 0], offset[:, 1])) / MAX_DISTANCE
    turn = np.mod(np.arctan2(offset[:, 1], offset[:, 0]) - yaw, 2.0 * np.pi) / (2.0 * np.pi / BINS)
    own = turn.astype(int) % BINS
    passed = turn - np.floor(turn)
    np.maximum.at(reading, own, closeness)
    np.maximum.at(reading, (own + 1) % BINS, passed * closeness)
    np.maximum.at(reading, (own - 1) % BINS, (1.0 - passed) * closeness)
    return reading
