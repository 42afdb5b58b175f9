"""PointGoal2's dynamics in MJX: robot and vases over one env step.

Two decisions make this fast without changing what happens:

* The state is three small arrays, not an `mjx.Data`: everything else is derived, and what nobody reads is never
  computed or stored.
* Of the ten planar vases only those nearest to the robot are in the model. The others cannot be touched within one
  env step, and a vase nobody touches obeys a law that is known in closed form (`_slide_to_rest`).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from ashore.environments.mjx_engine import mjx, physics_step, put
from ashore.environments.point_goal import scene
from ashore.environments.point_goal.config import PointGoalConfig
from ashore.environments.point_goal.parameters import PointGoalParameters, into_mjx
from ashore.types import Array

Number = Any
"""A float or an array of either library."""


class Bodies(NamedTuple):
    """Generalised coordinates of the robot (first three) and of all vases."""

    qpos: Array
    qvel: Array
    qacc: Array
    """Of the last physics step: the accelerometer's source and the solver's starting point."""


class Physics:
    """One env step of the scene. Immutable after construction."""

    def __init__(self, config: PointGoalConfig) -> None:
        in_model = config.active_vases if config.vases == "planar" else scene.VASES
        c_model = scene.build_model(config, in_model)
        self.config = config
        self._model, self._data = put(c_model)
        self._yaw_inertia = yaw_inertia(c_model)
        self._rest_gain, self._rest_limit = _resting_law(c_model) if config.vases == "planar" else (0.0, 0.0)

    def env_step(self, bodies: Bodies, command: Array, parameters: PointGoalParameters) -> Bodies:
        """Advance by `substeps` physics steps under a constant command (throttle, yaw rate)."""
        model = into_mjx(self._model, parameters, self.config)
        if self.config.vases == "free" or self.config.active_vases == scene.VASES:
            return self._simulate(model, bodies, command, parameters)
        near = self._nearest(bodies)
        active = self._simulate(model, _gather(bodies, near), command, parameters)
        return _scatter(self._slide_to_rest(bodies), active, near)

    def _simulate(self, model: mjx.Model, bodies: Bodies, command: Array, parameters: PointGoalParameters) -> Bodies:
        def substep(bodies: Bodies, _: None) -> tuple[Bodies, None]:
            control = self._control(bodies, command, parameters)
            data = self._data.replace(qpos=bodies.qpos, qvel=bodies.qvel, qacc_warmstart=bodies.qacc, ctrl=control)
            data = physics_step(model, data)
            return Bodies(data.qpos, data.qvel, data.qacc), None

        return jax.lax.scan(substep, bodies, None, length=self.config.substeps, unroll=True)[0]

    def _control(self, bodies: Bodies, command: Array, parameters: PointGoalParameters) -> Array:
        if self.config.servo == "mujoco":
            return command
        force = servo_force(
            yaw_rate=bodies.qvel[2],
            target=command[1],
            gear=self._model.actuator_gear[1, 0] + parameters.gear_z,
            damping=self._model.dof_damping[2] * parameters.damping_z,
            inertia=self._yaw_inertia * parameters.mass**self.config.inertia_power,
            timestep=self.config.timestep,
        )
        return jnp.stack([command[0], jnp.clip(force, -scene.FORCE_LIMIT, scene.FORCE_LIMIT)])

    def _nearest(self, bodies: Bodies) -> Array:
        offset = bodies.qpos[3:].reshape(scene.VASES, scene.PLANAR_DOFS)[:, :2] - bodies.qpos[None, :2]
        return jax.lax.top_k(-jnp.sum(offset**2, axis=1), self.config.active_vases)[1]

    def _slide_to_rest(self, bodies: Bodies) -> Bodies:
        def substep(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
            qpos, qvel = carry
            qacc = jnp.clip(-self._rest_gain * qvel, -self._rest_limit, self._rest_limit)
            qvel = qvel + self.config.timestep * qacc
            return (qpos + self.config.timestep * qvel, qvel), None

        carry = (bodies.qpos, bodies.qvel)
        qpos, qvel = jax.lax.scan(substep, carry, None, length=self.config.substeps, unroll=True)[0]
        return Bodies(qpos, qvel, jnp.zeros_like(bodies.qacc))


def servo_force(
    yaw_rate: Number, target: Number, gear: Number, damping: Number, inertia: Number, timestep: float
) -> Number:
    """Force of the yaw servo, before its limit, from the yaw rate it will meet at the *end* of the time step.

    The servo's own time constant (inertia / gear^2, 0.3 ms) is far below any affordable time step, and MuJoCo's
    implicit integrators drop its derivative whenever the force is at its limit: at 0.01 s it then flips between its
    limits and the robot does not turn at all for most commands. Solving the one-dimensional implicit step here,
    limit included, gives the servo its true steady state at any time step.

    Works on NumPy and JAX values alike, so that both engines use one law.
    """
    resistance = inertia + timestep * damping
    coasting = yaw_rate * inertia / resistance
    return scene.SERVO_GAIN * (target - gear * coasting) / (1.0 + scene.SERVO_GAIN * gear**2 * timestep / resistance)


def yaw_inertia(model: mujoco.MjModel) -> float:
    """Inertia of the nominal robot about its yaw axis, kg m^2."""
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    mass_matrix = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, mass_matrix)
    return float(mass_matrix[2, 2])


def _resting_law(model: mujoco.MjModel) -> tuple[Array, Array]:
    """Gain and limit of the deceleration of an untouched vase, per coordinate of the whole state.

    For one joint with friction loss f, inertia I and nothing else acting, MuJoCo's constraint solution is
    a = clip(-b d v, -f/I, f/I): b = 2 / (dmax timeconst) is the reference damping and d = dmin the impedance at zero
    violation, with the time constant kept at two time steps or more.
    """
    solref, solimp = model.dof_solref[3], model.dof_solimp[3]
    timeconst = max(solref[0], 2 * model.opt.timestep)
    gain = 2.0 / (solimp[1] * timeconst) * solimp[0]
    inertia = np.array([scene.VASE_MASS, scene.VASE_MASS, model.body_inertia[2, 2]])
    limit = model.dof_frictionloss[3:6] / inertia
    limits = np.concatenate([np.zeros(scene.ROBOT_DOFS), np.tile(limit, scene.VASES)])
    return jnp.float32(gain), jnp.asarray(limits, jnp.float32)


def _slots(near: Array) -> Array:
    """Positions, in the full state, of the robot's and the active vases' coordinates."""
    dofs = scene.ROBOT_DOFS + scene.PLANAR_DOFS * near[:, None] + jnp.arange(scene.PLANAR_DOFS)[None, :]
    return jnp.concatenate([jnp.arange(scene.ROBOT_DOFS), dofs.reshape(-1)])


def _gather(bodies: Bodies, near: Array) -> Bodies:
    slots = _slots(near)
    return Bodies(*(part[slots] for part in bodies))


def _scatter(resting: Bodies, active: Bodies, near: Array) -> Bodies:
    slots = _slots(near)
    return Bodies(*(whole.at[slots].set(part) for whole, part in zip(resting, active, strict=True)))
