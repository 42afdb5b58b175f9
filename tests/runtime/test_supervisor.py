"""The watchdog outside the policy's process: silence of any kind is answered with the fallback after two periods.

The numbers T12, T27 and T28 are those of the deployment design. Whether a decision is right is tested on a fake clock;
with real processes only what no busy machine can change: when a fallback was due, and what came after it.
"""

import itertools
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ashore_runtime import ActuatorLink, Limits, Mode, Refused, Runtime, Supervisor, fallback
from ashore_runtime.refinement import Box
from ashore_runtime.supervisor import (
    POLICY,
    WITHOUT_OBSERVATION,
    Decision,
    Frame,
    Refusal,
    Sent,
    WatchState,
    decide,
    latch,
    pack,
    reset,
    unpack,
)
from runtime import small_bundle
from runtime.fake_clock import FakeClock
from volumes import volume

MANIFEST = small_bundle.manifest()
BOX = Box(np.full(2, -1.0, np.float32), np.full(2, 1.0, np.float32))
ACTION = np.array([0.5, -0.25], np.float32)
MS = 1_000_000
PERIOD = 50 * MS


def frame(sequence: int, sent_ms: float, action: Any = ACTION) -> Frame:
    return Frame(sequence, round(sent_ms * MS), np.asarray(action, np.float32))


# Frames


def test_a_frame_says_the_same_at_both_ends():
    found = unpack(pack(Frame(7, 123456789, ACTION)), BOX)
    assert isinstance(found, Frame) and (found.sequence, found.sent) == (7, 123456789)
    assert found.action.dtype == np.float32 and found.action.tobytes() == ACTION.tobytes()
    # 4 magic, 4 CRC-32, 8 sequence number, 8 time, 2 x 4 action.
    assert len(pack(Frame(7, 123456789, ACTION))) == 32


def test_every_flipped_bit_and_every_other_length_is_found():
    good = pack(frame(1, 10))
    for bit in range(8 * len(good)):
        damaged = bytearray(good)
        damaged[bit // 8] ^= 1 << bit % 8
        assert unpack(bytes(damaged), BOX) is Refusal.MALFORMED, bit
    for length in range(len(good)):
        assert unpack(good[:length], BOX) is Refusal.MALFORMED
    assert unpack(good + b"\0", BOX) is Refusal.MALFORMED
    assert unpack(pack(frame(1, 10, [0.5])), BOX) is Refusal.MALFORMED, "another robot's"


def test_random_bytes_are_no_frames():
    generator = np.random.default_rng(0)
    size = len(pack(frame(1, 10)))
    for _ in range(volume(5_000, 500_000)):
        assert unpack(generator.bytes(size), BOX) is Refusal.MALFORMED


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ([np.nan, 0.0], Refusal.NOT_FINITE),
        ([0.0, np.inf], Refusal.NOT_FINITE),
        ([0.0, -np.inf], Refusal.NOT_FINITE),
        ([1e300, 0.0], Refusal.NOT_FINITE),
        ([1e30, 0.0], Refusal.OUTSIDE),
        ([np.nextafter(np.float32(1.0), np.float32(2.0)), 0.0], Refusal.OUTSIDE),
        ([0.0, -1.5], Refusal.OUTSIDE),
    ],
)
def test_actions_that_may_not_be_sent(action, why):
    assert unpack(pack(Frame(1, 0, np.array(action))), BOX) is why


def test_the_edge_of_the_box_is_inside():
    assert isinstance(unpack(pack(frame(1, 0, [1.0, -1.0])), BOX), Frame)


# The state machine. Times are in ms, the period is 50.


def told(state: WatchState, now_ms: float, *arrived: Frame) -> Decision:
    return decide(state, round(now_ms * MS), arrived, PERIOD)


def active(sent_ms: float, sequence: int = 1) -> WatchState:
    return told(WatchState(due=0), sent_ms, frame(sequence, sent_ms)).state


def test_before_the_first_action_the_fallback_is_sent_once_per_period_and_does_not_latch():
    state = WatchState(due=0)
    sent = []
    for now in range(0, 201, 10):
        decision = told(state, now)
        state = decision.state
        sent += [now] if decision.falls_back else []
    assert sent == [0, 50, 100, 150, 200] and state.mode is Mode.READY
    decision = told(state, 210, frame(1, 209))
    assert decision.frame is not None and decision.state.mode is Mode.ACTIVE


