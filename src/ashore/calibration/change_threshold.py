"""How much better recent evidence may predict before it is a change: a threshold from worlds that do not change.

Every quiet run of T decisions has a highest CUSUM, and that is one number per run. If the world of the next deployment
comes from where the simulated ones came from, its highest CUSUM within T decisions is exchangeable with theirs, and is
above the ceil((n + 1)(1 - alpha))-th smallest of n with a chance of at most alpha (`conformal`). Nothing is assumed
about the distribution of a gain, nor about how the gains of one run hang together. With alpha = rate x T that is the
rate that was asked for. It holds on average over calibrations, for the first T decisions; that later ones are like
them is an assumption. There is no promise below one alarm in (n + 1) T decisions, and no tail is drawn on to make one.

The drift is chosen before that (`choose_drift`), in other worlds: peaks that took part in a choice are no longer
exchangeable with those of the next deployment.
"""

import dataclasses
import math

import numpy as np

from ashore.calibration import conformal
from ashore_runtime import strangeness
from ashore_runtime.change import ChangeDetector
from ashore_runtime.schema import ChangeCalibration
from ashore_runtime.strangeness import Strangeness

USUAL = ChangeCalibration(threshold=math.inf)
DRIFTS = (USUAL.drift, 1.0, 2.0, 3.0)
"""Nats per transition to choose from, the usual one first; all leave room below the clip."""
_MILLION = 1e6
_CLEARLY = 2.0
"""How many times shorter a wait must be before the usual drift is given up for it: thresholds from 100 runs differ by
as much among themselves."""


def check_length(runs: int, run_length: int, false_alarms_per_million: float) -> None:
    """A ValueError with one sentence where so many quiet runs cannot promise this rate."""
    if not (math.isfinite(false_alarms_per_million) and false_alarms_per_million > 0.0):
        raise ValueError(f"A rate of false alarms is positive, not {false_alarms_per_million}.")
    chance = _chance(run_length, false_alarms_per_million)
    if runs < (needed := conformal.fewest(1.0 - chance)):
        raise ValueError(
            f"{false_alarms_per_million:g} false alarms per million decisions need {needed * run_length:,} decisions "
            f"without a change; {runs * run_length:,} promise {_MILLION / ((runs + 1) * run_length):.3g} per million."
        )


def _chance(run_length: int, false_alarms_per_million: float) -> float:
    """Of an alarm within one run; at most an even one, also where every run may have several."""
    return min(false_alarms_per_million * run_length / _MILLION, 0.5)


def choose_drift(gains: np.ndarray, false_alarms_per_million: float) -> float:
    """The drift with which a loud change is noticed soonest; the usual one unless another is clearly faster.

    The wait is threshold / (clip - drift): transitions until an alarm where each says as much as one can. Where some
    quiet worlds have sums that grow, because the head is a little wrong for long, a higher drift lowers the threshold
    by far more than it takes from a loud transition. Where nothing grows, it only takes.

    Args:
        gains: as for `calibrate`, from worlds that do not take part in it.
    """
    runs, length = gains.shape
    check_length(runs, length, false_alarms_per_million)
    detectors = [dataclasses.replace(USUAL, drift=drift) for drift in DRIFTS]
    waits = [_threshold(known, gains, false_alarms_per_million) / (known.clip - known.drift) for known in detectors]
    fastest = int(np.argmin(waits))
    return DRIFTS[fastest] if _CLEARLY * waits[fastest] < waits[0] else DRIFTS[0]


def calibrate(
    gains: np.ndarray, surprise: np.ndarray, false_alarms_per_million: float, drift: float = USUAL.drift
) -> ChangeCalibration:
    """The detector for a rate of false alarms, from simulated worlds without a change.

    Args:
        gains: log likelihood gained by recent evidence, [run, decision], each run from its first decision on; NaN
            where a transition was lost.
        surprise: of the same decisions.
        false_alarms_per_million: decisions being a million.
        drift: chosen without these worlds.
    """
    assert gains.shape == surprise.shape, (gains.shape, surprise.shape)
    runs, length = gains.shape
    check_length(runs, length, false_alarms_per_million)
    known = dataclasses.replace(USUAL, drift=drift)
    levels = [level for row in surprise if (level := highest_mean(row)) is not None]
    return dataclasses.replace(
        known,
        threshold=_threshold(known, gains, false_alarms_per_million),
        false_alarms_per_million=false_alarms_per_million,
        runs=runs,
        run_length=length,
        ood_level=max(levels) if levels else None,
    )


def _threshold(known: ChangeCalibration, gains: np.ndarray, false_alarms_per_million: float) -> float:
    peaks = np.array([peak(known, row) for row in gains])
    threshold = conformal.upper(peaks, 1.0 - _chance(gains.shape[1], false_alarms_per_million))
    # One transition is never enough, however quiet the simulated worlds were.
    return max(threshold, known.clip)


def peak(known: ChangeCalibration, gains: np.ndarray) -> float:
    """The highest CUSUM of one run."""
    detector, total, highest = ChangeDetector(known), 0.0, 0.0
    for gain in gains.tolist():
        total, _ = detector.accumulate(total, gain)
        highest = max(highest, total)
    return highest


def highest_mean(surprise: np.ndarray) -> float | None:
    """The highest running mean of log surprise in one run; None where it is too short to have one."""
    state, highest = Strangeness(), None
    for value in surprise.tolist():
        state = strangeness.after(state, value)
        if state.seen >= strangeness.MEMORY:
            highest = state.mean if highest is None else max(highest, state.mean)
    return highest
