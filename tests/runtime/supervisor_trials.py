"""A supervised policy that is killed, stopped or left alone: how long after the last action the fallback is out.

    PYTHONPATH=tests python -m runtime.supervisor_trials --beside "what else runs" --out runs/supervisor.json

Speeds are recorded with their machine, and never asserted.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ashore_runtime import Mode, Supervisor
from ashore_runtime.results import FALLBACK
from ashore_runtime.supervisor import POLICY, Sent
from ashore_runtime.watchdog import Patience, timing
from runtime import small_bundle

MANIFEST = small_bundle.manifest()
TIMING = timing(Patience(), MANIFEST.task.control_period)
PROMISED = TIMING.silence + TIMING.margin
"""ns from the last action until the fallback is out: two control periods, 100 ms at 20 Hz."""
_PATIENT = 120.0
"""Seconds after which a machine that has not come so far stands."""

STEADY = """
from ashore_runtime import ActuatorLink, Loop
link = ActuatorLink()
for _ in Loop(hz=20):
    link.send([0.5, -0.25])
"""
# Half of its decisions take no time, half of them all that the deadline leaves: as uneven as a policy on time can be.
UNEVEN = """
import random, time
from ashore_runtime import ActuatorLink, Loop
link = ActuatorLink()
for _ in Loop(hz=20):
    if random.random() < 0.5:
        time.sleep(0.6 * 0.05)
    link.send([0.5, -0.25])
