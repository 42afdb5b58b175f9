"""The running mean of log surprise: by hand, and against whatever comes."""

from math import inf, log, nan

import pytest

from ashore_runtime import strangeness
from ashore_runtime.strangeness import MEMORY, Strangeness


def after(state, *values):
    for value in values:
        state = strangeness.after(state, value)
    return state


def test_a_plain_mean_that_becomes_a_running_one():
    state = after(Strangeness(), 1.0, *[2.0] * 3)
    assert state.mean == pytest.approx(0.75 * log(2.0)) and state.seen == 4
    state = after(Strangeness(), *[1.0] * MEMORY, 2.0)
    assert state.mean == pytest.approx(log(2.0) / MEMORY)


def test_it_speaks_only_when_its_memory_is_full_and_where_there_is_a_level():
    state = after(Strangeness(), *[10.0] * (MEMORY - 1))
    assert not state.above(1.0)
    state = after(state, 10.0)
    assert state.above(1.0) and not state.above(log(10.0) + 0.1) and not state.above(None)


def test_whatever_comes_it_stays_a_number():
    assert after(Strangeness(0.5, 3), nan) == Strangeness(0.5, 3)
    assert after(Strangeness(), inf, 0.0, -1.0).mean == pytest.approx((log(1e12) + 2 * log(1e-8)) / 3)


def test_it_comes_back_and_what_is_none_is_refused():
    state = after(Strangeness(), 0.1, 0.7)
    assert strangeness.from_json(state.to_json()) == state
    for broken in ({}, {"mean": nan, "seen": 1}, {"mean": 0.0, "seen": -1}, {"mean": None, "seen": 1}):
        with pytest.raises((ValueError, KeyError, TypeError)):
            strangeness.from_json(broken)
