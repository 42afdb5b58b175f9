"""The programs on docs/runtime.md run as they are printed, on a robot that is a toy."""

import re
from pathlib import Path

import numpy as np
import pytest

import ashore_runtime
from ashore_runtime import Runtime
from ashore_runtime.schema import Field
from runtime import small_bundle
from runtime.toy_plant import ToyPlant

PAGE = Path(__file__).parents[2] / "docs" / "runtime.md"
LOOKS = 8


class Over(Exception):
    """The robot was looked at often enough."""


class ToyRobot:
    """Also the link to a supervisor: both are sent actions."""

    def __init__(self) -> None:
        self.looks = 0
        self.told: list[np.ndarray] = []
        self._plant = ToyPlant(0)

    def look(self) -> tuple[np.ndarray, float, float]:
        self.looks += 1
        if self.looks > LOOKS:
            raise Over
        return self._plant.step(np.zeros(2)), 0.0, 0.0

    def send(self, action: object) -> None:
        self.told.append(np.asarray(action))


def program(word: str) -> str:
    """The one program on the page in which a word occurs."""
    (found,) = (text for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if word in text)
    return found


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs a program until the robot was looked at often enough; gives the robot and the runtime, closed."""
    facts = small_bundle.manifest(action=(Field("pedal", "1", -1.0, 1.0),))
    small_bundle.write(tmp_path / "policy.bundle", facts)
    monkeypatch.chdir(tmp_path)

    def play(text: str) -> tuple[ToyRobot, Runtime]:
        robot = ToyRobot()
        monkeypatch.setattr(ashore_runtime, "ActuatorLink", lambda: robot)
        names: dict[str, object] = {"robot": robot}
        with pytest.raises(Over):
            exec(compile(text, str(PAGE), "exec"), names)
        runtime = names["runtime"]
        assert isinstance(runtime, Runtime)
        runtime.close()
        return robot, runtime

    return play


def test_the_first_program_acts_and_learns(played):
    robot, runtime = played(program("Limits(rate"))
    assert len(robot.told) == LOOKS and runtime.health()["tallies"]["errors"] == 0
    # The first look follows from nothing. A busy machine may be late, and what comes late is not learnt from.
    assert runtime.posterior.count <= LOOKS - 1


def test_the_policy_under_a_supervisor_keeps_what_it_learnt(played):
    _, first = played(program("ActuatorLink()"))
    robot, second = played(program("ActuatorLink()"))
    assert len(robot.told) == LOOKS
    assert second.posterior.count >= first.posterior.count // 2, "half of the evidence is kept"
    assert first.posterior.count, "the machine was too busy for a single transition"
