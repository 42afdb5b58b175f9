"""`ashore deploy --supervised`: the world in one process, the policy in another, and the fallback between them.

Control periods of a second leave a busy machine time enough; nothing else is asserted about time.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ashore.cli import deploy
from ashore.cli.main import main
from ashore.experiments import deployment_supervised
from ashore.experiments.deployment_supervised import LOG, Outcome, SupervisedWorld
from ashore_runtime import Refused
from ashore_runtime.schema import Task
from experiments import supervised_toy_world
from experiments.full_disk import room_for
from experiments.supervised_toy_world import DECISIONS, Toy
from runtime import small_bundle

# The same command, but the policy does something to itself after its second decision.
ATTACKED = """
import os, signal, sys
from ashore.cli.main import main
from ashore.experiments import deployment
unharmed = deployment.moments

def attacked(*arguments):
    for moment in unharmed(*arguments):
        yield moment
        if moment.decision == 1:
            os.kill(os.getpid(), signal.{signal})

deployment.moments = attacked
sys.exit(main(sys.argv[1:]))
"""

# The same command on a disk with room, whatever the supervisor's own has.
WITH_ROOM = """
import resource, sys
from ashore.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def slow_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    facts = small_bundle.manifest(task=Task("Toy", "A toy.", "throttle drives, steer turns", 1.0))
    return small_bundle.write(tmp_path_factory.mktemp("bundles") / "slow.bundle", facts)


