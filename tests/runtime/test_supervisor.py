"""The watchdog outside the policy's process, on a fake clock: silence is answered within two control periods.

With real processes: `test_supervisor_processes`.
"""

import os
import socket
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from ashore_runtime import ActuatorLink, Limits, Mode, Refused, Supervisor, fallback
from ashore_runtime.actuator_frame import Frame, Refusal, pack, unpack
from ashore_runtime.blind_fallback import WITHOUT_OBSERVATION
from ashore_runtime.refinement import Box
from ashore_runtime.supervisor import POLICY, Sent
from ashore_runtime.watchdog import Decision, Patience, Timing, WatchState, decide, give_up, latch, reset, timing
from runtime import small_bundle
from runtime.fake_clock import FakeClock
from volumes import volume

MANIFEST = small_bundle.manifest()
BOX = Box(np.full(2, -1.0, np.float32), np.full(2, 1.0, np.float32))
ACTION = np.array([0.5, -0.25], np.float32)
MS = 1_000_000
PERIOD = 50 * MS
SILENCE, MARGIN = 85 * MS, 15 * MS
"""Of two periods, which are 100 ms, three tenths of one are the margin."""


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


# The state machine. Times are in ms, the period is 50, and silence lasts for two of them.

TIMING = Timing(PERIOD, 2 * PERIOD, MARGIN)


def told(state: WatchState, now_ms: float, *arrived: Frame) -> Decision:
    return decide(state, round(now_ms * MS), arrived, TIMING)


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


def test_nobody_waits_for_a_policy_that_is_gone():
    # Sent at 0, gone at 30: the fallback is due at once, and then every period; a frame that was under way is refused.
    state = give_up(active(0), 30 * MS)
    assert state == WatchState(30 * MS, Mode.FALLBACK, 1)
    decision = told(state, 30, frame(2, 29))
    assert decision.falls_back and decision.refused == (Refusal.LATCHED,) and decision.state.due == 80 * MS
    # Found out only after the fallback was due anyway: it has been due since then.
    assert give_up(active(0), 130 * MS).due == 100 * MS
    # Before its first action and after its last there is nothing to give up.
    for other in (WatchState(due=70), WatchState(70, Mode.FALLBACK), WatchState(70, Mode.STOPPED)):
        assert give_up(other, 30) == other


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
            decision = decide(state, now, queue, TIMING)
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


# How soon silence is answered


def test_the_fallback_is_due_a_margin_before_it_must_be_out():
    assert timing(Patience(), 0.05) == Timing(PERIOD, SILENCE, MARGIN)
    # 1.9 periods of 80 ms are 152 ms, of which a quarter of a period is 20 ms.
    assert timing(Patience(within=1.9, margin=0.25), 0.08) == Timing(80 * MS, 132 * MS, 20 * MS)


def test_a_policy_that_is_on_time_is_never_called_silent():
    """Each action takes anything up to its deadline, 0.6 periods, and its slot begins up to 0.1 periods late."""
    usual = timing(Patience(), 0.05)
    generator = np.random.default_rng(0)
    state, fallbacks = WatchState(due=0), 0
    for slot in range(volume(2_000, 200_000)):
        sent = slot * PERIOD + round(generator.choice([0.0, 0.6]) * PERIOD + generator.uniform(0.0, 0.0999) * PERIOD)
        while state.mode is Mode.ACTIVE and state.due <= sent:
            state, fallbacks = decide(state, state.due, (), usual).state, fallbacks + 1
        state = decide(state, sent, [Frame(slot + 1, sent, ACTION)], usual).state
    assert fallbacks == 0 and state.mode is Mode.ACTIVE


@pytest.mark.parametrize(
    ("patience", "deadline", "refused"),
    [
        (Patience(), 0.6, False),
        # Two actions on time may lie 1.6 periods apart; 2 - 0.4 = 1.6 is enough, 2 - 0.41 is not.
        (Patience(margin=0.4), 0.6, False),
        (Patience(margin=0.41), 0.6, True),
        (Patience(margin=0.41), 0.5, False),
        (Patience(within=1.5), 0.6, True),
        (Patience(within=3.0, margin=1.4), 0.6, False),
        (Patience(margin=0.0), 0.6, True),
        (Patience(margin=-1.0), 0.6, True),
        (Patience(margin=float("nan")), 0.6, True),
        # A policy without a deadline cannot be told from one that hangs.
        (Patience(), float("inf"), True),
    ],
)
def test_haste_is_refused(patience, deadline, refused):
    def build() -> Supervisor:
        return Supervisor(["none"], print, MANIFEST, limits=Limits(deadline=deadline), patience=patience)

    if refused:
        with pytest.raises(Refused, match="^Silence would last .* that two actions on time may lie apart.$"):
            build()
    else:
        build()


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
            assert sent.since == sent.out == clock.time and supervisor.mode is Mode.ACTIVE
        begun = clock.time
        sent = fallen_back(supervisor, clock)
        assert sent.since == begun + SILENCE and supervisor.mode is Mode.FALLBACK
        assert fallen_back(supervisor, clock).since == begun + SILENCE + PERIOD
        link.send([0.5, 0.5])
        assert supervisor.step() is None and supervisor.health()["tallies"]["latched"] == 1
        assert supervisor.reset() is Mode.READY
        forwarded(supervisor, link, [0.5, 0.5])
        assert supervisor.health() == {
            "mode": "active",
            "policy": "not started",
            "longest_delay_ms": 0.0,
            "tallies": {"forwarded": 4, "fallbacks": 3, "late": 0, "problems": 0, "latched": 1}
            | {"malformed": 0, "not_finite": 0, "outside": 0, "old": 0},
        }
    assert supervisor.mode is Mode.STOPPED and supervisor.step() is None and supervisor.reset() is Mode.STOPPED
    with pytest.raises(Refused, match="closed"):
        supervisor.start()


