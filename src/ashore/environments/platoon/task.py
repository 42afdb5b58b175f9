"""The platoon in JAX: a car among human drivers learns to damp the oscillations of traffic ahead of it.

Cars on a straight road do not touch: to MuJoCo they are slide joints that share nothing, and its step is a handful of
formulas. They are written out here, which is ten times as fast as asking MJX and can be differentiated at twice the
cost of a step; `c_world` steps the model itself, and the tests hold the two against each other.
"""

import functools
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ashore.environments.base import TaskDescription
from ashore.environments.platoon import car_following, metrics, rules
from ashore.environments.platoon.config import PRESETS, PlatoonConfig, describe
from ashore.environments.platoon.parameters import (
    GRAVITY,
    TYRE_FRICTION,
    PlatoonParameters,
    Vehicle,
    resistance,
    vehicle,
)
from ashore.environments.platoon.scene import CAR_LENGTH, EGO, FOLLOW, LEAD, LEADER
from ashore.types import Array, Reset, StepResult


class PlatoonState(NamedTuple):
    """A platoon between two decisions; cars are ordered from the front."""

    position: Array
    """Centres of the cars along the road, m, [cars]. The ego is the origin after every decision: a platoon that has
    driven a kilometre would otherwise lose its millimetres to float32."""
    speed: Array
    """m/s, [cars]."""
    acceleration: Array
    """In the last physics step, m/s^2, [cars]; zero at the start. Not the mean over the decision: that would hide half
    of the force that the pedal has built up, and with it most of what the next step depends on."""
    activation: Array
    """Shares of drive and brake force that have built up, [2]."""
    window: Array
    """Which window of the drive cycles the leader replays, int32."""
    decision: Array
    """Decisions taken, int32."""
    totals: metrics.Totals


class _Motion(NamedTuple):
    """The part of a state that physics moves."""

    position: Array
    speed: Array
    acceleration: Array
    activation: Array


class _Assets(NamedTuple):
    leader_speed: np.ndarray
    """All cycles one after the other, sampled at the control period, float32."""
    window_start: np.ndarray
    """Where each window begins in `leader_speed`, int32."""


def _assets(config: PlatoonConfig) -> _Assets:
    traces, period = config.traces(), config.control_period
    samples = [cycle.at(np.arange(0.0, cycle.duration + period, period)) for cycle in traces.cycles]
    offsets = np.concatenate([[0], np.cumsum([len(sample) for sample in samples])])
    starts = [offsets[window.cycle] + round(window.start / period) for window in traces.windows]
    return _Assets(np.concatenate(samples).astype(np.float32), np.array(starts, np.int32))


