"""A watchdog outside the policy's process: it owns the actuator, and answers silence with a fallback.

    robot.py                                                    policy.py
    with Supervisor([sys.executable, "policy.py"],              link = ActuatorLink()
                    robot.send, manifest) as supervisor:        for _ in Loop(hz=20):
        while robot.is_on():                                        link.send(runtime.act(robot.look()).action)
            supervisor.step()

A policy that was killed, that hangs, or that sends what may not be sent has one thing in common: no fresh action
comes. Within two control periods of the last one the fallback is out, and then once per period, until the operator
calls `reset`. Before the first action it goes out too. Where the system tells at once that the policy's process has
ended (Linux does), nobody waits for an action of the dead. All times are those of the machine's steady clock, which
both processes share. No threads. A supervisor that the machine let wait for too long says so: `Sent.late`, `health`.

This does not replace a hardware emergency stop, nor the time-out that the vendor's controller has for missing
commands: the machine that runs the supervisor can fail too.
"""

import contextlib
import errno
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ashore_runtime import actuator_frame, watchdog
from ashore_runtime.actuator_frame import Frame, Refusal
from ashore_runtime.blind_fallback import BlindFallback, Wish
from ashore_runtime.clock import Clock
from ashore_runtime.limits import Limits, action_box, usual_unless
from ashore_runtime.modes import Mode
from ashore_runtime.refusal import Refused
from ashore_runtime.results import FALLBACK
from ashore_runtime.schema import Manifest
from ashore_runtime.watchdog import Patience, WatchState

POLICY = "policy"
_HANDLE = "ASHORE_ACTUATOR"
"""Environment variable in which the policy finds the number of its socket."""
_MOST_AT_ONCE = 64
"""Frames that are read before the clock is looked at again, however many a policy sends."""
_MOST_TOLD = 65536
"""Bytes of one word from the robot."""
_SLEEP_NOTICED = 500_000_000
"""ns of sleep that latch the fallback; clocks drift by less."""
_SECONDS_TO_DIE = 5.0


class ActuatorLink:
    """The policy's end of the line to the actuator. Sending never waits."""

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
            self._socket.send(actuator_frame.pack(Frame(self._sequence, self._clock.now(), action)))
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.ENOBUFS:  # What other systems than Linux say when there is no room.
                return False
            raise
        return True

    def hear(self, seconds: float) -> bytes | None:
        """The next word of `Supervisor.tell`; None if there is none within so many seconds."""
        self._socket.settimeout(seconds)
        try:
            return self._socket.recv(_MOST_TOLD)
        except (TimeoutError, BlockingIOError):
            return None
        finally:
            self._socket.setblocking(False)

    def close(self) -> None:
        """Say nothing more."""
        self._socket.close()


