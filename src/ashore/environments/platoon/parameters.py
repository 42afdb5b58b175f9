"""What differs between one ego car and the next: declared ranges, and how they enter the model."""

from types import ModuleType
from typing import Any, NamedTuple

import jax.numpy as jnp
import mujoco

from ashore.environments.platoon.scene import EGO_BODY, EGO_JOINT
from ashore.environments.randomisation import Randomised, at_nominal, leaves_training, with_ranges

# The calibrated defaults of the paper (caption of its table of platoon physics).
MASS = 1000.0
DRAG_COEFFICIENT = 0.3
DRIVE_FORCE = 5000.0
BRAKE_FORCE = 18000.0
LAG = 0.4
TYRE_FRICTION = 2.0

# Ours, since the paper gives none: air at 15 degrees C, frontal area and rolling resistance of a small car on asphalt.
AIR_DENSITY = 1.225
FRONTAL_AREA = 2.2
ROLLING_RESISTANCE = 0.015
ROLLING_SPEED = 0.1
"""Speed in m/s over which rolling resistance builds up, so that it vanishes smoothly at rest."""
GRAVITY = 9.81


Number = Any
"""A scalar of JAX or NumPy, or a float: the same formulas serve the batched task and the C world."""


class PlatoonParameters(NamedTuple):
    """Scale factors on the ego car's defaults; 1 is the nominal car."""

    mass: Number
    drag: Number
    drive: Number
    brake: Number
    inertia: Number
    friction: Number


class Vehicle(NamedTuple):
    """The ego car in physical units, as it follows from the scale factors."""

    mass: Number
    """kg."""
    drag: Number
    """Air resistance per squared speed, N / (m/s)^2."""
    drive: Number
    """Force at full throttle, N."""
    brake: Number
    """Force at full braking, N, positive."""
    lag: Number
    """Time constant of drive and brake force, s."""
    grip: Number
    """Largest force the tyres pass to the road, N."""


ROWS = (
    Randomised("mass", "kg", 1.0, 1.0, 1.0, "scale"),
    Randomised("drag", "1", 1.0, 1.0, 1.0, "scale"),
    Randomised("drive", "N", 1.0, 1.0, 1.0, "scale"),
    Randomised("brake", "N", 1.0, 1.0, 1.0, "scale"),
    Randomised("inertia", "s", 1.0, 1.0, 1.0, "scale"),
    Randomised("friction", "1", 1.0, 1.0, 1.0, "scale"),
)

TRAIN_RANGES = {
    "mass": (0.9, 1.1),
    "drag": (0.3, 0.5),
    "drive": (1.5, 2.0),
    "brake": (0.5, 1.0),
    "inertia": (1.0, 1.5),
    "friction": (0.5, 1.0),
}
DEPLOY_RANGES = {
    "mass": (0.8, 1.2),
    "drag": (0.3, 0.6),
    "drive": (1.5, 2.5),
    "brake": (0.2, 0.5),
    "inertia": (1.0, 2.0),
    "friction": (0.3, 0.8),
}

SHIFTS = {
    "nominal": at_nominal(ROWS),
    "train": with_ranges(ROWS, TRAIN_RANGES),
    "deploy": with_ranges(ROWS, DEPLOY_RANGES),
}


def shift_warnings() -> list[str]:
    """What a reader of the paper's ranges should know before comparing shifts, one sentence each."""
    outside = "; ".join(leaves_training(SHIFTS["train"], SHIFTS["nominal"]))
    touching = [
        f"{train.name} of Train [{train.low:g}, {train.high:g}] and Deploy [{deploy.low:g}, {deploy.high:g}] only touch"
        for train, deploy in zip(SHIFTS["train"], SHIFTS["deploy"], strict=True)
        if train.low == deploy.high or train.high == deploy.low
    ]
    return [f"The nominal car is not a training car: {outside}.", f"The shifts barely meet: {'; '.join(touching)}."]


def vehicle(parameters: PlatoonParameters) -> Vehicle:
    """The car that a set of scale factors describes; JAX and NumPy scalars alike."""
    return Vehicle(
        mass=MASS * parameters.mass,
        drag=0.5 * AIR_DENSITY * DRAG_COEFFICIENT * FRONTAL_AREA * parameters.drag,
        drive=DRIVE_FORCE * parameters.drive,
        brake=BRAKE_FORCE * parameters.brake,
        lag=LAG * parameters.inertia,
        grip=TYRE_FRICTION * MASS * GRAVITY * parameters.friction * parameters.mass,
    )


def resistance(car: Vehicle, speed: Number, xp: ModuleType = jnp) -> Number:
    """Air and rolling resistance of the ego in N, at a speed in m/s that is not negative; `xp` is the array library."""
    rolling = ROLLING_RESISTANCE * GRAVITY * car.mass * xp.tanh(speed / ROLLING_SPEED)
    return car.drag * xp.square(speed) + rolling


def write_c(model: mujoco.MjModel, car: Vehicle) -> None:
    """Make this car the ego of a C model, in place."""
    model.body_mass[EGO_BODY] = car.mass
    model.actuator_gainprm[0, 0] = car.drive
    model.actuator_gainprm[1, 0] = -car.brake
    model.actuator_dynprm[:, 0] = car.lag
    model.jnt_actfrcrange[EGO_JOINT] = (-car.grip, car.grip)
    # The engine derives subtree masses and inverse weights from the masses when told to.
    mujoco.mj_setConst(model, mujoco.MjData(model))
