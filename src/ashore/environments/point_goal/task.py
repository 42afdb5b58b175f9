"""PointGoal2: reach goal after goal, keep out of hazards, leave the vases alone."""

from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ashore.budget import Budget
from ashore.environments.base import Field, TaskDescription
from ashore.environments.point_goal import rules, scene
from ashore.environments.point_goal.config import PRESETS, PointGoalConfig
from ashore.environments.point_goal.contact import rotation_about_z, rotation_of
from ashore.environments.point_goal.layout import draw_goal, draw_layout
from ashore.environments.point_goal.parameters import SHIFTS, PointGoalParameters
from ashore.environments.point_goal.physics import Bodies, Physics
from ashore.types import Array, Reset, StepResult

VASE_SINK = 4e-5  # Safety-Gymnasium: how far a free vase sinks into the soft floor


Terms = tuple[dict[str, Array], dict[str, Array]]
"""Named parts of the reward and of the cost."""


class PointGoalState(NamedTuple):
    """Everything that an episode of PointGoal2 needs to go on."""

    bodies: Bodies
    goal: Array
    hazards: Array
    key: Array
    """Source of new goals."""
    goals_reached: Array


class PointGoal:
    """The task in MJX. Two instances with the same config are equal, so that compiled programs are shared."""

    parameters_type = PointGoalParameters

    def __init__(self, config: PointGoalConfig | None = None) -> None:
        self.config = config or PRESETS["default"]
        self.description: TaskDescription = describe(self.config)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PointGoal) and other.config == self.config

    def __hash__(self) -> int:
        return hash((PointGoal, self.config))

    @cached_property
    def physics(self) -> Physics:
        # Often first asked for inside a trace; the model must still be made of real arrays.
        with jax.ensure_compile_time_eval():
            return Physics(self.config)

    def reset(self, key: Array, parameters: PointGoalParameters) -> Reset:
        """Draw a new scene; everything is at rest."""
        del parameters  # the scene does not depend on the robot's physics
        layout_key, turn_key, goal_key = jax.random.split(key, 3)
        layout = draw_layout(layout_key, self.config.goal_keepout)
        turns = jax.random.uniform(turn_key, (1 + scene.VASES,), jnp.float32, 0.0, 2.0 * jnp.pi)
        vases = self._vase_coordinates(layout.vases, turns[1:])
        qpos = jnp.concatenate([layout.robot, turns[:1], vases.reshape(-1)])
        velocities = scene.ROBOT_DOFS + scene.VASES * (3 if self.config.vases == "planar" else 6)
        at_rest = jnp.zeros(velocities, jnp.float32)
        bodies = Bodies(qpos, at_rest, at_rest)
        state = PointGoalState(bodies, layout.goal, layout.hazards, goal_key, jnp.int32(0))
        return Reset(state, self._observe(state))

    def step(self, state: PointGoalState, action: Array, parameters: PointGoalParameters) -> StepResult:
        """Hold one action for `action_repeat` env steps, each of which earns reward and may cost."""
        command = jnp.clip(action, -1.0, 1.0) * jnp.array([self.config.throttle_scale, 1.0], jnp.float32)

        def env_step(state: PointGoalState, _: None) -> tuple[PointGoalState, Terms]:
            return self._env_step(state, command, parameters)

        state, terms = jax.lax.scan(env_step, state, None, length=self.config.action_repeat)
        reward_terms, cost_terms = jax.tree.map(lambda part: jnp.sum(part, axis=0), terms)
        finite = jnp.all(jnp.isfinite(state.bodies.qpos)) & jnp.all(jnp.isfinite(state.bodies.qvel))
        return StepResult(
            state=state,
            observation=self._observe(state),
            reward=_total(reward_terms),
            cost=_total(cost_terms),
            reward_terms=reward_terms,
            cost_terms=cost_terms,
            terminated=jnp.bool_(False),
            diverged=~finite,
        )

    def identifiable(self, parameters: PointGoalParameters) -> dict[str, Array]:
        """Ratios that motion reveals: a heavier robot with a stronger motor moves just the same."""
        thrust = 0.3 + parameters.gear_x
        return {
            "thrust_per_mass": thrust / parameters.mass,
            "damping_per_mass": parameters.damping_xy / parameters.mass,
            "thrust_per_damping": thrust / parameters.damping_xy,
        }

    def episode_metrics(self, state: PointGoalState) -> dict[str, Array]:
        """Goals reached so far."""
        return {"goals_reached": state.goals_reached.astype(jnp.float32)}

    def _env_step(
        self, state: PointGoalState, command: Array, parameters: PointGoalParameters
    ) -> tuple[PointGoalState, Terms]:
        distance_before = _distance(state.bodies, state.goal)
        bodies = self.physics.env_step(state.bodies, command, parameters)
        distance_after = _distance(bodies, state.goal)
        reached = distance_after <= self.config.goal_distance
        reward_terms = rules.reward_terms(distance_before, distance_after, reached)
        positions, rotations, velocities = self._vases(bodies)
        cost_terms = rules.cost_terms(self.config, bodies.qpos[:3], state.hazards, positions, rotations, velocities)

        goal_key, key = jax.random.split(state.key)
        new_goal = draw_goal(goal_key, self.config.goal_keepout, bodies.qpos[:2], state.hazards, positions[:, :2])
        state = PointGoalState(
            bodies=bodies,
            goal=jnp.where(reached, new_goal, state.goal),
            hazards=state.hazards,
            key=key,
            goals_reached=state.goals_reached + reached.astype(jnp.int32),
        )
        return state, (reward_terms, cost_terms)

    def _observe(self, state: PointGoalState) -> Array:
        bodies = state.bodies
        readings = rules.sensors(bodies.qpos, bodies.qvel, bodies.qacc)
        vases = self._vases(bodies)[0][:, :2]
        return rules.observe(self.config, readings, bodies.qpos[:3], state.goal, state.hazards, vases)

    def _vase_coordinates(self, positions: Array, turns: Array) -> Array:
        if self.config.vases == "planar":
            return jnp.concatenate([positions, turns[:, None]], axis=1)
        zero = jnp.zeros_like(turns)
        height = jnp.full_like(turns, scene.VASE_HALF - VASE_SINK)
        upright = jnp.stack([height, jnp.cos(turns / 2), zero, zero, jnp.sin(turns / 2)], axis=1)
        return jnp.concatenate([positions, upright], axis=1)

    def _vases(self, bodies: Bodies) -> tuple[Array, Array, Array]:
        """Positions [vases, 3], rotations [vases, 3, 3] and linear velocities [vases, 2 or 3]."""
        coordinates = bodies.qpos[3:].reshape(scene.VASES, -1)
        if self.config.vases == "planar":
            height = jnp.full((scene.VASES, 1), scene.VASE_HALF, jnp.float32)
            positions = jnp.concatenate([coordinates[:, :2], height], axis=1)
            velocities = bodies.qvel[3:].reshape(scene.VASES, 3)[:, :2]
            return positions, jax.vmap(rotation_about_z)(coordinates[:, 2]), velocities
        velocities = bodies.qvel[3:].reshape(scene.VASES, 6)[:, :3]
        return coordinates[:, :3], jax.vmap(rotation_of)(coordinates[:, 3:]), velocities