@pytest.mark.parametrize(
    ("awake_ms", "sending_ms", "late_ms"),
    # Due after 85 ms and to be out after 100: what is more than 15 ms together is too late.
    [(0.0, 0.0, 0.0), (15.0, 0.0, 0.0), (9.0, 6.0, 0.0), (15.5, 0.0, 0.5), (0.0, 20.0, 5.0), (915.0, 1.0, 901.0)],
)
def test_the_fallback_is_out_within_two_periods_or_is_reported_late(awake_ms, sending_ms, late_ms):
    slow = False

    def send(_action: np.ndarray) -> None:
        clock.time += round(slow * sending_ms * MS)

    with joined(send=send) as (supervisor, _, link, clock):
        begun = forwarded(supervisor, link, ACTION).since
        slow = True
        clock.time = begun + SILENCE + round(awake_ms * MS)
        sent = supervisor.step()
        assert sent is not None and sent.source == "fallback" and sent.since == begun + SILENCE
        assert sent.out - begun == round((85.0 + awake_ms + sending_ms) * MS) and sent.late == round(late_ms * MS)
        assert (sent.out - begun <= 2 * PERIOD) == (sent.late == 0)
        health = supervisor.health()
        assert health["tallies"]["late"] == (late_ms > 0)
        assert health["longest_delay_ms"] == pytest.approx(awake_ms + sending_ms)


def test_the_line_carries_words_back_and_nobody_waits_for_a_listener():
    with joined() as (supervisor, _, link, _clock):
        assert link.hear(0.0) is None
        assert supervisor.tell(b"first") and supervisor.tell(b"second")
        assert [link.hear(0.0), link.hear(0.0), link.hear(0.0)] == [b"first", b"second", None]
        assert not all(supervisor.tell(bytes(1000)) for _ in range(10_000)), "there is not room for that much"
        link.close()
        assert not supervisor.tell(b"to nobody")
        supervisor.close()
        assert not supervisor.tell(b"from nobody")


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
    for kind in set(fallback.KINDS) - set(WITHOUT_OBSERVATION) | {"nonsense", None}:
        with pytest.raises(Refused, match="sees no observation: its fallbacks are hold, zero, ramp_to_zero, brake"):
            Supervisor(["none"], print, MANIFEST, fallback=kind)
    with pytest.raises(Refused, match="outside the box"):
        Supervisor(["none"], print, MANIFEST, fallback=lambda last_action: last_action + 1.0)


def test_what_may_not_be_sent_is_counted_and_is_no_sign_of_life():
    with joined(limits=Limits(high=(0.4, 1.0))) as (supervisor, robot, link, clock):
        forwarded(supervisor, link, [0.3, 0.0])
        begun = clock.time
        for _ in range(8):
            clock.time += 10 * MS
            link.send([0.5, 0.0])  # Inside the manifest's box, outside the narrower one.
            link.send([np.nan, 0.0])
            link.send([0.0, 0.0, 0.0])
            link._socket.send(b"")
            link._socket.send(bytes(4096))
            assert supervisor.step() is None
        assert fallen_back(supervisor, clock).since == begun + SILENCE
        tallies = supervisor.health()["tallies"]
        assert (tallies["outside"], tallies["not_finite"], tallies["malformed"]) == (8, 8, 24)
        assert len(robot.told) == 2


def test_a_babbling_policy_does_not_keep_the_supervisor_from_its_clock(monkeypatch: pytest.MonkeyPatch):
    class Babbler:
        """A line on which there is always one frame more."""

        def fileno(self) -> int:
            return link._socket.fileno()

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


@pytest.mark.parametrize(
    ("found_ms", "sending_ms", "since_ms", "late_ms"),
    # Whenever it was found, the promise counts from the last action: 100 ms. After 85 ms silence was reason enough.
    [(30.0, 60.0, 30.0, 0.0), (30.0, 75.0, 30.0, 5.0), (120.0, 0.0, 85.0, 20.0)],
)
def test_the_death_of_a_policy_is_answered_at_once_and_told_once(found_ms, sending_ms, since_ms, late_ms):
    slow = False

    def send(_action: np.ndarray) -> None:
        clock.time += round(slow * sending_ms * MS)

    with joined(send=send) as (supervisor, _, link, clock):
        begun = forwarded(supervisor, link, ACTION).since
        slow = True
        supervisor._end, death = os.pipe()
        os.write(death, b"dead")
        clock.time = begun + round(found_ms * MS)
        sent = supervisor.step()
        os.close(death)
        assert sent is not None and sent.source == "fallback" and supervisor.mode is Mode.FALLBACK
        assert sent.since == begun + round(since_ms * MS) and sent.late == round(late_ms * MS)
        assert supervisor._end is None


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
