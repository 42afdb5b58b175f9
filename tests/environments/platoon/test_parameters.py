"""Each physical parameter changes what it should, in the right direction, and nothing else."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.environments.platoon import SHIFTS, Platoon, PlatoonParameters, PlatoonState
from ashore.environments.platoon.parameters import shift_warnings, vehicle
from ashore.types import Array

DECISIONS = 60
NAMES = PlatoonParameters._fields
Drive = Callable[[float, float, dict[str, float]], dict[str, np.ndarray]]


@pytest.fixture(scope="session")
def every_car(task: Platoon) -> Callable[..., np.ndarray]:
    """Speeds over 3 s of one pedal position, [variants, decisions, cars]: nominal, then each parameter changed."""

    @jax.jit
    def run(speed: Array, pedal: Array, parameters: PlatoonParameters) -> Array:
        def one_car(parameters: PlatoonParameters) -> Array:
            start = task.reset(jax.random.key(0), parameters).state
            start = start._replace(speed=jnp.full_like(start.speed, speed), activation=jnp.zeros_like(start.activation))

            def decide(state: PlatoonState, _: None) -> tuple[PlatoonState, Array]:
                state = task.step(state, pedal[None], parameters).state
                return state, state.speed

            return jax.lax.scan(decide, start, None, length=DECISIONS)[1]

        return jax.vmap(one_car)(parameters)

    def call(speed: float, pedal: float, changes: dict[str, float]) -> np.ndarray:
        table = np.ones((len(NAMES) + 1, len(NAMES)), np.float32)
        for index, name in enumerate(NAMES):
            table[index + 1, index] = changes[name]
        return np.asarray(run(jnp.float32(speed), jnp.float32(pedal), PlatoonParameters(*jnp.asarray(table.T))))

    return call


@pytest.fixture(scope="session")
def drive(every_car: Callable[..., np.ndarray]) -> Drive:
    """The ego's speeds by name of the parameter that was changed, and `nominal`."""
    return lambda *arguments: dict(zip(("nominal", *NAMES), every_car(*arguments)[:, :, 2], strict=True))


CHANGES = {"mass": 1.2, "drag": 0.5, "drive": 1.5, "brake": 0.5, "inertia": 2.0, "friction": 0.5}


def accelerations(speed: np.ndarray) -> np.ndarray:
    return np.diff(speed) / 0.05


def test_full_throttle(drive: Drive) -> None:
    speeds = drive(5.0, 1.0, CHANGES)
    nominal, changed = speeds["nominal"], {name: speeds[name] for name in NAMES}
    # Once the lag (0.4 s) has passed: 5000 N / 1000 kg - 9.81 x 0.015 - 0.40425 v^2 / 1000, v = 17.5 m/s after 3 s.
    v = nominal[-1]
    assert accelerations(nominal)[-1] == pytest.approx(5.0 - 0.14715 - 0.40425e-3 * v**2, abs=6e-3)
    # Heavier by 1.2: 5000 / 1200 and drag / 1.2, but the same rolling resistance per mass.
    v = changed["mass"][-1]
    assert accelerations(changed["mass"])[-1] == pytest.approx(5.0 / 1.2 - 0.14715 - 0.40425e-3 * v**2 / 1.2, abs=6e-3)
    # One and a half times the drive force.
    v = changed["drive"][-1]
    assert accelerations(changed["drive"])[-1] == pytest.approx(7.5 - 0.14715 - 0.40425e-3 * v**2, abs=9e-3)
    # Half the drag makes a little faster; twice the lag makes later; brake and grip play no part.
    assert changed["drag"][-1] > nominal[-1] + 0.01
    assert changed["inertia"][-1] < nominal[-1] - 1.0
    np.testing.assert_array_equal(changed["brake"], nominal)
    np.testing.assert_array_equal(changed["friction"], nominal)


def test_full_braking(drive: Drive) -> None:
    speeds = drive(40.0, -1.0, CHANGES)
    nominal, changed = speeds["nominal"], {name: speeds[name] for name in NAMES}
    at = 30  # The decision from 1.50 s to 1.55 s; every car is still moving.
    # Half the brake force; a physics step applies the force of its beginning, on average here that of 1.52 s.
    v = changed["brake"][at - 1 : at + 1].mean()
    expected = -9.0 * (1 - np.exp(-1.52 / 0.4)) - 0.14715 - 0.40425e-3 * v**2
    assert accelerations(changed["brake"])[at - 1] == pytest.approx(expected, abs=5e-3)
    # Tyres with half the grip: 2 x 0.5 x 9.81 m/s^2, no matter how hard the brake pushes.
    v = changed["friction"][at - 1 : at + 1].mean()
    assert accelerations(changed["friction"])[at - 1] == pytest.approx(-9.81 - 0.14715 - 0.40425e-3 * v**2, abs=5e-3)
    # The nominal tyres (19,620 N) hold the nominal brake (18,000 N).
    assert accelerations(nominal)[at - 1] < -17.0
    # A heavier car brakes later; half the drag brakes less; twice the lag brakes later; the engine plays no part.
    for name in ("mass", "drag", "inertia"):
        assert changed[name][at] > nominal[at] + 0.01, name
    np.testing.assert_array_equal(changed["drive"], nominal)


