"""A watchdog outside the policy's process: it owns the actuator, and answers silence with a fallback.

    robot.py                                                    policy.py
    with Supervisor([sys.executable, "policy.py"],              link = ActuatorLink()
                    robot.send, manifest) as supervisor:        for _ in Loop(hz=20):
        while robot.is_on():                                        link.send(runtime.act(robot.look()).action)
            supervisor.step()

A policy that was killed, that hangs, or that sends what may not be sent has one thing in common: no fresh action
comes. Two control periods after the last one was sent the fallback goes out, once per period, until the operator
calls `reset`. Before the first action it goes out too. All times are those of the machine's steady clock, which both
processes share. No threads, and nothing that is read is ever run.

    frame   "ASHA", CRC-32 of the rest (u32), sequence number (u64), time of sending in ns (i64), action (f32 each)

This does not replace a hardware emergency stop, nor the time-out that the vendor's controller has for missing
commands: the machine that runs the supervisor can fail too.
"""

import contextlib
import errno
import os
import signal
import socket
import struct
import subprocess
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from ashore_runtime import fallback as fallbacks
from ashore_runtime.clock import Clock
from ashore_runtime.fallback import Fallback
from ashore_runtime.limits import Limits, action_box
from ashore_runtime.modes import Mode
from ashore_runtime.refinement import Box
from ashore_runtime.refusal import Refused
from ashore_runtime.results import FALLBACK
from ashore_runtime.schema import Manifest

PATIENCE = 2
"""Control periods for which an action is fresh."""
POLICY = "policy"
WITHOUT_OBSERVATION = ("hold", "zero", "ramp_to_zero", "brake")
"""Fallbacks that look at nothing but the last action."""
BlindFallback = Callable[[np.ndarray], np.ndarray]
"""The user's own: `(last_action) -> action`."""

_HANDLE = "ASHORE_ACTUATOR"
"""Environment variable in which the policy finds the number of its socket."""
_MAGIC = b"ASHA"
_HEAD = struct.Struct("<4sI")
_STAMP = struct.Struct("<Qq")
_MOST_AT_ONCE = 64
"""Frames that are read before the clock is looked at again, however many a policy sends."""
_SLEEP_NOTICED = 500_000_000
"""ns of sleep that latch the fallback; clocks drift by less."""
_SECONDS_TO_DIE = 5.0


# What travels between the processes.


class Frame(NamedTuple):
    """One action on its way to the actuator."""

    sequence: int
    sent: int
    """Monotonic time in ns."""
    action: np.ndarray


class Refusal(Enum):
    """Why a frame was not forwarded."""

    MALFORMED = "malformed"
    NOT_FINITE = "not_finite"
    OUTSIDE = "outside"
    """Outside the action box."""
    OLD = "old"
    """Not newer than the last one, sent too long ago, or from the future."""
    LATCHED = "latched"
    """Fresh, while the fallback waits for `reset`."""


def pack(frame: Frame) -> bytes:
    """A frame as bytes; a number that float32 does not have becomes infinite, and is refused over there."""
    with np.errstate(all="ignore"):
        values = np.asarray(frame.action).astype("<f4").tobytes()
    content = _STAMP.pack(frame.sequence, frame.sent) + values
    return _HEAD.pack(_MAGIC, zlib.crc32(content)) + content


def unpack(data: bytes, box: Box) -> Frame | Refusal:
    """The frame that any bytes are, if its action may be sent."""
    if len(data) != _frame_bytes(box):
        return Refusal.MALFORMED
    magic, crc = _HEAD.unpack_from(data)
    if magic != _MAGIC or zlib.crc32(data[_HEAD.size :]) != crc:
        return Refusal.MALFORMED
    sequence, sent = _STAMP.unpack_from(data, _HEAD.size)
    action = np.frombuffer(data, "<f4", offset=_HEAD.size + _STAMP.size).astype(np.float32)
    if not np.isfinite(action).all():
        return Refusal.NOT_FINITE
    if not ((action >= box.low) & (action <= box.high)).all():
        return Refusal.OUTSIDE
    return Frame(sequence, sent, action)


def _frame_bytes(box: Box) -> int:
    return _HEAD.size + _STAMP.size + 4 * len(box.low)


# What is sent when: a pure state machine. READY -action-> ACTIVE -silence-> FALLBACK -reset-> READY


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


