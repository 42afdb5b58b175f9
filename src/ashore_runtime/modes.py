"""The runtime's modes as a pure state machine: state and event in, state out, time as an argument.

    INIT -loaded-> READY -arm-> ACTIVE <-> DEGRADED -> FALLBACK (latched) -reset-> READY;   any -close-> STOPPED

A bad observation degrades at once. The action is held for a few decisions; if no good observation comes, fallback is
latched. Nothing but `arm` makes a runtime active: neither a restart, nor a reset, nor waking up from sleep.
"""

from dataclasses import dataclass, replace
from enum import Enum

from ashore_runtime import setting_checks


class Mode(Enum):
    """What a runtime is doing."""

    INIT = "init"
    READY = "ready"
    ACTIVE = "active"
    DEGRADED = "degraded"
    FALLBACK = "fallback"
    STOPPED = "stopped"


ACTING = (Mode.ACTIVE, Mode.DEGRADED)
"""Modes in which the policy acts."""


class Event(Enum):
    """What can happen to a runtime."""

    LOADED = "loaded"
    ARM = "arm"
    GOOD = "good"
    """A decision on a good observation, with everything else in order."""
    IMPAIRED = "impaired"
    """A decision on a good observation while something else is not in order (the journal is lost)."""
    BAD = "bad"
    """An observation that must not be used."""
    FAULT = "fault"
    """The policy itself failed, or its action may not be sent."""
    SLEPT = "slept"
    RESET = "reset"
    CLOSE = "close"


@dataclass(frozen=True)
class ModeSettings:
    """How patient the machine is."""

    hold_steps: int = 2
    """Decisions for which the last action is held when observations are bad; the next one falls back."""
    recover_steps: int = 10
    """Good decisions after which a degraded runtime is active again."""
    auto_recovery: float | None = None
    """Seconds in fallback after which good observations end it (degraded first); None leaves that to `reset`."""

    def __post_init__(self) -> None:
        setting_checks.count("hold_steps", self.hold_steps)
        setting_checks.count("recover_steps", self.recover_steps)
        if self.auto_recovery is not None:
            setting_checks.positive("auto_recovery", self.auto_recovery)


@dataclass(frozen=True)
class ModeState:
    """Where the machine is."""

    mode: Mode = Mode.INIT
    bad: int = 0
    """Bad observations in a row."""
    good: int = 0
    """Good decisions in a row."""
    since: int = 0
    """Monotonic time in ns at which the mode was entered."""

    @property
    def may_hold(self) -> bool:
        """Whether a bad observation is answered with the last action rather than with the fallback."""
        return self.mode is Mode.DEGRADED and self.bad > 0


def step(state: ModeState, event: Event, now: int, settings: ModeSettings) -> ModeState:
    """The state after an event at monotonic time `now`, in ns."""
    if state.mode is Mode.STOPPED:
        return state
    if event is Event.CLOSE:
        return _enter(Mode.STOPPED, now)
    if event is Event.LOADED:
        return _enter(Mode.READY, now) if state.mode is Mode.INIT else state
    if event is Event.ARM:
        return _enter(Mode.ACTIVE, now) if state.mode is Mode.READY else state
    if event is Event.RESET:
        return state if state.mode is Mode.INIT else _enter(Mode.READY, now)
    if state.mode is Mode.FALLBACK:
        return _in_fallback(state, event, now, settings)
    if state.mode not in ACTING:
        return state
    if event is Event.SLEPT:
        return _enter(Mode.READY, now)
    if event is Event.FAULT:
        return _enter(Mode.FALLBACK, now)
    if event is Event.BAD:
        bad = state.bad + 1
        if bad > settings.hold_steps:
            return _enter(Mode.FALLBACK, now)
        return replace(_moved(state, Mode.DEGRADED, now), bad=bad, good=0)
    if event is Event.IMPAIRED:
        return replace(_moved(state, Mode.DEGRADED, now), bad=0, good=0)
    good = state.good + 1
    recovered = state.mode is Mode.ACTIVE or good >= settings.recover_steps
    return replace(_moved(state, Mode.ACTIVE if recovered else Mode.DEGRADED, now), bad=0, good=good)


def _in_fallback(state: ModeState, event: Event, now: int, settings: ModeSettings) -> ModeState:
    if event not in (Event.GOOD, Event.IMPAIRED):
        return replace(state, good=0)
    state = replace(state, good=state.good + 1)
    dwelt = settings.auto_recovery is not None and now - state.since >= settings.auto_recovery * 1e9
    if dwelt and state.good >= settings.recover_steps:
        return _enter(Mode.DEGRADED, now)
    return state


def _enter(mode: Mode, now: int) -> ModeState:
    return ModeState(mode, since=now)


def _moved(state: ModeState, mode: Mode, now: int) -> ModeState:
    return state if state.mode is mode else replace(state, mode=mode, since=now)
