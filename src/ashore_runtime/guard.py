"""What may be believed of an observation: numbers, shape, range, movement, age.

A value outside its declared range by at most three standard deviations of training is clipped and flagged: sensors
overshoot. Farther out, or not a number at all, and the observation is not used.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ashore_runtime import setting_checks
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
    stuck_element_after: int = 0
    """Observations in a row with one number the same while most others move that mean a stuck sensor; 0 never does.
    What cannot be told is said in `RestingElements`."""

    def __post_init__(self) -> None:
        setting_checks.count("stuck_steps", self.stuck_steps)
        setting_checks.positive("max_age", self.max_age)
        setting_checks.count("stuck_element_after", self.stuck_element_after)


class Verdict(NamedTuple):
    """An observation as it may be used."""

    values: np.ndarray | None
    """float32, inside the declared range; None when it must not be used."""
    reasons: Reason


class RestingElements:
    """Finds a single number that moved before, and now rests while most others move.

    Zero and the declared bounds are where a lidar that sees nothing and a wheel that stands may rest for ever: a sensor
    that fails to such a value is not found. A number that stops at any other value for an honest reason (a gear, a
    set-point, a simulator without noise) is a false alarm, which is why the guard asks only on request.
    """

    def __init__(self, low: np.ndarray, high: np.ndarray, after: int) -> None:
        self._low, self._high, self._after = low, high, after
        self._last: np.ndarray | None = None
        self._has_moved = np.zeros(low.shape, bool)
        self._same = np.ones(low.shape, np.int64)
        """Observations in a row that showed an element's number; those in which little else moved are not counted."""

    def stuck(self, values: np.ndarray) -> bool:
        """Whether, with this observation, some element has rested for too long."""
        # As bits, because 0.0 and -0.0 are two readings.
        bits = values.view(np.uint32).copy()
        last, self._last = self._last, bits
        if last is None:
            return False
        moved = bits != last
        self._has_moved |= moved
        telling = self._has_moved & (values > self._low) & (values < self._high) & (values != 0.0)
        most_move = 2 * np.count_nonzero(telling & moved) >= np.count_nonzero(telling)
        self._same = np.where(moved, 1, self._same + (telling & most_move))
        return bool((self._same >= self._after).any())


class Guard:
    """Checks one stream of observations; `forget` starts a new one."""

    def __init__(self, manifest: Manifest, deviation: np.ndarray, settings: GuardSettings) -> None:
        low = [-np.inf if field.low is None else field.low for field in manifest.observation]
        high = [np.inf if field.high is None else field.high for field in manifest.observation]
        self._low, self._high = np.array(low, np.float32), np.array(high, np.float32)
        # The same bounds whatever the networks compute in: observations are float32.
        tolerated = np.float32(TOLERATED_DEVIATIONS) * deviation.astype(np.float32)
        self._lowest, self._highest = self._low - tolerated, self._high + tolerated
        self._shape = self._low.shape
        self._settings = settings
        self._max_age = settings.max_age * manifest.task.control_period * 1e9
        self._fields = manifest.observation
        self.last_fault: str | None = None
        """What was wrong with the last observation that could not be used, in words; None before the first."""
        self.forget()

    def forget(self) -> None:
        """The next observation begins a new stream."""
        self._last_bytes = b""
        self._repeats = 0
        self._last_time: int | None = None
        after = self._settings.stuck_element_after
        self._resting = RestingElements(self._low, self._high, after) if after else None

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
            if self._resting is not None and self._resting.stuck(verdict.values):
                reasons |= Reason.STUCK
        if not reasons & OBSERVATION_FAULTS:
            return Verdict(verdict.values, reasons)
        if verdict.values is not None:
            self.last_fault = f"the observation is {(reasons & OBSERVATION_FAULTS).words()}"
        return Verdict(None, reasons)

    def values(self, observation: Any) -> Verdict:
        """Judge numbers alone, without memory: type, shape, finiteness, range."""
        try:
            given = np.asarray(observation)
        except (ValueError, TypeError, Warning):
            # NumPy before 1.24 only warns of rows of different lengths, and a caller may have warnings raised.
            return self._fault(Reason.NOT_AN_ARRAY, "the observation is not an array of numbers")
        if given.dtype.kind not in _NUMBERS:
            return self._fault(Reason.NOT_AN_ARRAY, "the observation is not an array of numbers")
        if given.shape != self._shape:
            return self._fault(Reason.SHAPE, f"the observation has the shape {given.shape} instead of {self._shape}")
        with np.errstate(all="ignore"):
            values = given.astype(np.float32)
        # NaN compares false, so that one comparison finds it and everything that is too far out.
        inside = (values >= self._lowest) & (values <= self._highest)
        if not inside.all():
            reason = Reason.OUT_OF_RANGE if np.isfinite(values).all() else Reason.NOT_FINITE
            return self._fault(reason, self._outside(values, inside))
        clipped = np.minimum(np.maximum(values, self._low), self._high)
        if not np.isfinite(clipped).all():
            # A field without bounds lets infinity through the comparison.
            return self._fault(Reason.NOT_FINITE, self._outside(values, np.isfinite(clipped)))
        return Verdict(clipped, Reason.NONE if (clipped == values).all() else Reason.CLIPPED)

    def _fault(self, reason: Reason, words: str) -> Verdict:
        self.last_fault = words
        return Verdict(None, reason)

    def _outside(self, values: np.ndarray, inside: np.ndarray) -> str:
        place = int(np.argmin(inside))
        low, high = self._low[place], self._high[place]
        return f"{self._fields[place].name} is {values[place]:g}, allowed {low:g} to {high:g}"

    def _age(self, now: int, taken: int | None) -> Reason:
        if taken is None:
            return Reason.NONE
        if (self._last_time is not None and taken <= self._last_time) or taken > now + self._max_age:
            return Reason.OUT_OF_ORDER
        self._last_time = taken
        return Reason.STALE if now - taken > self._max_age else Reason.NONE
