"""A clock that a test moves by hand."""

from ashore_runtime.clock import Clock


class FakeClock(Clock):
    """Stands still until it is moved; every question may cost `tick` ns."""

    def __init__(self, tick: int = 0) -> None:
        self.time = 1_000_000_000
        self.asleep = 0
        self.tick = tick

    def now(self) -> int:
        self.time += self.tick
        return self.time

    def slept(self) -> int:
        return self.asleep

    def sleep_until(self, instant: int) -> None:
        self.time = max(self.time, instant)
