"""One axis of a chart: the range it shows, where each number lies on it, and the round numbers beside it."""

import math
from typing import Literal, NamedTuple

Number = float | None
Scale = Literal["linear", "whole", "log", "counts"]

_MOST_TICKS = 5
_MOST_COUNT_TICKS = 11
_ROOM = 0.06
"""Share of the range that is left free above and below the data."""
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_FEW_DECADES = 2.5


class Axis(NamedTuple):
    """What is drawn along one side."""

    label: str
    scale: Scale = "linear"
    """`whole` has no ticks between whole numbers; `counts` is logarithmic with a place for 0: N = 0, 1, 2, 4, ..."""
    zero: bool = False
    """Whether 0 belongs to the range, whatever the data."""
    least: Number = None
    """Lower values are drawn there."""
    reach: tuple[float, ...] = ()
    """What else must be in the range."""


class Tick(NamedTuple):
    """A number on an axis."""

    at: float
    text: str


class Ruler:
    """Numbers to places on one axis, from 0 to 1."""

    def __init__(self, axis: Axis, values: list[float], tight: bool) -> None:
        self.axis = axis
        self.values = sorted(set(values))
        if axis.scale == "log":
            values = [value for value in values if value > 0] or [1.0]
        low, high = min(values), max(values)
        if axis.zero and axis.scale in ("linear", "whole"):
            low, high = min(low, 0.0), max(high, 0.0)
        if axis.least is not None:
            low, high = max(low, axis.least), max(high, axis.least)
        self.low, self.high = self._scaled(low), self._scaled(high)
        if axis.zero and low == high == 0:
            self.high = 1.0
        elif self.low == self.high:
            gap = 0.1 * abs(self.low) if axis.scale == "linear" and self.low else 0.5
            self.low, self.high = self.low - gap, self.high + gap
        elif not tight:
            gap = _ROOM * (self.high - self.low)
            # What cannot be negative is not given room below zero.
            self.low, self.high = self.low - (0.0 if axis.zero and low == 0 else gap), self.high + gap

    def _scaled(self, value: float) -> float:
        if self.axis.scale == "log":
            return math.log10(value) if value > 0 else self.low
        if self.axis.scale == "counts":
            return 1.0 + math.log2(value) if value >= 1 else value
        return value

    def place(self, value: float) -> float:
        least = self.axis.least
        scaled = self._scaled(value if least is None else max(value, least))
        return (scaled - self.low) / (self.high - self.low)

    def per_cent(self, value: float) -> float:
        return round(100.0 * self.place(value), 2)

    def ticks(self) -> list[Tick]:
        if self.axis.scale in ("linear", "whole"):
            least = 1.0 if self.axis.scale == "whole" else 0.0
            return [Tick(self.per_cent(value), text) for value, text in _nice(self.low, self.high, least)]
        every = -(-len(self.values) // _MOST_COUNT_TICKS)
        chosen = self._decades() if self.axis.scale == "log" else self.values[::every]
        return [Tick(self.per_cent(value), f"{value:g}") for value in chosen]

    def _decades(self) -> list[float]:
        """Powers of ten, with 2 and 5 times each where there are few."""
        between = (1.0, 2.0, 5.0) if self.high - self.low < _FEW_DECADES else (1.0,)
        powers = range(math.floor(self.low), math.ceil(self.high) + 1)
        found = [part * 10.0**power for power in powers for part in between]
        return [value for value in found if self.low - 1e-9 <= math.log10(value) <= self.high + 1e-9]


def _nice(low: float, high: float, least: float) -> list[tuple[float, str]]:
    """Round numbers in a range, at least so far apart, with as many digits as their distance asks for."""
    rough = max((high - low) / _MOST_TICKS, least)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(part * power for part in _STEPS if part * power >= rough * (1.0 - 1e-9))
    values = [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    largest = max(map(abs, values), default=0.0)
    divisor, suffix = next(
        ((size, name) for size, name in ((1e9, " G"), (1e6, " M"), (1e4, " k")) if largest >= size), (1.0, "")
    )
    divisor = 1e3 if suffix == " k" else divisor
    digits = max(0, -math.floor(math.log10(step / divisor) + 1e-9))
    digits += not math.isclose(step / divisor * 10**digits, round(step / divisor * 10**digits), rel_tol=1e-6)
    return [(value, "0" if value == 0 else f"{value / divisor:.{digits}f}{suffix}") for value in values]
