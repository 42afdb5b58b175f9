"""Time that cannot be set: everything in the runtime asks this clock, and a test gives it another one."""

import time


class Clock:
    """The machine's steady clock. Setting the date, leap seconds and time servers do not move it."""

    def now(self) -> int:
        """Monotonic time in ns; stands still while the machine sleeps."""
        return time.monotonic_ns()

    def slept(self) -> int:
        """Time in ns that the machine has spent asleep, up to a constant; always 0 where this cannot be known."""
        if not hasattr(time, "CLOCK_BOOTTIME"):
            return 0
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()

    def sleep_until(self, instant: int) -> None:
        """Return at monotonic time `instant`, or at once if it has passed."""
        remaining = instant - self.now()
        if remaining > 0:
            time.sleep(remaining * 1e-9)
