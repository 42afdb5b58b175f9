"""A disk that fills up during a deployment costs the report and not the deployment.

No file may grow beyond so many bytes: a disk that is full for this process only.
"""

import contextlib
import errno
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from ashore.cli.main import main
from ashore.experiments import deployment_report, provenance
from ashore_runtime.schema import Task
from experiments import supervised_toy_world
from experiments.full_disk import room_for
from experiments.supervised_toy_world import DECISIONS, Toy
from runtime import small_bundle

EPISODES = 4
INCOMPLETE = 74


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # A control period of a second: no decision is cut short because the machine is busy, so that two runs are alike.
    facts = small_bundle.manifest(task=Task("Toy", "A toy.", "throttle drives, steer turns", 1.0))
    return small_bundle.write(tmp_path_factory.mktemp("bundles") / "toy.bundle", facts)


@pytest.fixture
def deployed(folder: Path) -> Callable[..., int]:
    words = ["deploy", str(folder), "--env", f"{supervised_toy_world.__name__}:Toy-v0", "--episodes", str(EPISODES)]
    return lambda out, *more: main([*words, "--out", str(out), *more])


@pytest.fixture
def filmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A toy that looks like noise, which no encoder makes small."""
    noise = np.random.default_rng(0)
    monkeypatch.setattr(Toy, "metadata", {"render_modes": ["rgb_array"], "render_fps": 20})
    monkeypatch.setattr(Toy, "render", lambda _: noise.integers(0, 256, (160, 160, 3), np.uint8))


def summary(out: Path) -> dict:
    return json.loads((out / "summary.json").read_text())


def log(out: Path) -> list[dict]:
    lines = (out / "decisions.jsonl").read_text()
    assert lines.endswith("\n")
    # How long a decision took is not the same twice.
    return [json.loads(line) | {"latency_ms": 0} for line in lines.splitlines()]


def test_a_log_that_cannot_grow_ends_and_the_deployment_does_not(deployed, tmp_path, capsys):
    assert deployed(tmp_path / "whole") == 0
    capsys.readouterr()
    # Room for a few decisions and for the summary, not for a figure.
    with room_for(3000):
        assert deployed(tmp_path / "cut") == INCOMPLETE
    shown = capsys.readouterr()
    path = tmp_path / "cut" / "decisions.jsonl"
    assert shown.err.startswith(f"ashore: {path} can no longer be written (File too large)")
    assert shown.err.count("\n") == 1, "it is said once"
    *_, last = shown.out.splitlines()
    assert last == "incomplete: decisions.jsonl, deployment.png could not be written to the end"
    assert f"episode {EPISODES} of {EPISODES}" in shown.out and "figure:" not in shown.out
    whole, cut = log(tmp_path / "whole"), log(tmp_path / "cut")
    assert len(whole) == EPISODES * DECISIONS and 0 < len(cut) < len(whole) and cut == whole[: len(cut)]
    expected, found = summary(tmp_path / "whole"), summary(tmp_path / "cut")
    assert found["episodes"] == expected["episodes"] and found["decisions"] == len(whole)
    assert (expected["lost"], found["lost"]) == ([], ["decisions.jsonl"])
    assert not (tmp_path / "cut" / "deployment.png").exists(), "half a figure"


def test_a_video_that_cannot_grow_is_taken_away_and_the_deployment_goes_on(deployed, filmed, tmp_path, capsys):
    # So many pictures that the encoder begins to write before the last.
    words = ("--episodes", "30")
    assert deployed(tmp_path / "whole", *words) == 0
    largest = max(file.stat().st_size for file in (tmp_path / "whole").iterdir())
    capsys.readouterr()
    # The figure shows how long decisions took, so its size is not the same twice; the video has thirty times as much.
    with room_for(2 * largest):
        assert deployed(tmp_path / "cut", *words, "--video") == INCOMPLETE
    shown = capsys.readouterr()
    assert f"{tmp_path / 'cut' / 'deployment.mp4'} can no longer be written (Broken pipe)" in shown.err
    assert shown.err.count("\n") == 1 and "video:" not in shown.out
    assert shown.out.splitlines()[-1] == "incomplete: deployment.mp4 could not be written to the end"
    assert not (tmp_path / "cut" / "deployment.mp4").exists()
    assert log(tmp_path / "cut") == log(tmp_path / "whole") and summary(tmp_path / "cut")["lost"] == ["deployment.mp4"]
    assert deployed(tmp_path / "film", "--video") == 0 and (tmp_path / "film" / "deployment.mp4").stat().st_size > 0


def test_without_any_room_there_is_no_report_and_still_a_deployment(deployed, tmp_path, capsys):
    with room_for(0):
        assert deployed(tmp_path / "none") == INCOMPLETE
    shown = capsys.readouterr()
    assert "refined" in shown.out and f"episode {EPISODES} of {EPISODES}" in shown.out
    assert shown.out.splitlines()[-1].startswith(
        f"incomplete: decisions.jsonl, summary.json, deployment.png, {provenance.FILE} "
    )
    assert shown.err.count("\n") == 1


def test_a_summary_is_kept_where_no_line_of_the_log_was(tmp_path):
    with deployment_report.claimed(tmp_path / "out") as out:
        (out / "decisions.jsonl").touch()
        (out / "summary.json").write_text("{}")
    assert (tmp_path / "out" / "summary.json").read_text() == "{}"


def test_words_for_a_full_disk_do_not_end_a_deployment(deployed, tmp_path, monkeypatch, capsys):
    full = open("/dev/full", "w")  # noqa: SIM115 - closing it fails
    monkeypatch.setattr(sys, "stdout", full)
    assert deployed(tmp_path) == INCOMPLETE
    monkeypatch.undo()
    with contextlib.suppress(OSError):
        full.close()
    assert summary(tmp_path)["decisions"] == EPISODES * DECISIONS
    shown = capsys.readouterr().err
    assert "No space left on device" in shown and shown.count("\n") == 1


@pytest.mark.parametrize("words", [[], ["--video"]], ids=["logged", "filmed"])
def test_what_goes_wrong_in_the_world_is_not_blamed_on_the_disk(deployed, filmed, tmp_path, monkeypatch, capsys, words):
    usual = Toy.step

    def step(self: Toy, action: np.ndarray):
        if self._decision:
            raise OSError(errno.EIO, "Input/output error", "/dev/robot")
        return usual(self, action)

    monkeypatch.setattr(Toy, "step", step)
    assert deployed(tmp_path, *words) == 74
    assert capsys.readouterr().err.startswith("ashore: /dev/robot: Input/output error.")
    assert len(log(tmp_path)) == 1 and not (tmp_path / "summary.json").exists()


def test_ctrl_c_ends_a_filmed_deployment_although_the_pipe_breaks_on_top(deployed, filmed, tmp_path, monkeypatch):
    def interrupted(_path: Path, pictures: Iterator[np.ndarray], _speed: float):
        next(pictures)
        try:
            raise KeyboardInterrupt
        finally:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(deployment_report, "write_video", interrupted)
    assert deployed(tmp_path, "--video") == 130
    assert len(log(tmp_path)) == 1
