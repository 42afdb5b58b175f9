"""The platoon in C MuJoCo: one world at a time, for Gymnasium, videos, and checks of the MJX version."""

import math

import mujoco
import numpy as np

from ashore.environments.base import CStep, TaskDescription
from ashore.environments.platoon import c_rules, picture, scene
from ashore.environments.platoon.config import PRESETS, PlatoonConfig, describe
from ashore.environments.platoon.parameters import (
    GRAVITY,
    ROLLING_RESISTANCE,
    ROLLING_SPEED,
    SHIFTS,
    PlatoonParameters,
    Vehicle,
    vehicle,
    write_c,
)
from ashore.environments.platoon.scene import CAR_LENGTH, EGO, FOLLOW, LEAD, LEADER

_BROKEN = (mujoco.mjtWarning.mjWARN_BADQPOS, mujoco.mjtWarning.mjWARN_BADQVEL, mujoco.mjtWarning.mjWARN_BADQACC)


class PlatoonCWorld:
    """One platoon; implements `CWorld`."""

    def __init__(self, config: PlatoonConfig | None = None, parameters: PlatoonParameters | None = None) -> None:
        """A world that nobody has reset yet.

        Args:
            config: the task; the default one if left out.
            parameters: scale factors of the ego car; the nominal car if left out.
        """
        self.config = config or PRESETS["P-train"]
        self.description: TaskDescription = describe(self.config)
        self.traces = self.config.traces()
        nominal = PlatoonParameters(**{row.name: row.nominal for row in SHIFTS["nominal"]})
        chosen = nominal if parameters is None else parameters
        self._car: Vehicle = vehicle(PlatoonParameters(*(float(value) for value in chosen)))
        self._model = scene.build(self.config.cars, self.config.timestep)
        write_c(self._model, self._car)
        self._data = mujoco.MjData(self._model)
        self._human_mass = self._model.body_mass[1:].tolist()

    @property
    def position(self) -> np.ndarray:
        """Centres of the cars along the road since the start, m."""
        return self._data.qpos.copy()

    @property
    def speed(self) -> np.ndarray:
        """Speeds of the cars, m/s."""
        return self._data.qvel.copy()

    def reset(self, generator: np.random.Generator) -> np.ndarray:
        """Start behind a leader that begins a random window of the drive cycles."""
        return self.start(int(generator.integers(len(self.traces.windows))))

    def start(self, window: int) -> np.ndarray:
        """Start behind a leader that begins a given window of `traces`."""
        config = self.config
        times = config.timestep * np.arange(config.decisions * config.substeps + 1)
        self._leader_speed = self.traces.speeds(window, times).tolist()
        speed, gap = c_rules.equilibrium(config, self._leader_speed[0])
        mujoco.mj_resetData(self._model, self._data)
        for car in range(config.cars):
            self._data.qpos[car] = (EGO - car) * (gap + CAR_LENGTH)
            self._data.qvel[car] = self._leader_speed[0] if car == LEADER else speed
        self._data.act[0] = min(self._resistance(speed) / self._car.drive, 1.0)
        self._decision = 0
        self._pedal = 0.0
        self._cost = 0.0
        self._first_gap = gap
        self._moments: list[tuple[float, ...]] = []
        self._acceleration = [0.0] * config.cars
        return c_rules.observation(self._moment([0.0] * config.cars))

    def step(self, action: np.ndarray) -> CStep:
        """Hold the pedal for one control period."""
        config = self.config
        self._pedal = min(max(float(action[0]), -1.0), 1.0)
        self._data.ctrl[:] = (max(self._pedal, 0.0), max(-self._pedal, 0.0))
        before = self._acceleration
        for substep in range(config.substeps):
            self._substep(self._decision * config.substeps + substep + 1)
        self._decision += 1
        jerk = [(new - old) / config.control_period for new, old in zip(self._acceleration, before, strict=True)]
        moment = self._moment(jerk)
        self._moments.append(moment)
        reward_terms = c_rules.reward_terms(config, moment)
        cost_terms = c_rules.cost_terms(config, moment)
        cost = sum(cost_terms.values())
        self._cost += cost
        return CStep(
            observation=c_rules.observation(moment),
            reward=sum(reward_terms.values()),
            cost=cost,
            reward_terms=reward_terms,
            cost_terms=cost_terms,
            terminated=False,
            diverged=self._diverged(),
        )

    def episode_metrics(self) -> dict[str, float]:
        """The same figures as the MJX task's."""
        if not self._moments:
            raise ValueError("An episode has no figures before its first decision.")
        return c_rules.episode_metrics(np.array(self._moments), self._first_gap, self.config.control_period)

    def picture(self) -> np.ndarray:
        """The platoon from the side, 320 x 960 x 3, uint8."""
        return picture.draw(
            picture.View(
                position=self._data.qpos.tolist(),
                speed=self._data.qvel.tolist(),
                history=[(moment[0], moment[3]) for moment in self._moments[-picture.HISTORY :]],
                pedal=self._pedal,
                time=self._decision * self.config.control_period,
                cost=self._cost,
                cost_limit=self.config.cost_limit,
            )
        )

    def _substep(self, number: int) -> None:
        data = self._data
        position, speed = data.qpos.tolist(), data.qvel.tolist()
        force = [0.0] * len(position)
        for car in range(1, len(position)):
            if car == EGO:
                force[car] = -self._resistance(speed[car])
            else:
                gap = position[car - 1] - position[car] - CAR_LENGTH
                wish = c_rules.human_acceleration(self.config, gap, speed[car], speed[car - 1])
                force[car] = self._human_mass[car] * wish
        data.qfrc_applied[:] = force
        mujoco.mj_step(self._model, data)
        leader_speed = self._leader_speed[min(number, len(self._leader_speed) - 1)]
        data.qpos[LEADER] = position[LEADER] + self.config.timestep * (speed[LEADER] + leader_speed) / 2
        data.qvel[LEADER] = leader_speed
        for car, new_speed in enumerate(data.qvel.tolist()):
            if new_speed < 0:
                # The brake has stopped the car within this step: it must neither roll back nor keep the step's move.
                data.qvel[car] = 0.0
                data.qpos[car] = position[car]
        timestep = self.config.timestep
        self._acceleration = [(new - old) / timestep for new, old in zip(data.qvel.tolist(), speed, strict=True)]

    def _resistance(self, speed: float) -> float:
        car = self._car
        return car.drag * speed**2 + ROLLING_RESISTANCE * car.mass * GRAVITY * math.tanh(speed / ROLLING_SPEED)

    def _diverged(self) -> bool:
        # C MuJoCo resets a world that left the finite numbers and only leaves a warning behind.
        warned = any(self._data.warning[kind].number > 0 for kind in _BROKEN)
        finite = np.isfinite(self._data.qpos).all() and np.isfinite(self._data.qvel).all()
        return warned or not finite

    def _moment(self, jerk: list[float]) -> tuple[float, ...]:
        position, speed, acceleration = self._data.qpos.tolist(), self._data.qvel.tolist(), self._acceleration
        return (
            speed[EGO],
            acceleration[EGO],
            jerk[EGO],
            speed[LEAD],
            acceleration[LEAD],
            jerk[LEAD],
            position[LEAD] - position[EGO] - CAR_LENGTH,
            speed[FOLLOW],
            position[EGO] - position[FOLLOW] - CAR_LENGTH,
        )