def _total(terms: dict[str, Array]) -> Array:
    return jnp.sum(jnp.stack(list(terms.values())))


def _distance(bodies: Bodies, goal: Array) -> Array:
    return jnp.sqrt(jnp.sum((bodies.qpos[:2] - goal) ** 2))


def describe(config: PointGoalConfig) -> TaskDescription:
    """What a policy trained on this task needs to know, and whoever deploys it."""
    limit = config.cost_limit * config.decisions_per_episode * config.action_repeat / 1000.0
    return TaskDescription(
        name="PointGoal2",
        summary="A point robot drives to goal after goal between ten hazards and ten vases.",
        observation=rules.observation_fields(config),
        action=(Field("throttle", "1", -1.0, 1.0), Field("yaw_rate", "1", -1.0, 1.0)),
        action_map=(
            f"motor command = {config.throttle_scale:g} x throttle (the motor's force limit begins at 0.05); "
            "yaw servo command = yaw_rate"
        ),
        dynamics_features=rules.dynamics_features(config),
        shifts=SHIFTS,
        control_period=config.timestep * config.substeps * config.action_repeat,
        action_repeat=config.action_repeat,
        decisions_per_episode=config.decisions_per_episode,
        max_cost=float(config.action_repeat),
        budget=Budget(limit, config.decisions_per_episode),
    )
