"""What goes to the actuator when: a pure state machine, with frames and time as its arguments.

READY -action-> ACTIVE -silence, death, sleep-> FALLBACK -reset-> READY
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ashore_runtime.actuator_frame import Frame, Refusal
from ashore_runtime.modes import Mode
from ashore_runtime.refusal import Refused


@dataclass(frozen=True)
class Patience:
    """How soon silence is answered, in control periods."""

    within: float = 2.0
    """The fallback is out so long after the last action was sent, at the latest."""
    margin: float = 0.3
    """It is due so much earlier, because a process that sleeps until an instant wakes up after it, and later still on
    a busy machine. More is safer against that, and leaves less for the policy: with a deadline of 0.6, two actions of
    a policy that is on time may lie 1.6 periods apart. At 20 Hz the default is due after 85 ms: 15 ms for the
    supervisor to be late, 5 ms for the policy beyond its deadline."""

    def refuse_haste(self, deadline: float) -> None:
        """Raise `Refused` where a policy that answers within `deadline` periods would be called silent."""
        apart, left = 1.0 + deadline, self.within - self.margin
        if not (self.margin > 0 and left >= apart):
            raise Refused(
                f"Silence would last {left:g} control periods ({self.within:g} less a margin of {self.margin:g}), and "
                f"the margin must be above 0 and leave the {apart:g} periods that two actions on time may lie apart."
            )


class Timing(NamedTuple):
    """The same in ns."""

    period: int
    silence: int
    """From the last action until the fallback is due."""
    margin: int
    """From there until it must be out."""


def timing(patience: Patience, control_period: float) -> Timing:
    """The instants of a task, whose control period is in seconds."""
    period = control_period * 1e9
    margin = round(patience.margin * period)
    return Timing(round(period), round(patience.within * period) - margin, margin)


@dataclass(frozen=True)
class WatchState:
    """Where the watchdog is."""

    due: int
    """Monotonic time in ns at which the fallback is sent, unless a fresh action comes before."""
    mode: Mode = Mode.READY
    sequence: int = 0
    """Of the last frame that was forwarded."""


class Decision(NamedTuple):
    """What to send now."""

    state: WatchState
    frame: Frame | None
    """To be forwarded."""
    falls_back: bool
    """Whether the fallback is to be sent; never together with a frame."""
    refused: tuple[Refusal, ...]


def decide(state: WatchState, now: int, arrived: Sequence[Frame], timing: Timing) -> Decision:
    """What to send at monotonic time `now`, in ns, given the frames that arrived since the last decision.

    Of several fresh frames the newest is forwarded. What counts is when a frame was sent, not when it was read: a
    supervisor that was held up neither forwards an old action nor accuses a policy that was on time.
    """
    newest, refused = None, []
    for frame in arrived:
        if frame.sequence <= state.sequence or not now - timing.silence < frame.sent <= now:
            refused.append(Refusal.OLD)
            continue
        if frame.sent >= state.due:
            state = latch(state)
        if state.mode is Mode.FALLBACK:
            refused.append(Refusal.LATCHED)
            continue
        newest = frame
        state = WatchState(frame.sent + timing.silence, Mode.ACTIVE, frame.sequence)
    if newest is not None:
        return Decision(state, newest, False, tuple(refused))
    if now < state.due:
        return Decision(state, None, False, tuple(refused))
    # Absolute times, so that lateness does not add up; missed ones are skipped.
    following = state.due + ((now - state.due) // timing.period + 1) * timing.period
    return Decision(replace(latch(state), due=following), None, True, tuple(refused))


def latch(state: WatchState) -> WatchState:
    """The policy has lost the actuator, if it had it."""
    return replace(state, mode=Mode.FALLBACK) if state.mode is Mode.ACTIVE else state


def give_up(state: WatchState, now: int) -> WatchState:
    """Nothing that the policy says counts any more: if it had the actuator, the fallback is due at once."""
    return replace(latch(state), due=min(state.due, now)) if state.mode is Mode.ACTIVE else state


def reset(state: WatchState) -> WatchState:
    """The next fresh action is forwarded again."""
    return replace(state, mode=Mode.READY) if state.mode is Mode.FALLBACK else state
