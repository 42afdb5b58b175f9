"""Disks that are full or not ours, from the command line: one sentence with the path and what to do, no traceback."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import SafetensorError
from tests.compilation import QUICK_PROCESS

from ashore.cli.main import main
from ashore.experiments import presets, training
from ashore.experiments.training import TrainingRun
from volumes import SOAK

SMOKE = ["train", "Platoon", "nominal", "--preset", "smoke"]


def test_a_folder_below_a_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "file").write_text("")
    assert main([*SMOKE, "--out", str(tmp_path / "file" / "run")]) == 74
    shown = capsys.readouterr().err
    assert str(tmp_path / "file") in shown and "choose another folder" in shown and shown.count("\n") == 1


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT], ids=errno.errorcode.get)
def test_what_the_system_refuses_is_said(tmp_path: Path, capsys, monkeypatch, code):
    # Not to be had in a test that may run as root.
    def refuse(self, *_, **__):
        raise OSError(code, os.strerror(code), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert main([*SMOKE, "--out", str(tmp_path / "run")]) == 74
    shown = capsys.readouterr().err
    assert f"{tmp_path / 'run'}: {os.strerror(code)}" in shown and shown.count("\n") == 1


@pytest.mark.parametrize(
    "problem",
    [OSError(errno.ENOSPC, "No space left on device", "metrics.jsonl"), SafetensorError("No space left on device")],
    ids=["metrics", "checkpoint"],
)
def test_a_disk_that_fills_up_while_training_is_no_reason_to_start_again(tmp_path: Path, capsys, monkeypatch, problem):
    def full(*_):
        raise problem

    monkeypatch.setattr(training, "execute", full)
    assert main([*SMOKE, "--out", str(tmp_path / "run")]) == 75
    shown = capsys.readouterr().err
    assert "No space left on device" in shown and f"ashore train --resume {tmp_path / 'run'}" in shown


# A disk that is full for this process only: no file may grow beyond so many bytes.
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
from ashore.cli.main import main
sys.exit(main(sys.argv[2:]))
"""
ENDLESS = 1 << 40


def resume(folder: Path, largest: int) -> subprocess.CompletedProcess[bytes]:
    words = ["train", "--checkpoint-seconds", "0", "--resume", str(folder)]
    command = [sys.executable, "-c", LIMITED, str(largest), *words]
    return subprocess.run(command, env=os.environ | QUICK_PROCESS, capture_output=True, check=False)


@pytest.mark.skipif(not SOAK, reason="compiles a training program three times: `make soak`")
def test_a_run_on_a_full_disk_goes_on_when_there_is_room(tmp_path: Path):
    run = TrainingRun("Platoon", "P-train", "nominal", presets.lookup("Platoon", "smoke").train)
    folders = [tmp_path / "straight", tmp_path / "full"]
    for folder in folders:
        training.begin(run, folder)
    straight = resume(folders[0], ENDLESS)
    assert straight.returncode == 0, straight.stderr
    checkpoint = next((folders[0] / training.CHECKPOINTS).rglob("state.safetensors")).stat().st_size
    full = resume(folders[1], checkpoint // 2)
    assert full.returncode == 75 and b"Traceback" not in full.stderr and b"make room" in full.stderr, full.stderr
    again = resume(folders[1], ENDLESS)
    assert again.returncode == 0, again.stderr
    policies = [(folder / training.POLICY / "seed_0.safetensors").read_bytes() for folder in folders]
    assert policies[0] == policies[1]


def test_a_run_whose_first_checkpoint_was_never_finished_begins_again(tmp_path: Path):
    (tmp_path / training.CHECKPOINTS / "step_000000008.unfinished").mkdir(parents=True)
    assert training._state(tmp_path, lambda key: ("fresh", key), "key", None) == (("fresh", "key"), 0)  # pyright: ignore