def test_silence_of_two_periods_latches_and_the_fallback_follows_every_period():
    # Sent at 120, read at 121: fresh until 220. Then every 50 ms; the look at 330 is late for 320, not for 370.
    decision = told(WatchState(due=0), 121, frame(1, 120))
    assert decision.frame is not None and not decision.falls_back and decision.state.due == 220 * MS
    state, sent = decision.state, []
    for now in (170, 219.9, 220, 269, 270, 330, 369, 370):
        decision = told(state, now)
        assert decision.frame is None
        state = decision.state
        sent += [now] if decision.falls_back else []
        assert (state.mode is Mode.FALLBACK) == (now >= 220)
    assert sent == [220, 270, 330, 370] and state.due == 420 * MS


def test_each_fresh_action_is_forwarded_and_moves_the_moment_of_the_fallback():
    state = WatchState(due=0)
    for sequence, sent in enumerate((0, 50, 149, 160), start=1):
        decision = told(state, sent, frame(sequence, sent))
        assert decision.frame is not None and decision.frame.sequence == sequence
        state = decision.state
        assert state == WatchState((sent + 100) * MS, Mode.ACTIVE, sequence)


def test_the_newest_of_several_is_forwarded():
    decision = told(active(0), 60, frame(2, 20), frame(3, 40), frame(4, 60))
    assert decision.frame is not None and decision.frame.sequence == 4 and decision.refused == ()
    assert decision.state.due == 160 * MS


