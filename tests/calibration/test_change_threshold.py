"""The detector's threshold: its rank by hand, and that what is promised holds for worlds that were not simulated."""

from math import inf, log, nan

import numpy as np
import pytest

from ashore.calibration import change_threshold
from ashore_runtime.schema import ChangeCalibration

CALM = np.ones((19, 100))


def test_the_rank_by_hand():
    # 19 runs of 100 decisions, 1000 alarms per million: a chance of 0.1 per run, so the 18th smallest of 19 peaks.
    # Run i gains 5 for i decisions on end, of which 4.7 are kept: its peak is 4.7 i.
    gains = np.full((19, 100), -1.0)
    for i in range(19):
        gains[i, 10 : 10 + i] = 7.0
    found = change_threshold.calibrate(np.random.default_rng(0).permutation(gains), CALM, 1000.0)
    assert found.threshold == pytest.approx(17 * 4.7)
    assert (found.false_alarms_per_million, found.runs, found.run_length) == (1000.0, 19, 100)


def test_what_cannot_be_promised_is_refused_with_what_can():
    # A chance of 0.05 needs 19 runs, of 0.04 needs 24.
    change_threshold.check_length(19, 100, 500.0)
    with pytest.raises(ValueError, match="400 false alarms per million decisions need 2,400 .* 1,900 promise 500 per"):
        change_threshold.calibrate(CALM, CALM, 400.0)
    for rate in (0.0, -1.0, nan, inf):
        with pytest.raises(ValueError, match="positive"):
            change_threshold.check_length(19, 100, rate)


def test_calm_worlds_do_not_make_one_transition_an_alarm():
    found = change_threshold.calibrate(np.full((19, 100), -1.0), CALM, 1000.0)
    assert found.threshold == found.clip


def test_a_rate_above_one_per_run_is_taken_as_an_even_chance():
    gains = np.full((19, 100), -1.0)
    for i in range(19):
        gains[i, : 2 * i] = 7.0
    assert change_threshold.calibrate(gains, CALM, 1e5).threshold == pytest.approx(9 * 2 * 4.7)


def test_lost_transitions_say_nothing():
    gains = np.full((19, 100), nan)
    gains[:, ::2] = 5.0
    found = change_threshold.calibrate(gains, np.where(np.isnan(gains), nan, 1.0), 1000.0)
    assert found.threshold == pytest.approx(50 * 4.7) and found.ood_level is None


def test_the_strangest_simulated_world_is_the_level():
    surprise = np.ones((19, 100))
    surprise[7] = 3.0
    found = change_threshold.calibrate(np.full((19, 100), -1.0), surprise, 1000.0)
    assert found.ood_level == pytest.approx(log(3.0))


def test_the_promise_holds_however_gains_hang_together():
    # Each run has a level of its own and gains that follow each other closely, as in a real world. Of 400 calibrations
    # from 19 runs each, the next run may be above the threshold in 10 %: 40, and 58 in one case of a thousand.
    generator = np.random.default_rng(1)
    usual = ChangeCalibration(threshold=inf)

    def runs(count):
        level = generator.normal(-0.3, 0.3, (count, 1))
        noise = np.zeros((count, 100))
        for now in range(1, 100):
            noise[:, now] = 0.9 * noise[:, now - 1] + generator.normal(size=count)
        return level + noise

    above = 0
    for _ in range(400):
        found = change_threshold.calibrate(runs(19), CALM, 1000.0)
        above += change_threshold.peak(usual, runs(1)[0]) > found.threshold
    assert 10 < above <= 58
