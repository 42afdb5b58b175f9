"""The detector's threshold: its rank by hand, and that what is promised holds for worlds that were not simulated."""

from math import inf, log, nan

import numpy as np
import pytest

from ashore.calibration import change_threshold
from ashore.calibration.change_threshold import USUAL

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


def test_a_higher_drift_where_quiet_worlds_gain_a_little_for_long():
    # 19 runs, a chance of 0.1: the 18th smallest peak. Run i gains 2 nats in 10 i decisions: with drifts 0.3, 1, 2, 3
    # the 18th peak (i = 17) is 289, 170, 0 and 0; waits 289 / 4.7 = 61.5, 170 / 4 = 42.5, and at the floor of one
    # clip 5 / 3 = 1.7 and 5 / 2 = 2.5.
    gains = np.full((19, 200), -1.0)
    for i in range(19):
        gains[i, : 10 * i] = 2.0
    assert change_threshold.choose_drift(gains, 500.0) == 2.0
    found = change_threshold.calibrate(gains, np.ones_like(gains), 500.0, 2.0)
    assert (found.drift, found.threshold) == (2.0, found.clip)
    assert change_threshold.calibrate(gains, np.ones_like(gains), 500.0).threshold == pytest.approx(289.0)


def test_the_usual_drift_where_another_is_not_clearly_faster():
    # Nothing grows: every threshold is one clip, and a higher drift only makes the wait 5 / (5 - drift) longer.
    assert change_threshold.choose_drift(np.full((19, 100), -1.0), 1000.0) == USUAL.drift
    # Three transitions of 4 nats give peaks of 11.1, 9, 6, and 3, below the floor of 5: waits 2.36, 2.25, 2 and 2.5.
    gains = np.full((19, 100), -1.0)
    gains[:, 10:13] = 4.0
    assert change_threshold.choose_drift(gains, 1000.0) == USUAL.drift


def test_a_choice_of_drift_needs_as_many_runs_as_the_threshold():
    with pytest.raises(ValueError, match="need 2,400"):
        change_threshold.choose_drift(CALM, 400.0)


def test_the_strangest_simulated_world_is_the_level():
    surprise = np.ones((19, 100))
    surprise[7] = 3.0
    found = change_threshold.calibrate(np.full((19, 100), -1.0), surprise, 1000.0)
    assert found.ood_level == pytest.approx(log(3.0))


def test_the_promise_holds_however_gains_hang_together():
    # Each run has a level of its own and gains that follow each other closely, as in a real world. Of 400 calibrations
    # from 19 runs each, the next run may be above the threshold in 10 %: 40, and 58 in one case of a thousand.
    generator = np.random.default_rng(1)

    def runs(count):
        level = generator.normal(-0.3, 0.3, (count, 1))
        noise = np.zeros((count, 100))
        for now in range(1, 100):
            noise[:, now] = 0.9 * noise[:, now - 1] + generator.normal(size=count)
        return level + noise

    above = 0
    for _ in range(400):
        found = change_threshold.calibrate(runs(19), CALM, 1000.0)
        above += change_threshold.peak(USUAL, runs(1)[0]) > found.threshold
    assert 10 < above <= 58
