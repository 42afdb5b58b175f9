"""The five physical parameters of PointGoal2, their ranges, and where they enter a model.

Ranges are the paper's table `tab:pointgoal2_params_ood`.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import mujoco
import numpy as np

from ashore.environments.mjx_engine import mjx
from ashore.environments.point_goal.config import PointGoalConfig
from ashore.environments.randomisation import Randomised, at_nominal, with_ranges

_ROBOT = 1  # body 0 is the world


class PointGoalParameters(NamedTuple):
    """What distinguishes one robot from another."""

    damping_xy: Any
    """Scale of the sliding joints' damping."""
    damping_z: Any
    """Scale of the yaw joint's damping."""
    gear_x: Any
    """Added to the drive's gear."""
    gear_z: Any
    """Added to the steering's gear."""
    mass: Any
    """Scale of mass and inertia."""


_TRAIN = (
    Randomised("damping_xy", "N s/m", 1.0, 0.6, 1.0, "scale"),
    Randomised("damping_z", "N m s/rad", 1.0, 0.7, 1.0, "scale"),
    Randomised("gear_x", "1", 0.0, 0.0, 0.2, "add"),
    Randomised("gear_z", "1", 0.0, 0.0, 0.1, "add"),
    Randomised("mass", "kg", 1.0, 0.5, 1.5, "scale"),
)


def _shift(
    damping_xy: tuple[float, float],
    damping_z: tuple[float, float],
    gear_x: tuple[float, float],
    gear_z: tuple[float, float],
    mass: tuple[float, float],
) -> tuple[Randomised, ...]:
    ranges = {"damping_xy": damping_xy, "damping_z": damping_z, "gear_x": gear_x, "gear_z": gear_z, "mass": mass}
    return with_ranges(_TRAIN, ranges)


SHIFTS = {
    "nominal": at_nominal(_TRAIN),
    "train": _TRAIN,
    "mild": _shift((0.7, 1.0), (0.8, 1.0), (0.0, 0.25), (0.0, 0.05), (0.8, 2.0)),
    "medium": _shift((0.5, 1.0), (0.7, 1.0), (0.0, 0.25), (0.0, 0.1), (0.5, 2.0)),
    "high": _shift((0.3, 1.3), (0.4, 1.5), (-0.2, 0.4), (-0.2, 0.3), (0.4, 2.0)),
}


def into_mjx(model: mjx.Model, parameters: PointGoalParameters, config: PointGoalConfig) -> mjx.Model:
    """The batched engine's model with these parameters in it; traceable."""
    inertia_scale = parameters.mass**config.inertia_power
    damping = jnp.stack([parameters.damping_xy, parameters.damping_xy, parameters.damping_z])
    return model.replace(
        dof_damping=model.dof_damping.at[:3].multiply(damping),
        actuator_gear=model.actuator_gear.at[jnp.arange(2), 0].add(jnp.stack([parameters.gear_x, parameters.gear_z])),
        body_mass=model.body_mass.at[_ROBOT].multiply(parameters.mass),
        body_subtreemass=model.body_subtreemass.at[_ROBOT].multiply(parameters.mass),
        body_inertia=model.body_inertia.at[_ROBOT].multiply(inertia_scale),
    )


def into_c(model: mujoco.MjModel, parameters: PointGoalParameters, config: PointGoalConfig) -> None:
    """Write these parameters into a freshly built C model, in place."""
    model.dof_damping[:3] *= np.array([parameters.damping_xy, parameters.damping_xy, parameters.damping_z])
    model.actuator_gear[:2, 0] += np.array([parameters.gear_x, parameters.gear_z])
    model.body_mass[_ROBOT] *= parameters.mass
    model.body_subtreemass[_ROBOT] *= parameters.mass
    model.body_inertia[_ROBOT] *= float(parameters.mass) ** config.inertia_power