@pytest.mark.parametrize(
    ("late", "what"),
    [
        (frame(5, 60), "the same again"),
        (frame(4, 60), "an older one"),
        (frame(6, -40), "exactly two periods old"),
        (frame(6, -3_600_000), "very old"),
        (frame(6, 60.001), "from the future"),
        (frame(6, 3_600_000), "from the far future"),
        (frame(0, 60), "the number that no frame has"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_old_frames_are_refused_and_change_nothing(late, what):
    state = active(10, sequence=5)
    decision = told(state, 60, late)
    assert decision == Decision(state, None, False, (Refusal.OLD,)), what


def test_refused_frames_do_not_keep_the_fallback_away():
    state = active(0, sequence=5)
    for now in range(10, 100, 10):
        decision = told(state, now, frame(5, now), frame(6, now + 1))
        assert decision.refused == (Refusal.OLD, Refusal.OLD) and not decision.falls_back
        state = decision.state
    assert told(state, 100, frame(5, 100)).falls_back


def test_latched_until_reset_and_then_the_next_action_counts():
    state = told(active(0), 100).state
    assert state.mode is Mode.FALLBACK
    for sequence, now in enumerate((110, 120, 130), start=2):
        decision = told(state, now, frame(sequence, now))
        assert decision == Decision(state, None, False, (Refusal.LATCHED,))
    # The fallback goes on until the policy's next action, which begins a new stretch of two periods.
    state = reset(state)
    assert state.mode is Mode.READY and state.due == 150 * MS
    assert told(state, 150).falls_back and told(state, 150).state.mode is Mode.READY
    decision = told(state, 160, frame(5, 160))
    assert decision.frame is not None and decision.state == WatchState(260 * MS, Mode.ACTIVE, 5)
    assert reset(decision.state) == decision.state and latch(WatchState(due=0)) == WatchState(due=0)


def test_what_counts_is_when_a_frame_was_sent_not_when_it_was_read():
    # Fresh until 100. The supervisor is held up and looks at 130: an action sent at 99 was on time, and is 31 ms old.
    decision = told(active(0), 130, frame(2, 99))
    assert decision.frame is not None and decision.state == WatchState(199 * MS, Mode.ACTIVE, 2)
    # One sent at 100 came too late, although nobody had looked.
    decision = told(active(0), 130, frame(2, 100))
    assert decision.frame is None and decision.falls_back and decision.refused == (Refusal.LATCHED,)
    assert decision.state.mode is Mode.FALLBACK and decision.state.due == 150 * MS
    # Held up for so long that the action itself is old by now: it is not sent on.
    decision = told(active(0), 200, frame(2, 99))
    assert decision.frame is None and decision.falls_back and decision.refused == (Refusal.OLD,)


def test_after_a_long_hold_up_one_fallback_is_sent_not_all_that_were_missed():
    # Due at 100, looked at 10,020: the next is due at 10,050, not 199 of them at once.
    decision = told(active(0), 10_020)
    assert decision.falls_back and decision.state.due == 10_050 * MS
    assert not told(decision.state, 10_049).falls_back


def test_whatever_happens_no_old_action_goes_out_and_no_silence_lasts():
    generator = np.random.default_rng(0)
    for _ in range(volume(100, 5_000)):
        state, now, sequence, last_forwarded, last_sent = WatchState(due=0), 0, 0, 0, 0
        queue: list[Frame] = []
        for _ in range(200):
            now += MS
            if generator.random() < generator.choice([0.02, 0.2]):
                sequence += int(generator.integers(-1, 3))
                queue.append(Frame(max(sequence, 0), now - int(generator.exponential(30 * MS)), ACTION))
            before = state
            decision = decide(state, now, queue, PERIOD)
            state, queue = decision.state, []
            if decision.frame is not None:
                assert before.mode is not Mode.FALLBACK and now - decision.frame.sent < 2 * PERIOD
                assert decision.frame.sequence > last_forwarded and decision.frame.sent < max(before.due, now + 1)
                last_forwarded = decision.frame.sequence
            if decision.frame is not None or decision.falls_back:
                assert now - last_sent <= 2 * PERIOD
                last_sent = now
            assert now - last_sent <= 2 * PERIOD and state.due > now
            if state.mode is Mode.FALLBACK and generator.random() < 0.01:
                state = reset(state)


# The supervisor on a fake clock, with both ends of the line in this process


class Robot:
    """Remembers what it was told to do."""

    def __init__(self) -> None:
        self.told: list[np.ndarray] = []

    def send(self, action: np.ndarray) -> None:
        self.told.append(action.copy())
        action[:] = np.nan  # Whatever it does with what it was given is its own affair.


@contextmanager
def joined(wish: Any = "zero", send: Callable | None = None, limits: Limits | None = None):
    """A supervisor, its robot, a policy's link, and the clock that both ends share."""
    clock, robot = FakeClock(), Robot()
    supervisor = Supervisor(["none"], send or robot.send, MANIFEST, fallback=wish, limits=limits, clock=clock)
    supervisor._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    link = ActuatorLink(theirs.detach(), clock)
    try:
        yield supervisor, robot, link, clock
    finally:
        link.close()
        supervisor.close()


def forwarded(supervisor: Supervisor, link: ActuatorLink, action) -> Sent:
    assert link.send(action)
    sent = supervisor.step()
    assert sent is not None and sent.source == POLICY
    return sent


def fallen_back(supervisor: Supervisor, clock: FakeClock) -> Sent:
    """Move the clock to the moment at which the fallback is due."""
    clock.time = max(clock.time, supervisor._state.due)
    sent = supervisor.step()
    assert sent is not None and sent.source == "fallback" and sent.since == clock.time
    return sent


def test_actions_are_forwarded_bit_for_bit_and_silence_is_answered():
    with joined() as (supervisor, robot, link, clock):
        assert fallen_back(supervisor, clock).action.tolist() == [0.0, 0.0] and supervisor.mode is Mode.READY
        for value in (0.1, 0.2, 0.3):
            clock.time += PERIOD
            sent = forwarded(supervisor, link, [value, -value])
            assert robot.told[-1].tobytes() == np.array([value, -value], np.float32).tobytes()
            assert sent.since == sent.at == clock.time and supervisor.mode is Mode.ACTIVE
        begun = clock.time
        sent = fallen_back(supervisor, clock)
        assert sent.since == begun + 2 * PERIOD and supervisor.mode is Mode.FALLBACK
        assert fallen_back(supervisor, clock).since == begun + 3 * PERIOD
        link.send([0.5, 0.5])
        assert supervisor.step() is None and supervisor.health()["tallies"]["latched"] == 1
        assert supervisor.reset() is Mode.READY
        forwarded(supervisor, link, [0.5, 0.5])
        assert supervisor.health() == {
            "mode": "active",
            "policy": "not started",
            "tallies": {"forwarded": 4, "fallbacks": 3, "problems": 0, "latched": 1}
            | {"malformed": 0, "not_finite": 0, "outside": 0, "old": 0},
        }
    assert supervisor.mode is Mode.STOPPED and supervisor.step() is None and supervisor.reset() is Mode.STOPPED
    with pytest.raises(Refused, match="closed"):
        supervisor.start()


@pytest.mark.parametrize(
    ("wish", "first", "third"),
    [
        # One second at 50 ms is 0.05 per fallback: 0.5 - 3 x 0.05 = 0.35, and -0.12 is gone after three.
        ("hold", [0.5, -0.12], [0.5, -0.12]),
        ("zero", [0.0, 0.0], [0.0, 0.0]),
        ("ramp_to_zero", [0.45, -0.07], [0.35, 0.0]),
        ({"kind": "brake", "actions": {"throttle": -0.5}}, [-0.5, 0.0], [-0.5, 0.0]),
        (lambda last_action: 0.5 * last_action, [0.25, -0.06], [0.0625, -0.015]),
    ],
    ids=["hold", "zero", "ramp_to_zero", "brake", "function"],
)
def test_fallbacks_need_no_observation(wish, first, third):
    with joined(wish) as (supervisor, robot, link, clock):
        forwarded(supervisor, link, [0.5, -0.12])
        for _ in range(3):
            fallen_back(supervisor, clock)
        np.testing.assert_allclose(robot.told[1], first, atol=1e-6)
        np.testing.assert_allclose(robot.told[3], third, atol=1e-6)


def test_the_other_fallbacks_need_an_observation_and_are_refused():
    for kind in set(fallback.KINDS) - set(WITHOUT_OBSERVATION) | {"nonsense"}:
        with pytest.raises(Refused, match="sees no observation: its fallbacks are hold, zero, ramp_to_zero, brake"):
            Supervisor(["none"], print, MANIFEST, fallback=kind)
    with pytest.raises(Refused, match="outside the box"):
        Supervisor(["none"], print, MANIFEST, fallback=lambda last_action: last_action + 1.0)


def test_what_may_not_be_sent_is_counted_and_is_no_sign_of_life():
    with joined(limits=Limits(high=(0.4, 1.0))) as (supervisor, robot, link, clock):
        forwarded(supervisor, link, [0.3, 0.0])
        begun = clock.time
        for _ in range(9):
            clock.time += 10 * MS
            link.send([0.5, 0.0])  # Inside the manifest's box, outside the narrower one.
            link.send([np.nan, 0.0])
            link.send([0.0, 0.0, 0.0])
            link._socket.send(b"")
            link._socket.send(bytes(4096))
            assert supervisor.step() is None
        assert fallen_back(supervisor, clock).since == begun + 2 * PERIOD
        tallies = supervisor.health()["tallies"]
        assert (tallies["outside"], tallies["not_finite"], tallies["malformed"]) == (9, 9, 27)
        assert len(robot.told) == 2


def test_a_babbling_policy_does_not_keep_the_supervisor_from_its_clock(monkeypatch: pytest.MonkeyPatch):
    class Babbler:
        """A line on which there is always one frame more."""

        def settimeout(self, _seconds: float) -> None:
            pass

        def recv(self, _size: int) -> bytes:
            return b"nonsense"

    with joined() as (supervisor, _, link, clock):
        forwarded(supervisor, link, ACTION)
        with monkeypatch.context() as patch:
            patch.setattr(supervisor, "_line", Babbler())
            assert supervisor.step() is None
            fallen_back(supervisor, clock)


def test_a_fallback_or_an_actuator_that_fails_is_reported_and_stops_nothing():
    calls = 0

    def moody(last_action: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls <= fallback.TRIALS:
            return last_action
        return [np.array([np.nan, 0.0]), np.zeros(3), np.full(2, 9.0)][calls % 3]

    def broken(_action: np.ndarray) -> None:
        raise OSError("no route")

    with joined(moody) as (supervisor, robot, link, clock):
        sent = [fallen_back(supervisor, clock) for _ in range(3)]
        assert sorted(bool(one.problem) for one in sent) == [False, True, True]
        assert sorted(one.tolist() for one in robot.told) == [[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]]
    with joined(send=broken) as (supervisor, _, link, clock):
        assert forwarded(supervisor, link, ACTION).problem == "OSError: no route"
        assert fallen_back(supervisor, clock).problem == "OSError: no route"
        assert supervisor.health()["tallies"]["problems"] == 2


def test_a_machine_that_slept_waits_for_the_operator():
    with joined() as (supervisor, _, link, clock):
        forwarded(supervisor, link, ACTION)
        clock.asleep += 3_600_000 * MS
        link.send(ACTION)  # Decided before the sleep, as far as anyone can tell.
        sent = supervisor.step()
        assert sent is not None and sent.source == "fallback" and supervisor.mode is Mode.FALLBACK
        supervisor.reset()
        forwarded(supervisor, link, ACTION)


def test_the_policy_never_waits_and_learns_that_the_supervisor_is_gone():
    with joined() as (supervisor, _, link, _clock):
        assert not all(link.send(ACTION) for _ in range(10_000)), "there is not room for that many"
        sent = supervisor.step()
        assert sent is not None and sent.source == POLICY
        supervisor.close()
        with pytest.raises(ConnectionError):
            link.send(ACTION)


def test_a_program_that_nobody_supervises_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ASHORE_ACTUATOR", raising=False)
    with pytest.raises(Refused, match="not started by a supervisor"):
        ActuatorLink()
    monkeypatch.setenv("ASHORE_ACTUATOR", "nonsense")
    with pytest.raises(Refused, match="not started by a supervisor"):
        ActuatorLink()


# Real processes

STEADY = """
from ashore_runtime import ActuatorLink, Loop
link = ActuatorLink()
for _ in Loop(hz=20):
    link.send([0.5, -0.25])
"""
HANGS = """
import time
from ashore_runtime import ActuatorLink
link = ActuatorLink()
for _ in range(5):
    link.send([0.5, -0.25])
    time.sleep(0.02)
{what}
"""
# The refinement's first step never returns; the journal of this run must still be there afterwards.
RUNTIME_HANGS = """
import sys, time
import numpy as np
from ashore_runtime import ActuatorLink, Loop, Runtime, critics
runtime = Runtime.load(sys.argv[1], journal=sys.argv[2])
runtime.arm()
link = ActuatorLink()
generator = np.random.default_rng(0)
for tick in Loop(hz=20):
    if tick == 5:
        critics.CriticPair.cost_gradient = lambda *_: time.sleep(3600)
    observation = generator.uniform(-1, 1, 4)
    link.send(runtime.act(observation))
    runtime.observe(observation + 0.1, 0.0, 0.0)
"""


@pytest.fixture
def supervised(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Supervisor]]:
    """Starts a program under a supervisor, and ends it with the test."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    started: list[Supervisor] = []

    def start(program: str, *arguments: str) -> Supervisor:
        command = [sys.executable, "-c", program, *arguments]
        supervisor = Supervisor(command, lambda _: None, MANIFEST, fallback="zero")
        started.append(supervisor)
        supervisor.start()
        return supervisor

    yield start
    for supervisor in started:
        supervisor.close()


def until(supervisor: Supervisor, done: Callable[[], bool]) -> list[Sent]:
    """What is sent until then; a machine that needs two minutes for it stands."""
    sent, begun = [], time.monotonic()
    while not done():
        assert time.monotonic() - begun < 120.0, supervisor.health()
        one = supervisor.step()
        sent += [] if one is None else [one]
    return sent


def fallbacks_from_now(supervisor: Supervisor, count: int) -> list[Sent]:
    """What is sent until so many more fallbacks were."""
    wanted = supervisor.health()["tallies"]["fallbacks"] + count
    return until(supervisor, lambda: supervisor.health()["tallies"]["fallbacks"] >= wanted)


def lost(supervisor: Supervisor, attack: Callable[[], object] = lambda: None) -> int:
    """Attack a policy after its first action, until it has lost the actuator; returns how late the fallback was, in ns.

    By the supervisor's own clock it was due two periods after the last action came in, or before. A machine that is
    busy with something else may look later than that; how much later is measured, and not promised.
    """
    before = until(supervisor, lambda: supervisor.mode is not Mode.READY)
    assert before[-1].source == POLICY and {one.source for one in before[:-1]} <= {"fallback"}
    attack()
    *actions, first = [before[-1], *until(supervisor, lambda: supervisor.mode is Mode.FALLBACK)]
    assert {one.source for one in actions} == {POLICY} and first.source == "fallback", "the first fallback latches"
    assert first.since - actions[-1].at <= 2 * PERIOD and first.since <= first.at
    return first.at - first.since


def test_kill_9_at_any_moment_is_answered_within_two_periods(supervised):
    generator = np.random.default_rng(0)
    supervisor = supervised(STEADY)
    late = []
    for kill in range(volume(8, 100)):
        if kill:
            supervisor.start()
            assert supervisor.mode is Mode.FALLBACK, "starting is not resetting"
            supervisor.reset()
        moment = float(generator.uniform(0.0, 0.2))
        killer = threading.Timer(moment, supervisor.policy.send_signal, [signal.SIGKILL])
        late.append(lost(supervisor, killer.start))
        killer.join()
        until(supervisor, lambda: supervisor.policy.poll() is not None)
        assert {one.source for one in fallbacks_from_now(supervisor, 2)} == {"fallback"}
    # About a millisecond; the bound leaves room for a machine that is busy with something else.
    assert np.median(late) < 10 * PERIOD


@pytest.mark.parametrize(
    "what",
    ["time.sleep(3600)", "while True: pass", "while True: link._socket.send(b'nonsense'); time.sleep(0.001)"],
    ids=["sleeps", "spins", "talks nonsense"],
)
def test_a_policy_that_hangs_is_answered_within_two_periods(supervised, what):
    supervisor = supervised(HANGS.format(what=what))
    lost(supervisor)
    assert supervisor.policy.poll() is None, "it is alive, and has lost the actuator all the same"


def test_a_refinement_that_hangs_is_answered_and_the_journal_is_whole(supervised, tight_folder, tmp_path: Path):
    journal = tmp_path / "run.jnl"
    supervisor = supervised(RUNTIME_HANGS, str(tight_folder), str(journal))
    lost(supervisor)
    supervisor.close()
    assert supervisor.health()["policy"] == "ended"
    again = Runtime.resume(journal, rule="trust", freeze=False)
    assert again.state is Mode.READY and again.posterior.count <= 5
    again.close()


def test_a_policy_that_was_stopped_and_continues_is_not_obeyed_before_reset(supervised):
    supervisor = supervised(STEADY)
    lost(supervisor, lambda: supervisor.policy.send_signal(signal.SIGSTOP))
    supervisor.policy.send_signal(signal.SIGCONT)
    sent = until(supervisor, lambda: supervisor.health()["tallies"]["latched"] >= 3)
    assert {one.source for one in sent} <= {"fallback"}
    supervisor.reset()
    sent = until(supervisor, lambda: supervisor.mode is Mode.ACTIVE)
    assert sent[-1].source == POLICY


def test_setting_the_date_changes_nothing(supervised, monkeypatch: pytest.MonkeyPatch):
    dates = itertools.cycle([0.0, 3600.0, -3600.0])
    monkeypatch.setattr(time, "time", lambda: next(dates))
    monkeypatch.setattr(time, "time_ns", lambda: int(next(dates) * 1e9))
    supervisor = supervised(HANGS.format(what="time.sleep(3600)"))
    lost(supervisor)
    dues = [sent.since for sent in fallbacks_from_now(supervisor, 10)]
    assert all(gap % PERIOD == 0 for gap in np.diff(dues))


def test_a_program_that_cannot_be_started_is_refused_and_the_fallback_goes_on(supervised):
    supervisor = supervised(STEADY)
    supervisor._command = ["there is no such program"]
    with pytest.raises(Refused, match="'there is no such program' cannot be started"):
        supervisor.start()
    assert {one.source for one in fallbacks_from_now(supervisor, 3)} == {"fallback"}
