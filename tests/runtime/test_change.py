"""Change detection where the answer is known: a trace by hand, and Gaussian worlds with a known drift and delay."""

import json
from math import inf, nan

import numpy as np
import pytest

from ashore_runtime import change, posterior
from ashore_runtime.change import ChangeDetector
from ashore_runtime.schema import ChangeCalibration

KNOWN = ChangeCalibration(threshold=8.0, drift=0.3, memory=16, clip=5.0)


def totals(detector, gains):
    total, found = 0.0, []
    for gain in gains:
        total, alarm = detector.accumulate(total, gain)
        found.append((round(total, 6), alarm))
    return found


def test_cusum_by_hand():
    # 1 - 0.3 = 0.7;  0.7 - 2 - 0.3 < 0;  3 - 0.3 = 2.7;  9 counts as 5: 2.7 + 5 - 0.3 = 7.4;  no number, no news;
    # 7.4 + 0.9 - 0.3 = 8.0, which is not above 8;  8.0 + 0.4 - 0.3 = 8.1 is.
    found = totals(ChangeDetector(KNOWN), [1.0, -2.0, 3.0, 9.0, nan, 0.9, 0.4])
    assert found == [(0.7, False), (0.0, False), (2.7, False), (7.4, False), (7.4, False), (8.0, False), (8.1, True)]


def test_each_alarm_of_late_doubles_the_threshold():
    detector, state, alarms = ChangeDetector(KNOWN), change.start(posterior.prior(1)), []
    # 4.7 with each transition: above 8 after 2, above 16 after 4 more, above 32 (but for what has faded) after 7 more.
    for transition in range(1, 14):
        state, alarm = detector.watch(state, 5.0)
        if alarm:
            state = detector.restart(state)
            alarms.append(transition)
    assert alarms == [2, 6, 13]
    # A tenth of it is left after 1150 quiet transitions: 8 * 2^0.3.
    for _ in range(1150):
        state, alarm = detector.watch(state, -1.0)
        assert not alarm
    assert state.alarms == pytest.approx(3.0 * 0.998**1150, rel=0.03) and state.alarms < 0.31
    assert detector.accumulate(8.0, 3.0, state.alarms)[1] and not detector.accumulate(8.0, 1.5, state.alarms)[1]


def test_what_was_remembered_of_alarms_survives_a_restart_and_is_checked():
    state = change.start(posterior.prior(2), alarms=1.5)
    content = state.to_json()
    assert change.from_json(content, 2).alarms == 1.5
    del content["alarms"]
    assert change.from_json(content, 2).alarms == 0.0
    for wrong in (-1.0, nan, inf, 1e308):
        with pytest.raises(ValueError, match="not one"):
            change.from_json(content | {"alarms": wrong}, 2)


def test_one_transition_is_never_enough():
    # However far off it was: two in a row are, at 4.7 and 9.4.
    found = totals(ChangeDetector(KNOWN), [inf, -inf, 1e30, *[0.0] * 20, inf, inf])
    assert [alarm for _, alarm in found[:-1]] == [False] * (len(found) - 1) and found[-1] == (9.4, True)


@pytest.mark.parametrize("gain", [nan, inf, -inf, 1e308, -1e308])
def test_no_gain_raises_or_leaves_anything_behind_that_is_not_a_number(gain):
    detector = ChangeDetector(KNOWN)
    state, _ = detector.watch(change.start(posterior.prior(3)), gain)
    state = detector.learn(state, np.ones(3, np.float32), np.full(3, 1e4, np.float32), 1.0)
    assert np.isfinite(state.total) and change.from_json(state.to_json(), 3).total == state.total


def test_recent_evidence_fades_by_a_sixteenth():
    detector, state = ChangeDetector(KNOWN), change.start(posterior.prior(1))
    for mean in (1.0, 2.0, 4.0):
        state = detector.learn(state, np.array([mean], np.float32), np.array([2.0], np.float32), tempering=0.5)
    # Precision 1 each: 4 + 2 (15 / 16) + 1 (15 / 16)^2.
    assert state.recent.weighted_mean_sum[0] == 4.0 + 2.0 * 15 / 16 + (15 / 16) ** 2
    assert state.recent.precision_sum[0] == 1.0 + 15 / 16 + (15 / 16) ** 2 and state.recent.count == 3
    for _ in range(100):
        state = detector.learn(state, np.zeros(1, np.float32), np.ones(1, np.float32), 1.0)
    assert state.recent.count == KNOWN.memory


