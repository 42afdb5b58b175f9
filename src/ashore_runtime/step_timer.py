"""Whether another refinement step fits before the deadline, judged by how long recent steps took."""

from collections import deque

from ashore_runtime.clock import Clock

_REMEMBERED = 32
_MARGIN = 1.2
"""A step is begun only if 1.2 times the slowest recent one still fits."""


class StepTimer:
    """Ask it before every step, with the number of steps done; set `deadline` first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent: deque[int] = deque(maxlen=_REMEMBERED)
        self._last = 0
        self.deadline = 0
        """Monotonic time in ns."""

    def __call__(self, done: int) -> bool:
        now = self._clock.now()
        if done:
            self._recent.append(now - self._last)
        self._last = now
        return now + _MARGIN * max(self._recent, default=0) < self.deadline

    def finish(self, done: int) -> None:
        """After the last step, which no question has followed."""
        if done:
            self._recent.append(self._clock.now() - self._last)
