"""The supervisor with real processes: killed, hanging, stopped, and talking nonsense.

The numbers T12, T27 and T28 are those of the deployment design. Only what no busy machine can change is asserted: when
a fallback was due, that a late one says so, and what came after it. How late it is: `supervisor_trials`.
"""

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from ashore_runtime import Mode, Refused, Runtime, Supervisor
from ashore_runtime.supervisor import POLICY, Sent
from ashore_runtime.watchdog import Patience
from runtime import supervisor_trials as trials
from runtime.supervisor_trials import STEADY, TIMING, UNEVEN, Silence, lost, until
from volumes import volume

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
ECHOES = """
from ashore_runtime import ActuatorLink
link = ActuatorLink()
while True:
    word = link.hear(60.0)
    link.send([float(word), 0.0])
"""


@pytest.fixture
def supervised(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Supervisor]]:
    """Starts a program under a supervisor, and ends it with the test."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    with ExitStack() as started:
        yield lambda *program, **options: started.enter_context(trials.supervised(*program, **options))


def fallbacks_from_now(supervisor: Supervisor, count: int) -> list[Sent]:
    """What is sent until so many more fallbacks were."""
    wanted = supervisor.health()["tallies"]["fallbacks"] + count
    return until(supervisor, lambda: supervisor.health()["tallies"]["fallbacks"] >= wanted)


def test_kill_9_at_any_moment_is_answered(supervised):
    """T12; a thousand kills are ASHORE_SOAK=10, or `supervisor_trials`, which records how long each took."""
    supervisor = supervised(STEADY)
    kills = volume(8, 100)
    silences = list(trials.killed(supervisor, kills))
    assert len(silences) == kills and supervisor.health()["policy"] == "ended"
    assert {one.source for one in fallbacks_from_now(supervisor, 2)} == {"fallback"}
    late = sum(silence.fallback.late > 0 for silence in silences)
    assert supervisor.health()["tallies"]["late"] >= late, "whatever was late was counted"


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the system does not tell")
def test_nobody_waits_for_a_policy_that_was_killed(supervised):
    # Silence alone would be answered after 100 s.
    supervisor = supervised(STEADY, patience=Patience(within=2000.3, margin=0.3))
    until(supervisor, lambda: supervisor.mode is Mode.ACTIVE)
    supervisor.policy.kill()
    *actions, first = until(supervisor, lambda: supervisor.mode is Mode.FALLBACK)
    assert first.source == "fallback" and {one.source for one in actions} <= {POLICY}
    dues = [first.since, *(sent.since for sent in fallbacks_from_now(supervisor, 3))]
    assert all(gap > 0 and gap % TIMING.period == 0 for gap in np.diff(dues))


def test_a_policy_that_is_stopped_again_and_again_is_answered_every_time(supervised):
    supervisor = supervised(STEADY)
    stops = volume(5, 100)
    assert len(list(trials.stopped(supervisor, stops))) == stops


@pytest.mark.parametrize("program", [STEADY, UNEVEN], ids=["steady", "uneven"])
def test_a_policy_that_is_left_alone_loses_the_actuator_only_by_its_own_silence(supervised, program):
    gaps, silences = trials.left_alone(supervised(program), volume(2, 60))
    assert gaps and all(silence.fallback.since - silence.last.since == TIMING.silence for silence in silences)


@pytest.mark.parametrize(
    "what",
    ["time.sleep(3600)", "while True: pass", "while True: link._socket.send(b'nonsense'); time.sleep(0.001)"],
    ids=["sleeps", "spins", "talks nonsense"],
)
def test_a_policy_that_hangs_is_answered(supervised, what):
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
    assert all(gap % TIMING.period == 0 for gap in np.diff(dues))


def test_a_program_that_cannot_be_started_is_refused_and_the_fallback_goes_on(supervised):
    supervisor = supervised(STEADY)
    supervisor._command = ["there is no such program"]
    with pytest.raises(Refused, match="'there is no such program' cannot be started"):
        supervisor.start()
    assert {one.source for one in fallbacks_from_now(supervisor, 3)} == {"fallback"}


def test_what_the_robot_says_reaches_the_policy(supervised):
    supervisor = supervised(ECHOES)
    assert supervisor.tell(b"0.25")
    sent = until(supervisor, lambda: supervisor.mode is not Mode.READY)
    assert sent[-1].source == POLICY and sent[-1].action.tolist() == [0.25, 0.0]


def test_the_record_of_trials_says_how_many_kept_the_promise():
    def silence(out_ms: float) -> Silence:
        last, due = 1_000_000_000, 1_000_000_000 + TIMING.silence
        nothing, out = np.zeros(2), last + round(out_ms * 1e6)
        sent = Sent(nothing, POLICY, last, last, 0, ""), Sent(nothing, "fallback", due, out, 0, "")
        return Silence(*sent, attacked=last + 26_000_000)

    row = trials.answered("kill -9", [silence(out) for out in (86.0, 87.0, 88.0, 100.0, 104.0)])
    # Four of five are out within 100 ms; the third of five is the median, and 88 - 85 its own delay.
    assert (row["times"], row["within_promise"]) == (5, 0.8)
    assert row["last_action_to_fallback_out_ms"]["p50"] == 88.0 and row["due_to_out_ms"]["p50"] == 3.0
    assert row["last_action_to_fallback_out_ms"]["worst"] == 104.0
    # Attacked 26 ms after the last action.
    assert row["attack_to_fallback_out_ms"]["p50"] == 62.0 and row["silent_before_the_attack"] == 0
    quiet = trials.quiet("left alone", 1.0, [50_000_000, 90_000_000, 100_000_000], [silence(86.0), silence(86.0)])
    # The gap of 90 ms would not have been one without the margin.
    assert (quiet["actions"], quiet["fallbacks"], quiet["fallbacks_without_a_margin"]) == (4, 2, 1)