@pytest.fixture
def deployed(slow_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Deploys in the toy world with more words."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    world = f"{supervised_toy_world.__name__}:Toy-v0"
    return lambda out, *words: main(["deploy", str(slow_folder), "--env", world, "--out", str(tmp_path / out), *words])


@pytest.fixture
def policy_runs(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes the policy's process run this program with its words."""
    usual = deploy._once_more

    def runs(program: str) -> None:
        def instead(options: deploy.Options) -> list[str]:
            python, _, _, *words = usual(options)
            return [python, "-c", program, *words]

        monkeypatch.setattr(deploy, "_once_more", instead)

    return runs


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_same_deployment_with_a_supervisor_in_between(deployed, tmp_path):
    assert deployed("alone", "--episodes", "2", "--seed", "3") == 0
    assert deployed("supervised", "--episodes", "2", "--seed", "3", "--supervised") == 0
    alone, supervised = (lines(tmp_path / out / "decisions.jsonl") for out in ("alone", "supervised"))
    logged = lines(tmp_path / "supervised" / LOG)
    assert len(alone) == len(supervised) == len(logged) == 2 * DECISIONS
    for one, other, line in zip(alone, supervised, logged, strict=True):
        assert one | {"latency_ms": 0} == other | {"latency_ms": 0} and line["source"] == "policy"
        np.testing.assert_allclose(line["action"], one["action"], atol=1e-5)
        assert (line["episode"], line["decision"], line["cost"]) == (one["episode"], one["decision"], one["cost"])
    summaries = [json.loads((tmp_path / out / "summary.json").read_text()) for out in ("alone", "supervised")]
    assert [summary["realtime"] for summary in summaries] == [summary["supervised"] for summary in summaries]
    assert summaries[1]["supervised"] and summaries[0]["episodes"] == summaries[1]["episodes"]


@pytest.mark.parametrize(("attack", "became"), [("SIGKILL", "ended with -9"), ("SIGSTOP", "still runs")])
def test_a_policy_that_falls_silent_is_followed_by_the_fallback(
    deployed, policy_runs, tmp_path, capsys, attack, became
):
    policy_runs(ATTACKED.format(signal=attack))
    assert deployed("out", "--supervised") == 1
    first, second, third = lines(tmp_path / "out" / LOG)
    assert [line["source"] for line in (first, second, third)] == ["policy", "policy", "fallback"]
    # Ramping down takes a second from full to zero, which is one control period.
    assert third["action"] == [0.0, 0.0] and (third["episode"], third["decision"], third["cost"]) == (0, 2, 0.5)
    # Due 0.3 periods before the two that are promised, or when its death was noticed.
    assert third["after_last_action_ms"] <= 1700.01 + third["delay_ms"]
    assert third["late_ms"] == pytest.approx(max(third["after_last_action_ms"] - 2000.0, 0.0), abs=0.01)
    shown = capsys.readouterr().out
    assert f"the policy fell silent in episode 1 before decision 3 and {became}; the fallback was out" in shown


def test_a_log_that_cannot_grow_costs_the_policy_nothing_and_the_operator_is_told(
    deployed, policy_runs, tmp_path, capsys
):
    policy_runs(WITH_ROOM)
    # A line has some 150 bytes: there is room for the first two or three of six.
    with room_for(450):
        assert deployed("out", "--supervised", "--episodes", "2") == 74
    shown = capsys.readouterr()
    log = tmp_path / "out" / LOG
    assert shown.err.startswith(f"ashore: {log} can no longer be written (File too large)")
    assert shown.err.count("\n") == 1, "it is said once, and at once"
    assert f"supervisor: {2 * DECISIONS} action(s) forwarded, mode active" in shown.out
    assert shown.out.splitlines()[-1] == f"incomplete: {LOG} could not be written to the end"
    assert log.read_text().endswith("}\n") and 0 < len(lines(log)) < 2 * DECISIONS
    decided = lines(tmp_path / "out" / "decisions.jsonl")
    assert len(decided) == 2 * DECISIONS and not any(line["missed"] for line in decided)
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["held_or_fallback"] == 0


SILENT = {"episode": 0, "decision": 2, "after_last_action_ms": 1.0}


@pytest.mark.parametrize(
    ("policy", "silent", "lost", "code"),
    [(0, None, (), 0), (0, None, (LOG,), 74), (2, None, (LOG,), 2), (-9, SILENT, (LOG,), 1), (-9, SILENT, (), 1)],
)
def test_a_lost_log_is_always_said_and_what_became_of_the_policy_comes_first(
    deployed, monkeypatch, capsys, policy, silent, lost, code
):
    health = {"tallies": {"forwarded": 1, "late": 0}, "mode": "active"}
    monkeypatch.setattr(deployment_supervised, "supervise", lambda *_: Outcome(health, policy, silent, lost))
    assert deployed("out", "--supervised") == code
    assert ("incomplete: supervisor.jsonl could not" in capsys.readouterr().out) == bool(lost)


def test_a_policy_that_cannot_begin_moves_nothing(deployed, tmp_path, capsys):
    assert deployed("out", "--supervised", "--eta", "1") == 2
    assert not (tmp_path / "out").exists() and "0 action(s) forwarded" in capsys.readouterr().out


def test_a_supervised_deployment_is_not_written_over_and_needs_a_cost(deployed, tmp_path, monkeypatch, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / LOG).write_text("{}\n")
    assert deployed("out", "--supervised") == 2
    assert "holds a deployment already" in capsys.readouterr().err and lines(tmp_path / "out" / LOG) == [{}]
    monkeypatch.setattr(Toy, "cost", float("nan"))
    assert deployed("new", "--supervised") == 2
    assert "reported a cost of nan at decision 1; every step needs" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_it_is_not_filmed(deployed, capsys):
    assert deployed("out", "--supervised", "--video") == 2
    assert "A supervised deployment is not filmed" in capsys.readouterr().err


class FakeLink:
    """A line whose other end was written beforehand."""

    def __init__(self, *reports: dict, gone: bool = False) -> None:
        self._reports = [json.dumps(report).encode() for report in reports]
        self._gone = gone

    def send(self, _action: np.ndarray) -> bool:
        if self._gone:
            raise ConnectionRefusedError
        return True

    def hear(self, _seconds: float) -> bytes | None:
        return self._reports.pop(0) if self._reports else None


@pytest.mark.parametrize(
    ("link", "complaint"),
    [
        (FakeLink({"source": "fallback", "observation": [0.0] * 4}), "took the actuator away"),
        (FakeLink(gone=True), "The supervisor is gone"),
        (FakeLink(), "Nothing was heard from the robot"),
    ],
)
def test_a_policy_without_an_actuator_says_why_it_ends(link, complaint):
    with pytest.raises(Refused, match=complaint):
        SupervisedWorld(Toy(), link).step(np.zeros(2))
