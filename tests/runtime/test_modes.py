"""The modes, with time as an argument: what leads where, and what nothing leads out of."""

import itertools

import pytest

from ashore_runtime.modes import Event, Mode, ModeSettings, ModeState, step

SETTINGS = ModeSettings(hold_steps=2, recover_steps=3)


def after(*events, settings=SETTINGS, now=0):
    state = ModeState()
    for event in events:
        state = step(state, event, now, settings)
    return state


ARMED = (Event.LOADED, Event.ARM)


def test_the_way_up():
    assert after().mode is Mode.INIT
    assert after(Event.ARM).mode is Mode.INIT, "armed before it was loaded"
    assert after(Event.LOADED).mode is Mode.READY
    assert after(Event.LOADED, Event.GOOD, Event.BAD, Event.FAULT).mode is Mode.READY
    assert after(*ARMED).mode is Mode.ACTIVE


def test_bad_observations_are_held_twice_and_then_latched():
    state = after(*ARMED, Event.BAD)
    assert state.mode is Mode.DEGRADED and state.may_hold
    state = after(*ARMED, Event.BAD, Event.BAD)
    assert state.mode is Mode.DEGRADED and state.may_hold
    state = after(*ARMED, Event.BAD, Event.BAD, Event.BAD)
    assert state.mode is Mode.FALLBACK and not state.may_hold
    assert after(*ARMED, *3 * [Event.BAD], *1000 * [Event.GOOD]).mode is Mode.FALLBACK, "the latch opened by itself"
    assert after(*ARMED, *3 * [Event.BAD], Event.ARM).mode is Mode.FALLBACK
    assert after(*ARMED, *3 * [Event.BAD], Event.RESET).mode is Mode.READY


def test_good_decisions_in_between_start_the_count_again():
    assert after(*ARMED, *50 * [Event.BAD, Event.BAD, Event.GOOD]).mode is Mode.DEGRADED


def test_recovery_takes_good_decisions_in_a_row():
    assert after(*ARMED, Event.BAD, Event.GOOD, Event.GOOD).mode is Mode.DEGRADED
    assert after(*ARMED, Event.BAD, Event.GOOD, Event.GOOD, Event.GOOD).mode is Mode.ACTIVE
    assert after(*ARMED, Event.BAD, Event.GOOD, Event.IMPAIRED, Event.GOOD, Event.GOOD).mode is Mode.DEGRADED


def test_a_lost_journal_degrades_and_never_stops():
    assert after(*ARMED, *1000 * [Event.IMPAIRED]).mode is Mode.DEGRADED


@pytest.mark.parametrize("seconds", [0.0, 4.999])
def test_auto_recovery_waits_out_its_time(seconds):
    settings = ModeSettings(hold_steps=0, recover_steps=1, auto_recovery=5.0)
    state = after(*ARMED, Event.BAD, settings=settings)
    assert state.mode is Mode.FALLBACK
    state = step(state, Event.GOOD, round(seconds * 1e9), settings)
    assert state.mode is Mode.FALLBACK
    assert step(state, Event.GOOD, round(5.0 * 1e9), settings).mode is Mode.DEGRADED


def test_sleep_disarms_and_a_fault_latches():
    assert after(*ARMED, Event.SLEPT).mode is Mode.READY
    assert after(*ARMED, Event.FAULT).mode is Mode.FALLBACK
    assert after(*ARMED, Event.FAULT, Event.SLEPT).mode is Mode.FALLBACK


def test_every_sequence_of_four_events():
    # Stopped is for ever, and a runtime acts only after `arm`, with nothing in between that takes it away.
    for events in itertools.product(Event, repeat=4):
        state, armed = after(Event.LOADED), False
        for event in events:
            state = step(state, event, 0, SETTINGS)
            if event is Event.ARM and state.mode is Mode.ACTIVE:
                armed = True
            if event in (Event.SLEPT, Event.RESET, Event.CLOSE) and state.mode in (Mode.READY, Mode.STOPPED):
                armed = False
            if state.mode in (Mode.ACTIVE, Mode.DEGRADED):
                assert armed, events
        if Event.CLOSE in events:
            assert state.mode is Mode.STOPPED, events