class Level:
    """A world whose only law is its level: y = z + noise of variance 1. All factors are equally sure of their y.

    The level is known from very many transitions, and recent evidence is a mean of the last ones with weights
    (15 / 16)^i, which has the variance v = (1 - 15 / 16) / (1 + 15 / 16) = 1 / 31. The gain is on average

        (jump^2 - (jump (15 / 16)^k)^2 - v) / 2      k transitions after a jump,   -v / 2 = -1 / 62 without one.
    """

    SURE = np.full(1, 1000.0)
    """Precision of a factor: so high that the prior, with its 1, does not matter."""

    def __init__(self, calibration, settled=200_000):
        self.detector = ChangeDetector(calibration)
        self.posterior = posterior.Posterior(np.zeros(1), settled * self.SURE, settled)
        self.state = change.start(posterior.prior(1))
        for _ in range(200):
            self.state = self.detector.learn(self.state, np.zeros(1), self.SURE, 1.0)

    def step(self, y):
        def log_likelihood(found):
            return -0.5 * float(y - posterior.mean(found)[0]) ** 2

        gain = log_likelihood(self.state.recent) - log_likelihood(self.posterior)
        self.state, alarm = self.detector.watch(self.state, gain)
        factor = (np.array([y]), self.SURE)
        self.posterior = posterior.add(self.posterior, *factor)
        self.state = self.detector.learn(self.state, *factor, tempering=1.0)
        return gain, alarm


QUIET = ChangeCalibration(threshold=inf, drift=0.3, memory=16, clip=1e6)


def test_drift_without_a_change():
    generator = np.random.default_rng(0)
    world = Level(QUIET)
    gains = np.array([world.step(y)[0] for y in generator.normal(size=20_000)])
    # Gains hang together over 16 transitions; means of stretches of 200 hardly do.
    stretches = gains[200:].reshape(-1, 200).mean(axis=1)
    error = stretches.std(ddof=1) / np.sqrt(len(stretches))
    assert error < 0.003
    assert stretches.mean() == pytest.approx(-1 / 62, abs=3 * error)


def test_delay_of_a_known_jump():
    # Per transition (4 - 4 (15 / 16)^(2 k) - 1 / 31) / 2 - 0.3 for a jump of 2: the sum of the first K, k from 0, is
    # 1.684 K - 2 (1 - (15 / 16)^(2 K)) / (1 - (15 / 16)^2), which passes 20 at K = 22.
    expected = np.cumsum([0.5 * (4.0 - 4.0 * (15 / 16) ** (2 * k) - 1 / 31) - 0.3 for k in range(40)])
    assert expected[20] < 20.0 < expected[21]
    generator = np.random.default_rng(1)
    delays = []
    for _ in range(100):
        world = Level(ChangeCalibration(threshold=20.0, drift=0.3, memory=16, clip=1e6))
        assert not any(world.step(y)[1] for y in generator.normal(size=40))
        delays.append(1 + next(k for k in range(200) if world.step(2.0 + generator.normal())[1]))
    assert np.mean(delays) == pytest.approx(22.0, abs=2.0)


def test_stretches_of_surprise_are_no_change():
    # Noise that is ten times as large for a hundred transitions on end surprises both predictions alike.
    generator = np.random.default_rng(2)
    scale = np.where(np.arange(4000) // 100 % 2, 1.0, 0.1)
    world = Level(ChangeCalibration(threshold=8.0, drift=0.3, memory=16, clip=5.0))
    assert not any(world.step(y)[1] for y in scale * generator.normal(size=4000))


def test_a_state_comes_back_bit_for_bit():
    generator = np.random.default_rng(3)
    world = Level(KNOWN)
    for y in (*generator.normal(size=50), *[2.0] * 6):
        world.step(y)
    assert world.state.total > 0.0
    again = Level(KNOWN)
    again.posterior = world.posterior
    again.state = change.from_json(json.loads(json.dumps(world.state.to_json())), 1)
    for y in 1.0 + generator.normal(size=50):
        assert world.step(y) == again.step(y)
    assert world.state.to_json() == again.state.to_json()


def test_fresh_evidence_begins_where_the_sum_was_last_zero():
    detector, state = ChangeDetector(KNOWN), change.start(posterior.prior(1))
    for gain, mean in ((1.0, 1.0), (-9.0, 2.0), (2.0, 3.0), (2.0, 4.0)):
        state, _ = detector.watch(state, gain)
        state = detector.learn(state, np.array([mean]), np.ones(1), 1.0)
    # The sum is zero after the second: of the two since then the first has faded by a sixteenth.
    assert state.fresh == posterior.Posterior(np.array([4.0 + 3.0 * 15 / 16]), np.array([1.0 + 15 / 16]), 2)
    assert state.recent.count == 4
    again = change.start(state.fresh)
    assert again.total == 0.0 and again.recent == state.fresh and again.fresh.count == 0


PRIOR = posterior.to_json(posterior.prior(2))


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"total": 1.0},
        {"total": 1.0, "recent": PRIOR},
        {"total": nan, "recent": PRIOR, "fresh": PRIOR},
        {"total": -1.0, "recent": PRIOR, "fresh": PRIOR},
        {"total": 1.0, "recent": posterior.to_json(posterior.prior(3)), "fresh": PRIOR},
        {"total": 1.0, "recent": PRIOR, "fresh": PRIOR | {"precision_sum": [nan, 0.0]}},
        {"total": 1.0, "recent": PRIOR, "fresh": PRIOR | {"count": -1}},
    ],
)
def test_what_is_no_state_is_refused(broken):
    with pytest.raises((ValueError, KeyError, TypeError)):
        change.from_json(broken, 2)
