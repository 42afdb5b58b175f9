"""Pacing: decisions at absolute times, so that lateness does not add up; missed slots are skipped, not made up for."""

import math
from collections import deque
from collections.abc import Iterator

from ashore_runtime.clock import Clock

WINDOW = 4096
"""Iterations that the percentiles look back on."""


class Loop:
    """`for tick in Loop(hz=20)`: the body runs once per slot; `stats()` says how that went."""

    def __init__(self, hz: float, clock: Clock | None = None) -> None:
        if not (math.isfinite(hz) and hz > 0):
            raise ValueError(f"A loop needs a rate above zero, not {hz}.")
        self.period = round(1e9 / hz)
        """In ns."""
        self.ticks = 0
        self.missed = 0
        """Slots that passed while the body was still running."""
        self._clock = clock or Clock()
        self._work: deque[int] = deque(maxlen=WINDOW)
        self._late: deque[int] = deque(maxlen=WINDOW)
        self._begun = 0

    def __iter__(self) -> Iterator[int]:
        clock = self._clock
        self._begun = slot = clock.now()
        while True:
            begun = clock.now()
            self._late.append(begun - slot)
            yield self.ticks
            self.ticks += 1
            now = clock.now()
            self._work.append(now - begun)
            slot += self.period
            if now > slot:
                skipped = -((slot - now) // self.period)
                self.missed += skipped
                slot += skipped * self.period
            clock.sleep_until(slot)

    def stats(self) -> dict[str, float]:
        """Achieved rate, and p50, p99 and maximum in ms of the body's time and of the lateness of its start."""
        elapsed = (self._clock.now() - self._begun) * 1e-9
        found = {"hz": self.ticks / elapsed if elapsed > 0 else 0.0, "ticks": self.ticks, "missed": self.missed}
        for name, values in (("work", sorted(self._work)), ("late", sorted(self._late))):
            for label, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
                place = max(0, math.ceil(share * len(values)) - 1)
                found[f"{name}_{label}_ms"] = values[place] * 1e-6 if values else 0.0
        return found

    def summary(self) -> str:
        """The same in one line."""
        found = self.stats()
        return (
            f"{found['hz']:.1f} Hz, {found['ticks']:.0f} decisions, {found['missed']:.0f} slots missed; "
            f"work p50 {found['work_p50_ms']:.2f}, p99 {found['work_p99_ms']:.2f}, max {found['work_max_ms']:.2f} ms; "
            f"late p50 {found['late_p50_ms']:.2f}, p99 {found['late_p99_ms']:.2f} ms"
        )