class Sent(NamedTuple):
    """What went to the actuator."""

    action: np.ndarray
    source: str
    """`policy` or `fallback`."""
    since: int
    """Monotonic time in ns since which it was to be sent: when the policy sent it, when the fallback was due, or when
    the policy was found to be gone."""
    out: int
    """Monotonic time in ns at which the actuator had it; `out - since` is the supervisor's own delay."""
    late: int
    """ns by which a fallback was out later than `Patience` promises; 0 if it was in time."""
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
        fallback: Wish = "ramp_to_zero",
        limits: Limits | None = None,
        patience: Patience | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Nothing runs before `start`, or before the `with` statement; raises `Refused` with one sentence.

        Args:
            command: starts the policy's program, which makes an `ActuatorLink`; when it ends, so has the policy.
            send: gives an action to the robot; must not wait for long.
            manifest: of the policy's bundle, for the control period and the box; `bundle.load(path).manifest`.
            fallback: `hold`, `zero`, `ramp_to_zero`, a table for `brake`, or a function `(last_action) -> action`.
            limits: those of the runtime; `low` and `high` narrow the box, `deadline` says how uneven actions may come.
            patience: how soon the fallback is out; within two control periods if left out.
            clock: where time comes from.
        """
        self._command = list(command)
        self._send = send
        limits, patience = usual_unless(limits), patience or Patience()
        patience.refuse_haste(limits.deadline)
        self._timing = watchdog.timing(patience, manifest.task.control_period)
        self._box = action_box(manifest, limits)
        self._fallback = BlindFallback(fallback, manifest, self._box)
        self._last_action = self._fallback.still
        self._clock = clock or Clock()
        self._slept = self._clock.slept()
        self._state = WatchState(due=self._clock.now())
        self._line: socket.socket | None = None
        self._end: int | None = None
        """Becomes readable when the policy's process ends; None where there is none or nobody tells."""
        self.policy: subprocess.Popen[bytes] | None = None
        """The policy's process, alive or not."""
        self._dying: list[subprocess.Popen[bytes]] = []
        self._tallies = {"forwarded": 0, "fallbacks": 0, "late": 0, "problems": 0} | {why.value: 0 for why in Refusal}
        self._longest_delay = 0

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
        first = self.policy is None
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
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):  # An old or a closed-off system, on which its silence must do.
                self._end = os.pidfd_open(self.policy.pid)
        # Nobody has waited for a fallback before there was a policy.
        due = self._clock.now() if first else self._state.due
        self._state = replace(self._state, due=due, sequence=0)

    def tell(self, word: bytes) -> bool:
        """Tell the policy something, such as what the robot saw; returns whether there was room. It never waits."""
        if self._line is None:
            return False
        self._line.settimeout(0.0)
        try:
            self._line.send(word)
        except OSError:  # A policy that is gone or does not listen is the watchdog's affair.
            return False
        return True

    def step(self) -> Sent | None:
        """Wait for the policy's next action or for the moment of the fallback, and send what is to be sent.

        It returns at the latest when something is due; None says that nothing was. Nothing that the policy, the
        actuator or the fallback does makes it raise.
        """
        if self.mode is Mode.STOPPED:
            return None
        ended = self._wait(self._state.due)
        found = [actuator_frame.unpack(data, self._box) for data in self._arrivals()]
        now = self._clock.now()
        promised = self._state.due + self._timing.margin
        if self._woke_up() or ended:
            self._state = watchdog.give_up(self._state, now)
        due = self._state.due
        frames = [one for one in found if isinstance(one, Frame)]
        decision = watchdog.decide(self._state, now, frames, self._timing)
        self._state = decision.state
        for why in (*(one for one in found if isinstance(one, Refusal)), *decision.refused):
            self._tallies[why.value] += 1
        if decision.frame is not None:
            self._tallies["forwarded"] += 1
            return self._give(decision.frame.action, POLICY, decision.frame.sent, 0)
        if decision.falls_back:
            self._tallies["fallbacks"] += 1
            action, problem = self._fallback(self._last_action)
            return self._give(action, FALLBACK, due, promised, problem)
        return None

    def reset(self) -> Mode:
        """The operator's: leave the fallback with the policy's next fresh action. Restarts nothing; see `start`."""
        self._state = watchdog.reset(self._state)
        return self.mode

    def health(self) -> dict[str, Any]:
        """Everything worth watching, as plain numbers and words."""
        status = "not started" if self.policy is None else "running" if self.policy.poll() is None else "ended"
        return {
            "mode": self.mode.value,
            "policy": status,
            "longest_delay_ms": self._longest_delay * 1e-6,  # Of a fallback, from when it was due until it was out.
            "tallies": dict(self._tallies),
        }

    def close(self) -> None:
        """Kill the policy and send nothing more: whoever calls this has stopped the robot."""
        self._state = replace(self._state, mode=Mode.STOPPED)
        self._kill()
        for process in self._dying:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_SECONDS_TO_DIE)

    def _wait(self, until: int) -> bool:
        """Wait for a frame, for the policy's end or for this instant; returns whether the policy has just ended."""
        if self._line is None:
            self._clock.sleep_until(until)
            return False
        waking = select.poll()
        for one in (self._line, self._end):
            if one is not None:
                waking.register(one, select.POLLIN)
        woken = waking.poll(max(until - self._clock.now(), 0) * 1e-6)
        if self._end is None or self._end not in (handle for handle, _ in woken):
            return False
        self._forget_the_end()
        return True

    def _arrivals(self) -> list[bytes]:
        found: list[bytes] = []
        while self._line is not None and len(found) < _MOST_AT_ONCE:
            self._line.settimeout(0.0)
            try:
                # One byte more than a frame has, so that a longer one is not taken for one.
                found.append(self._line.recv(actuator_frame.size(self._box) + 1))
            except OSError:  # Nothing there, or nobody; both are silence.
                break
        return found

    def _forget_the_end(self) -> None:
        if self._end is not None:
            os.close(self._end)
            self._end = None

    def _woke_up(self) -> bool:
        before, self._slept = self._slept, self._clock.slept()
        return self._slept - before > _SLEEP_NOTICED

    def _give(self, action: np.ndarray, source: str, since: int, promised: int, problem: str = "") -> Sent:
        try:
            self._send(action.copy())
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        out, late = self._clock.now(), 0
        if source == FALLBACK:
            late = max(out - promised, 0)
            self._longest_delay = max(self._longest_delay, out - since)
        self._last_action = action
        self._tallies["late"] += late > 0
        self._tallies["problems"] += bool(problem)
        return Sent(action, source, since, out, late, problem)

    def _kill(self) -> None:
        """End the policy at once: it may hang, and its journal survives this. Nobody waits until it is gone."""
        self._forget_the_end()
        if self._line is not None:
            self._line.close()
            self._line = None
        if self.policy is not None:
            self._dying = [process for process in (*self._dying, self.policy) if process.poll() is None]
            for process in self._dying:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
