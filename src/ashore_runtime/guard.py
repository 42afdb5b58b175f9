"""What may be believed of an observation: numbers, shape, range, movement, age.

A value outside its declared range by at most three standard deviations of training is clipped and flagged: sensors
overshoot. Farther out, or not a number at all, and the observation is not used.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ashore_runtime.reasons import OBSERVATION_FAULTS, Reason
from ashore_runtime.schema import Manifest

TOLERATED_DEVIATIONS = 3.0
_NUMBERS = "biuf"
"""Kinds of NumPy types that are plain numbers."""


@dataclass(frozen=True)
class GuardSettings:
    """How patient the guard is."""

    stuck_steps: int = 5
    """Identical observations in a row that mean a stuck sensor; 0 never does."""
    max_age: float = 1.5
    """Control periods after which an observation is stale."""


class Verdict(NamedTuple):
    """An observation as it may be used."""

    values: np.ndarray | None
    """float32, inside the declared range; None when it must not be used."""
    reasons: Reason


class Guard:
    """Checks one stream of observations; `forget` starts a new one."""

    def __init__(self, manifest: Manifest, deviation: np.ndarray, settings: GuardSettings) -> None:
        low = [-np.inf if field.low is None else field.low for field in manifest.observation]
        high = [np.inf if field.high is None else field.high for field in manifest.observation]
        self._low, self._high = np.array(low, np.float32), np.array(high, np.float32)
        self._lowest = self._low - np.float32(TOLERATED_DEVIATIONS) * deviation
        self._highest = self._high + np.float32(TOLERATED_DEVIATIONS) * deviation
        self._shape = self._low.shape
        self._settings = settings
        self._max_age = int(settings.max_age * manifest.task.control_period * 1e9)
        self.forget()

    def forget(self) -> None:
        """The next observation begins a new stream."""
        self._last_bytes = b""
        self._repeats = 0
        self._last_time: int | None = None

    def check(self, observation: Any, now: int, taken: int | None = None) -> Verdict:
        """Judge the observation that an action shall rest on.

        Args:
            observation: whatever the caller has.
            now: monotonic time in ns.
            taken: monotonic time at which it was measured, or None if it is fresh.
        """
        reasons = self._age(now, taken)
        verdict = self.values(observation)
        reasons |= verdict.reasons
        if verdict.values is not None:
            seen = verdict.values.tobytes()
            self._repeats = self._repeats + 1 if seen == self._last_bytes else 1
            self._last_bytes = seen
            if self._settings.stuck_steps and self._repeats >= self._settings.stuck_steps:
                reasons |= Reason.STUCK
        return Verdict(None if reasons & OBSERVATION_FAULTS else verdict.values, reasons)

    def values(self, observation: Any) -> Verdict:
        """Judge numbers alone, without memory: type, shape, finiteness, range."""
        try:
            given = np.asarray(observation)
        except (ValueError, TypeError, Warning):
            # NumPy before 1.24 only warns of rows of different lengths, and a caller may have warnings raised.
            return Verdict(None, Reason.NOT_AN_ARRAY)
        if given.dtype.kind not in _NUMBERS:
            return Verdict(None, Reason.NOT_AN_ARRAY)
        if given.shape != self._shape:
            return Verdict(None, Reason.SHAPE)
        with np.errstate(all="ignore"):
            values = given.astype(np.float32)
        # NaN compares false, so that one comparison finds it and everything that is too far out.
        if not ((values >= self._lowest) & (values <= self._highest)).all():
            return Verdict(None, Reason.OUT_OF_RANGE if np.isfinite(values).all() else Reason.NOT_FINITE)
        clipped = np.minimum(np.maximum(values, self._low), self._high)
        if not np.isfinite(clipped).all():
            # A field without bounds lets infinity through the comparison.
            return Verdict(None, Reason.NOT_FINITE)
        return Verdict(clipped, Reason.NONE if (clipped == values).all() else Reason.CLIPPED)

    def _age(self, now: int, taken: int | None) -> Reason:
        if taken is None:
            return Reason.NONE
        if (self._last_time is not None and taken <= self._last_time) or taken > now + self._max_age:
            return Reason.OUT_OF_ORDER
        self._last_time = taken
        return Reason.STALE if now - taken > self._max_age else Reason.NONE
