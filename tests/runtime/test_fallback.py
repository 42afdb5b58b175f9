"""Fallbacks: each does what its name says, and what could not be sent is refused when it is loaded."""

import time

import numpy as np
import pytest

from ashore_runtime import Refused, fallback
from ashore_runtime.refinement import Box
from ashore_runtime.schema import Field
from runtime import small_bundle

MANIFEST = small_bundle.manifest()
BOX = Box(np.full(2, -1.0, np.float32), np.full(2, 1.0, np.float32))
NOWHERE = np.zeros(4, np.float32)
LAST = np.array([0.5, -0.03], np.float32)

ROAD = small_bundle.manifest(
    observation=(
        Field("ego_speed", "15 m/s", 0.0, 3.0),
        Field("lead_speed", "15 m/s", 0.0, 3.0),
        Field("lead_gap", "30 m", -0.5, 2.0),
    ),
    action=(Field("pedal", "1", -1.0, 1.0),),
    dynamics_features=(0,),
)
PEDAL = Box(np.full(1, -1.0, np.float32), np.full(1, 1.0, np.float32))


def build(wish, manifest=MANIFEST, box=BOX):
    return fallback.build(wish, manifest, box)


def test_hold_and_zero():
    np.testing.assert_array_equal(build("hold")(NOWHERE, LAST), LAST)
    np.testing.assert_array_equal(build("zero")(NOWHERE, LAST), [0.0, 0.0])
    above = Box(np.full(2, 0.2, np.float32), np.full(2, 1.0, np.float32))
    np.testing.assert_array_equal(build("zero", box=above)(NOWHERE, LAST), above.low)


def test_ramp_reaches_zero_in_its_time_and_stays():
    # One second at a period of 50 ms: 0.05 per decision. From 0.5 ten decisions; -0.03 is gone after one.
    ramp = build({"kind": "ramp_to_zero", "seconds": 1.0})
    action = ramp(NOWHERE, LAST)
    np.testing.assert_allclose(action, [0.45, 0.0], atol=1e-6)
    for _ in range(10):
        action = ramp(NOWHERE, action)
    assert np.abs(action).max() < 1e-6


def test_brake_names_its_actions():
    np.testing.assert_array_equal(build({"kind": "brake", "actions": {"throttle": -0.5}})(NOWHERE, LAST), [-0.5, 0.0])
    with pytest.raises(Refused, match="needs the action 'pedal'"):
        build({"kind": "brake", "actions": {"pedal": -0.5}})


def test_pd_to_home_by_hand():
    # u = 2 (1 - 0.75) - 0.5 * 0.2 = 0.4 for the throttle; the steer is not named.
    wish = {
        "kind": "pd_to_home",
        "axes": {"throttle": {"position": "sensor_1", "velocity": "sensor_3", "kp": 2.0, "kd": 0.5, "home": 1.0}},
    }
    action = build(wish)(np.array([0.0, 0.75, 0.0, 0.2], np.float32), LAST)
    np.testing.assert_allclose(action, [0.4, 0.0], atol=1e-6)


def test_fvd_by_hand():
    # 15 m/s behind 15 m/s at 30 m: V = 6.75 + 7.91 tanh(0.13 * 30 - 1.57) = 6.75 + 7.91 * 0.98129 = 14.512, so that
    # a = 0.41 (14.512 - 15) = -0.2001 m/s^2, a thirtieth of the brake's 6 m/s^2.
    follow = build("fvd", ROAD, PEDAL)
    assert follow(np.array([1.0, 1.0, 1.0], np.float32), LAST[:1])[0] == pytest.approx(-0.2001 / 6.0, abs=1e-4)
    assert follow(np.array([2.0, 0.0, 0.1], np.float32), LAST[:1])[0] == -1.0


def test_idm_by_hand():
    # 15 m/s behind 15 m/s at 30 m: s* = 2 + 15 * 1.5 = 24.5, a = 1 - 0.5^4 - (24.5 / 30)^2 = 0.27056, of 3 m/s^2.
    follow = build("idm", ROAD, PEDAL)
    assert follow(np.array([1.0, 1.0, 1.0], np.float32), LAST[:1])[0] == pytest.approx(0.27056 / 3.0, abs=1e-4)
    # Touching the car ahead is answered with the full brake, not with a division by zero.
    assert follow(np.array([1.0, 0.0, -0.5], np.float32), LAST[:1])[0] == -1.0


def test_unknown_names_and_options_are_said():
    with pytest.raises(Refused, match="no fallback called 'panic'; there are hold, zero"):
        build("panic")
    with pytest.raises(Refused, match="does not take these options"):
        build({"kind": "hold", "seconds": 1.0})
    with pytest.raises(Refused, match="needs the action 'pedal'"):
        build("idm")


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"kind": "brake", "actions": {"throttle": "hard"}}, "needs a finite number for 'throttle', not 'hard'."),
        ({"kind": "brake", "actions": {"throttle": np.nan}}, "needs a finite number for 'throttle', not nan."),
        ({"kind": "brake", "actions": -0.5}, "needs a table for 'actions', not -0.5."),
        ({"kind": "pd_to_home", "axes": ["throttle"]}, "needs a table for 'axes'"),
        ({"kind": "pd_to_home", "axes": {"throttle": 2.0}}, "needs a table for 'throttle', not 2.0."),
        ({"kind": "pd_to_home", "axes": {"throttle": {"position": "sensor_1"}}}, "needs 'kp' for 'throttle'."),
        ({"kind": "pd_to_home", "axes": {"throttle": {"kp": 2.0}}}, "needs 'position' for 'throttle'."),
        ({"kind": "pd_to_home", "axes": {"throttle": {"position": "sensor_1", "kp": "stiff"}}}, "number for 'kp'"),
        ({"kind": ["hold"]}, "no fallback called"),
        ({"kind": "hold", 3: 1}, "does not take these options"),
        (None, "no fallback called None"),
        ([("kind", "hold")], "no fallback called"),
    ],
)
def test_options_that_are_wrong_are_refused_in_one_sentence(wish, message):
    with pytest.raises(Refused, match=message):
        build(wish)


def now_and_then_nan(observation, last_action):
    return np.full(2, np.nan if observation[0] > 1.99 else 0.0, np.float32)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda o, a: np.full(2, 1.01), "outside the box"),
        (lambda o, a: np.zeros(3), "shape"),
        (lambda o, a: "stop", "shape"),
        (lambda o, a: 1 / 0, "ZeroDivisionError"),
        (now_and_then_nan, "not finite"),
    ],
)
def test_functions_that_could_not_be_sent_are_refused(function, message):
    with pytest.raises(Refused, match=message):
        build(function)


def test_slow_functions_are_refused():
    def slow(observation, last_action):
        time.sleep(0.0015)
        return last_action

    with pytest.raises(Refused, match="more than 1 ms"):
        fallback.validate(slow, MANIFEST, BOX, trials=50)
