"""FVD in closed form: hand-computed speeds, its inverse, and where it is string-stable."""

import jax.numpy as jnp
import numpy as np
import pytest

from ashore.environments.platoon import PRESETS, car_following
from ashore.environments.platoon.c_rules import human_acceleration
from ashore.environments.platoon.car_following import Driver

CANONICAL = Driver(k=0.41, lam=0.5)
CALM = Driver(k=0.6, lam=0.9)


@pytest.mark.parametrize(
    ("gap", "speed"),
    [
        # 6.75 - 7.91 tanh(1.57), with tanh(1.57) = (e^3.14 - 1) / (e^3.14 + 1) = 22.1039 / 24.1039 = 0.917026
        (0.0, -0.50367),
        # The tanh vanishes where 0.13 s = 1.57.
        (1.57 / 0.13, 6.75),
        # 6.75 + 7.91 tanh(2.33), with tanh(2.33) = (e^4.66 - 1) / (e^4.66 + 1) = 104.636 / 106.636 = 0.981245
        (30.0, 14.51165),
        # Far away: 6.75 + 7.91.
        (1000.0, 14.66),
    ],
)
def test_optimal_speed_by_hand(gap: float, speed: float) -> None:
    assert float(car_following.optimal_speed(CANONICAL, jnp.float32(gap))) == pytest.approx(speed, abs=2e-5)


@pytest.mark.parametrize("stretch", [1.0, 2.0])
def test_equilibrium_gap_inverts_the_optimal_speed(stretch: float) -> None:
    driver = CALM._replace(stretch=stretch)
    speeds = np.linspace(0.0, car_following.cruise_speed(driver), 50)
    gaps = car_following.equilibrium_gap(driver, speeds, np)
    np.testing.assert_allclose(car_following.optimal_speed(driver, gaps, np), speeds, atol=1e-9)
    # In equilibrium nobody accelerates.
    np.testing.assert_allclose(car_following.acceleration(driver, gaps, speeds, speeds, np), 0.0, atol=1e-9)


def test_gap_of_a_standing_queue_and_above_the_top_speed() -> None:
    # V = 0 where tanh = -6.75 / 7.91 = -0.853350, so 0.13 s = 1.57 - 1.26824 and s = 2.321 m.
    assert float(car_following.equilibrium_gap(CANONICAL, jnp.float32(0.0))) == pytest.approx(2.321, abs=2e-3)
    # Above 0.98 x 14.66 = 14.3668 m/s the gap stays that of 14.3668: tanh = 0.962933, so (1.98495 + 1.57) / 0.13.
    assert float(car_following.equilibrium_gap(CANONICAL, jnp.float32(25.0))) == pytest.approx(27.35, abs=0.02)


def unstable_speeds(driver: Driver) -> np.ndarray:
    """Equilibrium speeds at which disturbances grow from car to car: V'(s) > k / 2 + lambda."""
    speeds = np.linspace(0.05, 14.3, 2851)
    slope = car_following.optimal_speed_slope(driver, car_following.equilibrium_gap(driver, speeds, np), np)
    return speeds[slope > driver.k / 2 + driver.lam]


def test_string_stability() -> None:
    # Canonical: 1.0283 sech^2 > 0.705 where tanh^2 < 0.31440, that is 6.75 -+ 7.91 x 0.56071 = 2.315 to 11.185 m/s.
    unstable = unstable_speeds(CANONICAL)
    assert unstable.min() == pytest.approx(2.315, abs=0.01)
    assert unstable.max() == pytest.approx(11.185, abs=0.01)
    # The training drivers: 0.6 / 2 + 0.9 = 1.2 exceeds the steepest slope, 7.91 x 0.13 = 1.0283.
    assert unstable_speeds(CALM).size == 0


def test_slope_is_the_derivative() -> None:
    gaps = np.linspace(0.0, 80.0, 30)
    for driver in (CANONICAL, CANONICAL._replace(stretch=2.0)):
        step = 1e-5
        above = car_following.optimal_speed(driver, gaps + step, np)
        below = car_following.optimal_speed(driver, gaps - step, np)
        slope = car_following.optimal_speed_slope(driver, gaps, np)
        np.testing.assert_allclose(slope, (above - below) / (2 * step), atol=1e-8)


def test_stretched_drivers_are_twice_as_fast_and_react_alike() -> None:
    highway = CANONICAL._replace(stretch=2.0)
    assert car_following.top_speed(highway) == pytest.approx(29.32)
    gaps = np.linspace(0.0, 50.0, 20)
    twice = 2 * car_following.optimal_speed(CANONICAL, gaps, np)
    np.testing.assert_allclose(car_following.optimal_speed(highway, 2 * gaps, np), twice)
    slope = car_following.optimal_speed_slope(CANONICAL, gaps, np)
    np.testing.assert_allclose(car_following.optimal_speed_slope(highway, 2 * gaps, np), slope)


def test_limits_of_a_driver() -> None:
    brake = car_following.acceleration(CANONICAL, jnp.float32(1.0), jnp.float32(20.0), jnp.float32(0.0))
    throttle = car_following.acceleration(CANONICAL, jnp.float32(40.0), jnp.float32(0.0), jnp.float32(10.0))
    assert (float(brake), float(throttle)) == (-6.0, 3.0)
    # Beyond 100 m the car ahead no longer matters: 0.41 x (14.66 - 10) = 1.9106, whatever its speed.
    far = [
        float(car_following.acceleration(CANONICAL, jnp.float32(101.0), jnp.float32(10.0), jnp.float32(lead)))
        for lead in (0.0, 20.0)
    ]
    assert far == pytest.approx([1.9106, 1.9106], abs=1e-4)


@pytest.mark.parametrize("preset", ["P-train", "P-match", "P-highway"])
def test_both_transcriptions_agree(preset: str) -> None:
    config = PRESETS[preset]
    generator = np.random.default_rng(0)
    gaps, speeds, leads = generator.uniform((-10, 0, 0), (140, 30, 30), (500, 3)).T
    once = car_following.acceleration(config.driver, gaps, speeds, leads, np)
    again = [human_acceleration(config, *row) for row in zip(gaps, speeds, leads, strict=True)]
    np.testing.assert_allclose(once, again, atol=1e-12)