"""


class Silence(NamedTuple):
    """A policy that lost the actuator."""

    last: Sent
    """Its last action."""
    fallback: Sent
    """The first one after it."""
    attacked: int | None = None
    """Monotonic time in ns at which somebody killed or stopped it."""

    @property
    def delay(self) -> int:
        """ns from when the last action was sent until the fallback was out."""
        return self.fallback.out - self.last.since


@contextmanager
def supervised(program: str, *arguments: str, patience: Patience | None = None) -> Generator[Supervisor, None, None]:
    """A Python program as the policy, and a robot that takes anything."""
    command = [sys.executable, "-c", program, *arguments]
    with Supervisor(command, lambda _: None, MANIFEST, fallback="zero", patience=patience) as supervisor:
        yield supervisor


def until(supervisor: Supervisor, done: Callable[[], bool]) -> list[Sent]:
    """What is sent until then."""
    sent, begun = [], time.monotonic()
    while not done():
        assert time.monotonic() - begun < _PATIENT, supervisor.health()
        one = supervisor.step()
        sent += [] if one is None else [one]
    return sent


def lost(supervisor: Supervisor, attack: Callable[[], object] = lambda: None) -> Silence:
    """Attack a policy after its first action, until it has lost the actuator.

    The fallback is due when it should be or before, and what was late says so. How late a machine that is busy with
    something else lets it be is measured, and not promised.
    """
    before = until(supervisor, lambda: supervisor.mode is not Mode.READY)
    assert before[-1].source == POLICY and {one.source for one in before[:-1]} <= {FALLBACK}
    attack()
    *actions, first = [before[-1], *until(supervisor, lambda: supervisor.mode is Mode.FALLBACK)]
    assert {one.source for one in actions} == {POLICY} and first.source == FALLBACK, "the first fallback latches"
    found = Silence(actions[-1], first)
    assert first.since - found.last.since <= TIMING.silence and first.since <= first.out
    assert first.late == max(found.delay - PROMISED, 0)
    return found


def _attacked(supervisor: Supervisor, how: signal.Signals, after: float) -> Silence:
    moments: list[int] = []

    def attack() -> None:
        assert supervisor.policy is not None
        moments.append(time.monotonic_ns())
        supervisor.policy.send_signal(how)

    attacker = threading.Timer(after, attack)
    silence = lost(supervisor, attacker.start)
    attacker.join()
    return silence._replace(attacked=moments[0])


def killed(supervisor: Supervisor, times: int) -> Iterator[Silence]:
    """Kill -9 at random moments; each policy is started anew."""
    generator = np.random.default_rng(0)
    for kill in range(times):
        if kill:
            supervisor.start()
            assert supervisor.mode is Mode.FALLBACK, "starting is not resetting"
            supervisor.reset()
        yield _attacked(supervisor, signal.SIGKILL, float(generator.uniform(0.0, 0.2)))
        until(supervisor, lambda: supervisor.policy is not None and supervisor.policy.poll() is not None)


def stopped(supervisor: Supervisor, times: int) -> Iterator[Silence]:
    """Stop one policy again and again, which is what a hanging one looks like, and let it go on."""
    generator = np.random.default_rng(1)
    for _ in range(times):
        assert supervisor.policy is not None
        supervisor.reset()
        yield _attacked(supervisor, signal.SIGSTOP, float(generator.uniform(0.0, 0.2)))
        supervisor.policy.send_signal(signal.SIGCONT)


def left_alone(supervisor: Supervisor, seconds: float) -> tuple[list[int], list[Silence]]:
    """Nobody harms the policy: ns between its actions, and where the fallback came all the same (and was reset)."""
    until(supervisor, lambda: supervisor.mode is Mode.ACTIVE)
    gaps: list[int] = []
    silences: list[Silence] = []
    last: Sent | None = None
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sent = supervisor.step()
        if sent is None:
            continue
        if sent.source == POLICY:
            gaps += [] if last is None else [sent.since - last.since]
            last = sent
        elif supervisor.mode is Mode.FALLBACK and last is not None:
            silences.append(Silence(last, sent))
            supervisor.reset()
    return gaps, silences


def distribution(numbers: list[int]) -> dict[str, float]:
    """Times in ns as ms."""
    p50, p99, p99_9, worst = (np.quantile(numbers, (0.5, 0.99, 0.999, 1.0)) * 1e-6).round(3).tolist()
    return {"p50": p50, "p99": p99, "p99.9": p99_9, "worst": worst}


def answered(what: str, silences: list[Silence]) -> dict[str, Any]:
    """How silences were answered, for the record; a policy that was starved may be silent before it is attacked."""
    reached = [silence for silence in silences if silence.attacked and silence.attacked < silence.fallback.since]
    return {
        "what": what,
        "times": len(silences),
        "last_action_to_fallback_out_ms": distribution([silence.delay for silence in silences]),
        "attack_to_fallback_out_ms": distribution(
            [silence.fallback.out - (silence.attacked or 0) for silence in reached]
        ),
        "due_to_out_ms": distribution([silence.fallback.out - silence.fallback.since for silence in silences]),
        "silent_before_the_attack": len(silences) - len(reached),
        "within_promise": sum(silence.delay <= PROMISED for silence in silences) / len(silences),
    }


def quiet(what: str, seconds: float, gaps: list[int], silences: list[Silence]) -> dict[str, Any]:
    """What became of a policy that was left alone, for the record."""
    return {
        "what": what,
        "seconds": seconds,
        "actions": len(gaps) + 1,
        "between_two_actions_ms": distribution(gaps),
        "fallbacks": len(silences),
        "fallbacks_without_a_margin": sum(gap >= PROMISED for gap in gaps),
    }


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--stops", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=5.0, help="for each policy that is left alone")
    parser.add_argument("--beside", required=True, help="what else ran on the machine")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    loads = [os.getloadavg()]
    if asked.kills:
        with supervised(STEADY) as supervisor:
            rows.append(answered("kill -9", list(killed(supervisor, asked.kills))))
        loads.append(os.getloadavg())
    if asked.stops:
        with supervised(STEADY) as supervisor:
            rows.append(answered("stopped", list(stopped(supervisor, asked.stops))))
        loads.append(os.getloadavg())
    for what, program in (("left alone, steady", STEADY), ("left alone, uneven", UNEVEN)) if asked.minutes else ():
        with supervised(program) as supervisor:
            rows.append(quiet(what, 60.0 * asked.minutes, *left_alone(supervisor, 60.0 * asked.minutes)))
        loads.append(os.getloadavg())
    # Imported only now: it loads JAX, whose threads a supervisor does not have beside it.
    from ashore.experiments.machine import this_machine

    content = {
        "machine": this_machine().as_dict(),
        "beside": asked.beside,
        "nice": os.nice(0),
        "load_1_5_15_min": [[round(load, 2) for load in one] for one in loads],
        "period_ms": TIMING.period * 1e-6,
        "due_ms": TIMING.silence * 1e-6,
        "promised_ms": PROMISED * 1e-6,
        "rows": rows,
    }
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