def test_grip_does_not_limit_gentle_braking(drive: Drive) -> None:
    # 0.3 x 18,000 N = 5,400 N stay below the slippery road's 9,810 N.
    speeds = drive(30.0, -0.3, CHANGES)
    np.testing.assert_array_equal(speeds["friction"], speeds["nominal"])
    assert speeds["brake"][-1] > speeds["nominal"][-1] + 5.0


def test_drag_is_felt_at_high_speed_only(drive: Drive) -> None:
    fast, slow = drive(40.0, 0.0, CHANGES), drive(2.0, 0.0, CHANGES)
    # Air alone slows 40 m/s to 40 / (1 + c 40 x 3 s): 38.149 with c = 0.40425e-3, 39.053 with half of it.
    assert fast["drag"][-1] - fast["nominal"][-1] == pytest.approx(0.904, abs=0.02)
    # At 2 m/s the air takes 0.40425e-3 x 2^2 x 3 = 0.005 m/s.
    assert slow["drag"][-1] - slow["nominal"][-1] == pytest.approx(0.002, abs=0.001)
    # Coasting is blind to engine, brake, lag and grip.
    for name in ("drive", "brake", "inertia", "friction"):
        np.testing.assert_array_equal(fast[name], fast["nominal"])
    # Rolling resistance per mass does not depend on the mass: 9.81 x 0.015 x 3 s = 0.441 m/s.
    assert 2.0 - slow["mass"][-1] == pytest.approx(0.441 + 0.004, abs=0.003)


def test_the_lag_is_a_first_order_one(drive: Drive) -> None:
    speeds = drive(5.0, 1.0, CHANGES)
    for name, lag in (("nominal", 0.4), ("inertia", 0.8)):
        # v(t) - v0 = 5 (t - tau (1 - e^(-t / tau))) less resistance; after 0.5 s at 5 m/s resistance took 0.08 m/s.
        gained = 5.0 * (0.5 - lag * (1 - np.exp(-0.5 / lag))) - 0.5 * (0.14715 + 0.40425e-3 * 5.0**2)
        # MuJoCo's force trails its filter by one physics step of 0.01 s.
        assert speeds[name][9] - 5.0 == pytest.approx(gained, abs=0.04), name


def test_the_cars_ahead_are_not_randomised(every_car: Callable[..., np.ndarray]) -> None:
    # [cars with one parameter changed, decisions, cars of the platoon]
    speeds = every_car(10.0, -0.5, CHANGES)
    for variant in speeds[1:]:
        # Their motion is relative to the ego, whose place on the road is rounded differently.
        np.testing.assert_allclose(variant[:, :2], speeds[0, :, :2], atol=2e-6)
    # The ego's weaker brake does reach the car behind it: through its driver.
    behind = speeds[:, -1, 3]
    assert behind[1 + NAMES.index("brake")] > behind[0] + 0.1


def test_declared_ranges() -> None:
    # The paper's table of platoon physics, Train then Deploy.
    expected = {
        "mass": ((0.9, 1.1), (0.8, 1.2)),
        "drag": ((0.3, 0.5), (0.3, 0.6)),
        "drive": ((1.5, 2.0), (1.5, 2.5)),
        "brake": ((0.5, 1.0), (0.2, 0.5)),
        "inertia": ((1.0, 1.5), (1.0, 2.0)),
        "friction": ((0.5, 1.0), (0.3, 0.8)),
    }
    assert tuple(row.name for row in SHIFTS["nominal"]) == NAMES == tuple(expected)
    for train, deploy, nominal in zip(SHIFTS["train"], SHIFTS["deploy"], SHIFTS["nominal"], strict=True):
        assert ((train.low, train.high), (deploy.low, deploy.high)) == expected[train.name]
        assert (nominal.low, nominal.high) == (1.0, 1.0)


def test_what_the_ranges_hide_is_said(task: Platoon) -> None:
    first, second = shift_warnings()
    assert "drag [1, 1] leaves Train [0.3, 0.5]" in first
    assert "drive [1, 1] leaves Train [1.5, 2]" in first
    assert "brake of Train [0.5, 1] and Deploy [0.2, 0.5] only touch" in second
    assert first in task.description.summary


def test_identifiable_combinations(task: Platoon) -> None:
    car = PlatoonParameters(*(jnp.float32(value) for value in (0.8, 0.5, 2.0, 0.5, 1.5, 0.4)))
    # 10000 / 800, 9000 / 800, 0.5 x 1.225 x 0.15 x 2.2 / 800, 0.4 x 1.5, 0.8 x 9.81
    expected = {
        "drive_per_mass": 12.5,
        "brake_per_mass": 11.25,
        "drag_per_mass": 2.5266e-4,
        "lag": 0.6,
        "grip": 7.848,
    }
    found = {name: float(value) for name, value in task.identifiable(car).items()}
    assert found == pytest.approx(expected, rel=1e-4)
    # Twice the car in every force and in mass moves alike.
    twice = car._replace(mass=2 * car.mass, drag=2 * car.drag, drive=2 * car.drive, brake=2 * car.brake)
    assert {name: float(value) for name, value in task.identifiable(twice).items()} == pytest.approx(expected, rel=1e-4)
    assert float(vehicle(twice).grip) == pytest.approx(2 * float(vehicle(car).grip))