@dataclass(frozen=True)
class Platoon:
    """The platoon task; equal configurations are equal tasks, so one compiled program serves them."""

    config: PlatoonConfig = PRESETS["P-train"]
    description: TaskDescription = field(init=False, repr=False, compare=False)
    _assets: _Assets = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "description", describe(self.config))
        object.__setattr__(self, "_assets", _assets(self.config))

    @property
    def parameters_type(self) -> type[PlatoonParameters]:
        """Scale factors on the ego car's defaults."""
        return PlatoonParameters

    def reset(self, key: Array, parameters: PlatoonParameters) -> Reset:
        """Put the platoon on the road behind a leader that begins a random window of the drive cycles."""
        window = jax.random.randint(key, (), 0, len(self._assets.window_start), jnp.int32)
        leader_speed = self._leader_speed(window, jnp.zeros((), jnp.int32))
        driver = self.config.driver
        # A leader faster than human drivers ever go leaves the platoon behind instead of starting it with a brake.
        steady = jnp.minimum(leader_speed, car_following.cruise_speed(driver))
        if self.config.starting_gap == "equilibrium":
            gap = car_following.equilibrium_gap(driver, steady)
        else:
            gap = jnp.full((), self.config.starting_gap, jnp.float32)
        place = jnp.arange(self.config.cars, dtype=jnp.float32) - EGO
        speed = jnp.full(self.config.cars, steady).at[LEADER].set(leader_speed)
        still = jnp.zeros(self.config.cars, jnp.float32)
        car = vehicle(parameters)
        holding = jnp.minimum(resistance(car, steady) / car.drive, 1.0)
        position = -place * (gap + CAR_LENGTH)
        moment = _moment(position, speed, still, still)
        state = PlatoonState(
            position=position,
            speed=speed,
            acceleration=still,
            activation=jnp.stack([holding, jnp.zeros_like(holding)]),
            window=window,
            decision=jnp.zeros((), jnp.int32),
            totals=metrics.begin(moment),
        )
        return Reset(state, rules.observation(moment))

    def step(self, state: PlatoonState, action: Array, parameters: PlatoonParameters) -> StepResult:
        """Hold the pedal for one control period; collisions cost, but do not end the episode."""
        if action.shape != (1,):
            raise ValueError(f"A platoon action has shape (1,), not {action.shape}.")
        period = self.config.control_period
        position, speed, acceleration, activation = self._drive(state, action[0], parameters)
        moment = _moment(position, speed, acceleration, (acceleration - state.acceleration) / period)
        next_state = PlatoonState(
            position=position - position[EGO],
            speed=speed,
            acceleration=acceleration,
            activation=activation,
            window=state.window,
            decision=state.decision + 1,
            # Figures for reports: nobody asks for their derivative, which would be carried along for ever.
            totals=jax.lax.stop_gradient(metrics.add(state.totals, moment, period)),
        )
        reward_terms = rules.reward_terms(self.config, moment)
        cost_terms = rules.cost_terms(self.config, moment)
        return StepResult(
            state=next_state,
            observation=rules.observation(moment),
            reward=functools.reduce(jnp.add, reward_terms.values()),
            cost=functools.reduce(jnp.add, cost_terms.values()),
            reward_terms=reward_terms,
            cost_terms=cost_terms,
            terminated=jnp.zeros((), bool),
            diverged=~(jnp.isfinite(position).all() & jnp.isfinite(speed).all()),
        )

    def identifiable(self, parameters: PlatoonParameters) -> dict[str, Array]:
        """What motion reveals: forces per mass, the lag, and the deceleration at which tyres slip. No mass alone."""
        car = vehicle(parameters)
        return {
            "drive_per_mass": car.drive / car.mass,
            "brake_per_mass": car.brake / car.mass,
            "drag_per_mass": car.drag / car.mass,
            "lag": car.lag,
            "grip": TYRE_FRICTION * GRAVITY * parameters.friction,
        }

    def episode_metrics(self, state: PlatoonState) -> dict[str, Array]:
        """Oscillation ratio, jerk integrals, fuel, collisions, nearest gap and mean speed so far."""
        return metrics.summarise(state.totals)

    def _leader_speed(self, window: Array, decision: Array) -> Array:
        # Past the window's end the leader keeps its last speed instead of running into the next cycle.
        index = jnp.asarray(self._assets.window_start)[window] + jnp.minimum(decision, self.config.decisions)
        return jnp.asarray(self._assets.leader_speed)[index]

    def _drive(self, state: PlatoonState, pedal: Array, parameters: PlatoonParameters) -> _Motion:
        """The cars one control period later."""
        config, car = self.config, vehicle(parameters)
        pedal = jnp.clip(pedal, -1.0, 1.0)
        control = jnp.stack([jnp.maximum(pedal, 0.0), jnp.maximum(-pedal, 0.0)])
        begin = self._leader_speed(state.window, state.decision)
        end = self._leader_speed(state.window, state.decision + 1)
        motion = _Motion(state.position, state.speed, state.acceleration, state.activation)
        # Five steps written out one after the other: a loop costs more than what is in it.
        for number in range(1, config.substeps + 1):
            leader_speed = begin + number / config.substeps * (end - begin)
            motion = _physics_step(config, car, motion, control, leader_speed)
        return motion


def _physics_step(config: PlatoonConfig, car: Vehicle, motion: _Motion, control: Array, leader_speed: Array) -> _Motion:
    """What MuJoCo's semi-implicit Euler step does to the model of `scene`: forces, speeds, positions, then the lag."""
    position, speed, _, activation = motion
    step = config.timestep
    acceleration = _accelerations(config, car, motion)
    moved = speed + step * acceleration
    # Brakes stop a car and do not drive it backwards: it stays where it was when its speed reached zero.
    stopped = moved < 0
    leader_position = position[LEADER] + step * 0.5 * (speed[LEADER] + leader_speed)
    leader_acceleration = (leader_speed - speed[LEADER]) / step
    return _Motion(
        jnp.where(stopped, position, position + step * moved).at[LEADER].set(leader_position),
        jnp.where(stopped, 0.0, moved).at[LEADER].set(leader_speed),
        jnp.where(stopped, -speed / step, acceleration).at[LEADER].set(leader_acceleration),
        # `filterexact`: the lag's own solution over one step.
        activation + (control - activation) * -jnp.expm1(-step / car.lag),
    )


def _accelerations(config: PlatoonConfig, car: Vehicle, motion: _Motion) -> Array:
    """Of all cars, [cars]: human drivers do what they wish, the ego what its tyres hold. The leader's is not used."""
    position, speed, _, (drive, brake) = motion
    gap = position[:-1] - position[1:] - CAR_LENGTH
    human = car_following.acceleration(config.driver, gap, speed[1:], speed[:-1])
    pedals = jnp.clip(drive * car.drive - brake * car.brake, -car.grip, car.grip)
    ego = (pedals - resistance(car, speed[EGO])) / car.mass
    return jnp.concatenate([jnp.zeros(1, jnp.float32), human]).at[EGO].set(ego)


def _moment(position: Array, speed: Array, acceleration: Array, jerk: Array) -> rules.Moment:
    return rules.Moment(
        ego_speed=speed[EGO],
        ego_acceleration=acceleration[EGO],
        ego_jerk=jerk[EGO],
        lead_speed=speed[LEAD],
        lead_acceleration=acceleration[LEAD],
        lead_jerk=jerk[LEAD],
        lead_gap=position[LEAD] - position[EGO] - CAR_LENGTH,
        follow_speed=speed[FOLLOW],
        follow_gap=position[EGO] - position[FOLLOW] - CAR_LENGTH,
    )