def decide(state: WatchState, now: int, arrived: Sequence[Frame], period: int) -> Decision:
    """What to send at monotonic time `now`, in ns, given the frames that arrived since the last decision.

    Of several fresh frames the newest is forwarded. What counts is when a frame was sent, not when it was read: a
    supervisor that was held up neither forwards an old action nor accuses a policy that was on time.
    """
    patience = PATIENCE * period
    newest, refused = None, []
    for frame in arrived:
        if frame.sequence <= state.sequence or not now - patience < frame.sent <= now:
            refused.append(Refusal.OLD)
            continue
        if frame.sent >= state.due:
            state = latch(state)
        if state.mode is Mode.FALLBACK:
            refused.append(Refusal.LATCHED)
            continue
        newest = frame
        state = WatchState(frame.sent + patience, Mode.ACTIVE, frame.sequence)
    if newest is not None:
        return Decision(state, newest, False, tuple(refused))
    if now < state.due:
        return Decision(state, None, False, tuple(refused))
    # Absolute times, so that lateness does not add up; missed ones are skipped.
    following = state.due + ((now - state.due) // period + 1) * period
    return Decision(replace(latch(state), due=following), None, True, tuple(refused))


def latch(state: WatchState) -> WatchState:
    """The policy has lost the actuator, if it had it."""
    return replace(state, mode=Mode.FALLBACK) if state.mode is Mode.ACTIVE else state


def reset(state: WatchState) -> WatchState:
    """The next fresh action is forwarded again."""
    return replace(state, mode=Mode.READY) if state.mode is Mode.FALLBACK else state


# The processes.


class ActuatorLink:
    """The policy's end of the line to the actuator. It never waits."""

    def __init__(self, handle: int | None = None, clock: Clock | None = None) -> None:
        """Args: the socket's number, None for the one that the supervisor left; where time comes from."""
        try:
            handle = int(os.environ.pop(_HANDLE)) if handle is None else handle
            self._socket = socket.socket(fileno=handle)
        except (KeyError, ValueError, OSError) as error:
            raise Refused("There is no line to an actuator: this program was not started by a supervisor.") from error
        self._socket.setblocking(False)
        self._socket.set_inheritable(False)
        self._clock = clock or Clock()
        self._sequence = 0

    def send(self, action: Any) -> bool:
        """Send an action on; returns whether there was room for it.

        Raises `ConnectionError` when the supervisor is gone: without an actuator a policy has nothing left to do.
        """
        self._sequence += 1
        try:
            self._socket.send(pack(Frame(self._sequence, self._clock.now(), action)))
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.ENOBUFS:  # What other systems than Linux say when there is no room.
                return False
            raise
        return True

    def close(self) -> None:
        """Say nothing more."""
        self._socket.close()


class Sent(NamedTuple):
    """What went to the actuator."""

    action: np.ndarray
    source: str
    """`policy` or `fallback`."""
    since: int
    """Monotonic time in ns since which it was to be sent: when the policy sent it, or when the fallback was due."""
    at: int
    """Monotonic time in ns at which it was decided; `at - since` is the supervisor's own delay."""
    problem: str
    """What the actuator, or the user's fallback, raised; empty if nothing."""


class Supervisor:
    """Starts the policy, forwards its actions, and sends the fallback when none comes. `step` does all of it."""

    def __init__(
        self,
        command: Sequence[str],
        send: Callable[[np.ndarray], object],
        manifest: Manifest,
        *,
        fallback: str | Mapping[str, Any] | BlindFallback = "ramp_to_zero",
        limits: Limits | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Nothing runs before `start`, or before the `with` statement; raises `Refused` with one sentence.

        Args:
            command: starts the policy's program, which makes an `ActuatorLink`.
            send: gives an action to the robot; must not wait for long.
            manifest: of the policy's bundle, for the control period and the box; `bundle.load(path).manifest`.
            fallback: `hold`, `zero`, `ramp_to_zero`, a table for `brake`, or a function `(last_action) -> action`.
            limits: those of the runtime; `low` and `high` narrow the box.
            clock: where time comes from.
        """
        self._command = list(command)
        self._send = send
        self._box = action_box(manifest, limits or Limits())
        self._fallback = _build(fallback, manifest, self._box)
        self._unseen = np.zeros(len(manifest.observation), np.float32)
        self._still = self._box.project(np.zeros_like(self._box.low))
        self._last_action = self._still
        self._period = round(manifest.task.control_period * 1e9)
        self._clock = clock or Clock()
        self._slept = self._clock.slept()
        self._state = WatchState(due=self._clock.now())
        self._line: socket.socket | None = None
        self.policy: subprocess.Popen[bytes] | None = None
        """The policy's process, alive or not."""
        self._dying: list[subprocess.Popen[bytes]] = []
        self._tallies = {"forwarded": 0, "fallbacks": 0, "problems": 0} | {why.value: 0 for why in Refusal}

    def __enter__(self) -> "Supervisor":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def mode(self) -> Mode:
        """READY until the first action, ACTIVE while they come, FALLBACK until `reset`, STOPPED once closed."""
        return self._state.mode

    def start(self) -> None:
        """Start the policy; one that was started before is killed. A latched fallback stays latched."""
        if self.mode is Mode.STOPPED:
            raise Refused("This supervisor is closed.")
        if not hasattr(socket, "AF_UNIX"):
            raise Refused("A supervisor needs a system with Unix sockets.")
        self._kill()
        # Datagrams: a frame arrives whole or not at all, and nonsense cannot shift those after it.
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._state = replace(self._state, sequence=0)
        with theirs:
            try:
                self.policy = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    env=os.environ | {_HANDLE: str(theirs.fileno())},
                    # Ctrl-C is for the supervisor, which decides what becomes of the policy.
                    start_new_session=True,
                )
            except OSError as error:
                self._line.close()
                self._line = None
                raise Refused(f"The policy '{self._command[0]}' cannot be started ({error.strerror}).") from error

    def step(self) -> Sent | None:
        """Wait for the policy's next action or for the moment of the fallback, and send what is to be sent.

        It returns at the latest when something is due; None says that nothing was. Nothing that the policy, the
        actuator or the fallback does makes it raise.
        """
        if self.mode is Mode.STOPPED:
            return None
        arrived = self._arrivals(self._state.due)
        now = self._clock.now()
        if self._woke_up():
            self._state = replace(latch(self._state), due=now)
        due = self._state.due
        found = [unpack(data, self._box) for data in arrived]
        frames = [one for one in found if isinstance(one, Frame)]
        decision = decide(self._state, now, frames, self._period)
        self._state = decision.state
        for why in (*(one for one in found if isinstance(one, Refusal)), *decision.refused):
            self._tallies[why.value] += 1
        if decision.frame is not None:
            self._tallies["forwarded"] += 1
            return self._give(decision.frame.action, POLICY, decision.frame.sent, now)
        if decision.falls_back:
            self._tallies["fallbacks"] += 1
            action, problem = self._fall_back()
            return self._give(action, FALLBACK, due, now, problem)
        return None

    def reset(self) -> Mode:
        """The operator's: leave the fallback with the policy's next fresh action. Restarts nothing; see `start`."""
        self._state = reset(self._state)
        return self.mode

    def health(self) -> dict[str, Any]:
        """Everything worth watching, as plain numbers and words."""
        status = "not started" if self.policy is None else "running" if self.policy.poll() is None else "ended"
        return {"mode": self.mode.value, "policy": status, "tallies": dict(self._tallies)}

    def close(self) -> None:
        """Kill the policy and send nothing more: whoever calls this has stopped the robot."""
        self._state = replace(self._state, mode=Mode.STOPPED)
        self._kill()
        for process in self._dying:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_SECONDS_TO_DIE)

    def _arrivals(self, until: int) -> list[bytes]:
        """What has arrived; if nothing has, what arrives first until then."""
        if self._line is None:
            self._clock.sleep_until(until)
            return []
        found: list[bytes] = []
        wait = max(until - self._clock.now(), 0) * 1e-9
        while len(found) < _MOST_AT_ONCE:
            self._line.settimeout(0.0 if found else wait)
            try:
                # One byte more than a frame has, so that a longer one is not taken for one.
                found.append(self._line.recv(_frame_bytes(self._box) + 1))
            except OSError:  # Nothing there, or nobody; both are silence.
                break
        return found

    def _woke_up(self) -> bool:
        before, self._slept = self._slept, self._clock.slept()
        return self.mode is Mode.ACTIVE and self._slept - before > _SLEEP_NOTICED

    def _fall_back(self) -> tuple[np.ndarray, str]:
        """The fallback's action, or the one nearest to zero if even that fails; and what failed."""
        try:
            action = np.asarray(self._fallback(self._unseen, self._last_action.copy())).astype(np.float32)
            if action.shape != self._still.shape or not np.isfinite(action).all():
                raise ValueError(f"The fallback gave {action}.")
            return self._box.project(action), ""
        except Exception as error:
            return self._still, f"{type(error).__name__}: {error}"

    def _give(self, action: np.ndarray, source: str, since: int, now: int, problem: str = "") -> Sent:
        try:
            self._send(action.copy())
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        self._last_action = action
        self._tallies["problems"] += bool(problem)
        return Sent(action, source, since, now, problem)

    def _kill(self) -> None:
        """End the policy at once: it may hang, and its journal survives this. Nobody waits until it is gone."""
        if self._line is not None:
            self._line.close()
            self._line = None
        if self.policy is not None:
            self._dying = [process for process in (*self._dying, self.policy) if process.poll() is None]
            for process in self._dying:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)


def _build(wish: str | Mapping[str, Any] | BlindFallback, manifest: Manifest, box: Box) -> Fallback:
    if callable(wish):
        return fallbacks.build(lambda _, last_action: wish(last_action), manifest, box)
    kind = wish if isinstance(wish, str) else wish.get("kind")
    if kind not in WITHOUT_OBSERVATION:
        raise Refused(f"A supervisor sees no observation: its fallbacks are {', '.join(WITHOUT_OBSERVATION)}.")
    return fallbacks.build(wish, manifest, box)
