"""Pacing on a fake clock: absolute slots, skipped ones counted, and no drift."""

import time

import pytest

from ashore_runtime import Loop
from runtime.fake_clock import FakeClock

MS = 1_000_000


def starts(durations, hz=20):
    """When each iteration begins, in ms since the first, if the body takes these many ms."""
    clock = FakeClock()
    loop = Loop(hz, clock)
    begun, found = clock.time, []
    for tick, duration in zip(loop, durations, strict=False):
        assert tick == len(found)
        found.append((clock.time - begun) / MS)
        clock.time += duration * MS
    return found, loop


def test_work_does_not_shift_the_slots():
    found, loop = starts([10, 30, 1, 49, 0])
    assert found == [0, 50, 100, 150, 200] and loop.missed == 0


def test_missed_slots_are_skipped_not_made_up_for():
    # The second body takes 120 ms: it should have ended at 100, the slot at 150 has passed when it ends at 170.
    found, loop = starts([10, 120, 10, 10])
    assert found == [0, 50, 200, 250] and loop.missed == 2


def test_stats():
    _, loop = starts([10, 20, 30, 40, 10])
    stats = loop.stats()
    assert stats["ticks"] == 5
    assert (stats["work_p50_ms"], stats["work_max_ms"]) == (20.0, 40.0)
    assert "0 slots missed" in loop.summary()


def test_setting_the_date_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(time, "time", lambda: 0.0)
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    begun = time.monotonic()
    for tick in Loop(200):
        if tick == 4:
            break
    assert 0.02 <= time.monotonic() - begun < 0.5


def test_a_rate_of_nothing_is_refused():
    for hz in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="rate above zero"):
            Loop(hz)
