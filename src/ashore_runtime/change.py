"""Has the world changed? A CUSUM on the surprise of what was observed under what was predicted.

The dynamics head predicts each transition from the posterior's mean; its squared error, in the head's own scale, is the
surprise. While the world stays the same the logarithm of the surprise keeps its level. The level itself differs from
world to world, and a real one need not have that of a simulated one: it is measured in the first transitions of each
deployment, once the posterior has settled, starting from the calibrated value. From then on

    u = (log surprise - level) / deviation, clipped,   high = max(0, high + u - drift),   low = max(0, low - u - drift)

and either sum above the calibrated threshold is a change. Clipping makes one odd transition not enough.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil, log, sqrt

import numpy as np

from ashore_runtime.schema import ChangeCalibration

LEAST_SURPRISE = 1e-8
"""A perfect prediction has no logarithm."""


@dataclass(frozen=True)
class DetectorSettings:
    """When the detector learns and how it reads."""

    settle: int = 32
    """Transitions for the posterior to settle, which are not looked at."""
    baseline: int = 128
    """Transitions after that from which the level is measured."""
    prior_weight: float = 16.0
    """How many transitions the calibrated level counts for."""
    clip: float = 4.0
    """Largest step of u, in deviations."""
    memory: int = 64
    """Transitions that the running mean for the out-of-distribution flag remembers."""


@dataclass(frozen=True)
class DetectorState:
    """Everything the detector knows; plain numbers, so that it can be kept in a journal."""

    seen: int = 0
    total: float = 0.0
    squares: float = 0.0
    """Sums over the baseline of the difference to the calibrated level, and of its square."""
    high: float = 0.0
    low: float = 0.0
    recent: float | None = None
    """Running mean of log surprise."""

    def to_json(self) -> dict[str, float | int | None]:
        return asdict(self)


@dataclass(frozen=True)
class ChangeDetector:
    """Pure functions over a `DetectorState`."""

    calibration: ChangeCalibration
    settings: DetectorSettings = field(default_factory=DetectorSettings)

    def after(self, state: DetectorState, surprise: float) -> tuple[DetectorState, bool]:
        """The state after one more transition, and whether the world has changed."""
        value = log(max(surprise, LEAST_SURPRISE))
        rate = 1.0 / self.settings.memory
        recent = value if state.recent is None else state.recent + rate * (value - state.recent)
        state = replace(state, seen=state.seen + 1, recent=recent)
        watched = state.seen - self.settings.settle
        if watched <= 0:
            return state, False
        if watched <= self.settings.baseline:
            difference = value - self.calibration.mean
            return replace(state, total=state.total + difference, squares=state.squares + difference**2), False
        level, deviation = self.level(state)
        u = min(max((value - level) / deviation, -self.settings.clip), self.settings.clip)
        high = max(0.0, state.high + u - self.calibration.drift)
        low = max(0.0, state.low - u - self.calibration.drift)
        return replace(state, high=high, low=low), max(high, low) > self.calibration.threshold

    def level(self, state: DetectorState) -> tuple[float, float]:
        """Mean and standard deviation of log surprise in this world, shrunk towards the calibrated ones."""
        count = min(max(state.seen - self.settings.settle, 0), self.settings.baseline)
        prior = self.settings.prior_weight
        shift = state.total / max(count, 1)
        within = max(state.squares / max(count, 1) - shift**2, 0.0)
        variance = (prior * self.calibration.deviation**2 + count * within) / (prior + count)
        # The level is the world's own as soon as it has been seen at all; only its spread leans on the calibration.
        return self.calibration.mean + shift, sqrt(variance)

    def out_of_distribution(self, state: DetectorState) -> bool:
        """Whether surprise has been above everything simulated, for as long as the running mean remembers."""
        level = self.calibration.ood_level
        return level is not None and state.seen >= self.settings.memory and (state.recent or level) > level


def statistics(
    streams: Sequence[np.ndarray], drift: float, settings: DetectorSettings | None = None
) -> tuple[np.ndarray, float, float]:
    """What a detector that never stops computes on streams of surprise without a change.

    Args:
        streams: surprise per transition, one array per simulated world, each from its first transition on.
        drift: CUSUM slack.
        settings: the detector's.

    Returns:
        The greater sum at every transition after the baseline, all streams one after another; mean and standard
        deviation of log surprise after the posterior has settled.
    """
    settings = settings or DetectorSettings()
    logs = [np.log(np.maximum(stream, LEAST_SURPRISE))[settings.settle :] for stream in streams]
    every = np.concatenate(logs)
    mean, deviation = float(every.mean()), float(np.mean([stream.std() for stream in logs]))
    endless = ChangeCalibration(threshold=float("inf"), drift=drift, mean=mean, deviation=max(deviation, 1e-6))
    detector = ChangeDetector(endless, settings)
    sums = []
    for stream in streams:
        state = DetectorState()
        for i, surprise in enumerate(stream):
            state, _ = detector.after(state, float(surprise))
            if i >= settings.settle + settings.baseline:
                sums.append(max(state.high, state.low))
    return np.array(sums), mean, deviation


def calibrate(
    streams: Sequence[np.ndarray],
    false_alarms_per_million: float = 1.0,
    drift: float = 0.5,
    settings: DetectorSettings | None = None,
) -> ChangeCalibration:
    """Threshold, level and out-of-distribution mark from simulated worlds without a change.

    A CUSUM's excursions have an exponential tail. The threshold is read off that tail, fitted to the greatest sum of
    each stretch of 100 transitions, because no simulation is long enough to count one alarm in a million.
    """
    settings = settings or DetectorSettings()
    sums, mean, deviation = statistics(streams, drift, settings)
    stretch = 100
    if len(sums) < stretch:
        needed = ceil((stretch + settings.settle + settings.baseline) / max(len(streams), 1))
        raise ValueError(f"Too few transitions to calibrate change detection: at least {needed} per world are needed.")
    peaks = np.array([part.max() for part in np.array_split(sums, len(sums) // stretch)])
    base = float(np.quantile(peaks, 0.5))
    excess = peaks[peaks > base] - base
    scale = float(excess.mean()) if len(excess) else 1.0
    # Share of stretches above h is about exp(-(h - base) / scale) / 2; ask for the share that gives the wanted rate.
    wanted = false_alarms_per_million * 1e-6 * stretch
    threshold = base + scale * max(log(0.5 / wanted), 0.0)
    memory = settings.memory
    means = [
        np.convolve(np.log(np.maximum(stream, LEAST_SURPRISE)), np.full(memory, 1.0 / memory), "valid").max()
        for stream in streams
        if len(stream) >= memory
    ]
    return ChangeCalibration(
        threshold=max(threshold, settings.clip),
        drift=drift,
        mean=mean,
        deviation=max(deviation, 1e-6),
        ood_level=float(max(means)) if means else None,
    )
