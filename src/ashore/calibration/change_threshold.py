"""How much better recent evidence may predict before it is a change: a threshold from worlds that do not change.

Every quiet run of T decisions has a highest CUSUM, and that is one number per run. If the world of the next deployment
comes from where the simulated ones came from, its highest CUSUM within T decisions is exchangeable with theirs, and is
above the ceil((n + 1)(1 - alpha))-th smallest of n with a chance of at most alpha (`conformal`). Nothing is assumed
about the distribution of a gain, nor about how the gains of one run hang together. With alpha = rate x T that is the
rate that was asked for. It holds on average over calibrations, for the first T decisions; that later ones are like
them is an assumption. There is no promise below one alarm in (n + 1) T decisions, and no tail is drawn on to make one.
"""

import math

import numpy as np

from ashore.calibration import conformal
from ashore_runtime import strangeness
from ashore_runtime.change import ChangeDetector
from ashore_runtime.schema import ChangeCalibration
from ashore_runtime.strangeness import Strangeness

_MILLION = 1e6


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


def calibrate(gains: np.ndarray, surprise: np.ndarray, false_alarms_per_million: float) -> ChangeCalibration:
    """The detector for a rate of false alarms, from simulated worlds without a change.

    Args:
        gains: log likelihood gained by recent evidence, [run, decision], each run from its first decision on; NaN
            where a transition was lost.
        surprise: of the same decisions.
        false_alarms_per_million: decisions being a million.
    """
    assert gains.shape == surprise.shape, (gains.shape, surprise.shape)
    runs, length = gains.shape
    check_length(runs, length, false_alarms_per_million)
    usual = ChangeCalibration(threshold=math.inf)
    peaks = np.array([peak(usual, row) for row in gains])
    threshold = conformal.upper(peaks, 1.0 - _chance(length, false_alarms_per_million))
    levels = [level for row in surprise if (level := highest_mean(row)) is not None]
    return ChangeCalibration(
        # One transition is never enough, however quiet the simulated worlds were.
        threshold=max(threshold, usual.clip),
        drift=usual.drift,
        memory=usual.memory,
        clip=usual.clip,
        false_alarms_per_million=false_alarms_per_million,
        runs=runs,
        run_length=length,
        ood_level=max(levels) if levels else None,
    )


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
