"""Disks that are full or not ours, from the command line: one sentence with the path and what to do, no traceback."""

import contextlib
import ctypes
import errno
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import SafetensorError
from tests.compilation import QUICK_PROCESS

from ashore.cli import calibrate
from ashore.cli.main import main
from ashore.experiments import calibration, presets, training
from ashore.experiments.training import TrainingRun
from experiments import cart_run, supervised_toy_world
from runtime import small_bundle
from volumes import SOAK

SMOKE = ["train", "Platoon", "nominal", "--preset", "smoke"]


TOY = ["--env", f"{supervised_toy_world.__name__}:Toy-v0", "--episodes", "1"]


@pytest.fixture(autouse=True)
def cart(monkeypatch: pytest.MonkeyPatch) -> None:
    cart_run.register(monkeypatch)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained run and a bundle; nobody writes into it."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        cart_run.register(patch)
        cart_run.write(folder / "run")
    small_bundle.write(folder / "toy.bundle")
    return folder


@pytest.fixture
def own(made: Path, tmp_path: Path) -> Path:
    """The same for one test."""
    return shutil.copytree(made, tmp_path / "own")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A calibration that measures nothing and keeps it as it would keep a measurement."""

    def keep_a_piece(_subject: Any, _config: Any, ledger: Any) -> None:
        ledger.keep("latent_error/0000", 1, lambda: {"error": np.zeros(1)})

    monkeypatch.setattr(calibration.calibrate, "calibrate", keep_a_piece)
    monkeypatch.setattr(calibrate.signal, "signal", lambda *_: None)


def one_sentence(capsys: pytest.CaptureFixture[str]) -> str:
    shown = capsys.readouterr().err
    assert shown.startswith("ashore: ") and shown.count("\n") == 1 and shown.endswith(".\n"), shown
    return shown


@contextlib.contextmanager
def permissions_hold() -> Generator[None, None, None]:
    """Permissions hold for root as well, whom two capabilities (DAC_OVERRIDE, DAC_READ_SEARCH) let pass over them."""
    if os.geteuid():
        yield
        return
    if sys.platform != "linux":
        pytest.skip("root may write anywhere")
    # As linux/capability.h has it: version 3 of the call, about this thread; effective, permitted, inheritable, twice.
    system, head, usual = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert system.capget(head, usual) == 0
    fewer = type(usual)(*usual)
    fewer[0] &= ~0b110
    assert system.capset(head, fewer) == 0
    try:
        yield
    finally:
        assert system.capset(head, usual) == 0


@contextlib.contextmanager
def mode(folder: Path, bits: int) -> Generator[None, None, None]:
    usual = folder.stat().st_mode
    folder.chmod(bits)
    try:
        with permissions_hold():
            yield
    finally:
        folder.chmod(usual)


READ: dict[str, Callable[[Path], list[Any]]] = {
    "train": lambda own: ["train", "--resume", own / "run"],
    "calibrate": lambda own: ["calibrate", own / "run"],
    "export": lambda own: ["export", own / "run"],
    "inspect": lambda own: ["inspect", own / "toy.bundle"],
    "deploy": lambda own: ["deploy", own / "toy.bundle", *TOY, "--out", own.parent / "out"],
}


@pytest.mark.parametrize("verb", READ)
def test_what_was_deleted_beforehand_is_named(tmp_path: Path, capsys, verb):
    own = tmp_path / "own"
    words = READ[verb](own)
    assert main([str(word) for word in words]) == 2
    shown = one_sentence(capsys)
    assert str(own) in shown and ("holds no run: it has no config.json" in shown or "No such file" in shown)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("verb", READ)
def test_what_may_not_be_read_is_named(own: Path, capsys, verb):
    words = READ[verb](own)
    subject = next(word for word in words if isinstance(word, Path))
    with mode(subject, 0o000):
        assert main([str(word) for word in words]) in (2, 74)
    shown = one_sentence(capsys)
    assert str(subject) in shown and "Permission denied" in shown


WRITTEN: dict[str, Callable[[Path, Path], list[Any]]] = {
    "train": lambda _, out: [*SMOKE, "--out", out / "run"],
    "calibrate": lambda own, _: ["calibrate", own / "run"],
    "export": lambda own, _: ["export", own / "run"],
    "export a folder": lambda own, out: ["export", own / "run", "--out", out / "policy"],
    "export a zip": lambda own, out: ["export", own / "run", "--out", out / "policy.zip"],
    "deploy": lambda own, out: ["deploy", own / "toy.bundle", *TOY, "--out", out / "deployment"],
}


@pytest.mark.parametrize("verb", WRITTEN)
def test_a_folder_that_may_not_be_written_is_named(own: Path, tmp_path: Path, capsys, measured, verb):
    out = tmp_path / "out"
    out.mkdir()
    words = WRITTEN[verb](own, out)
    folder = out if any(isinstance(word, Path) and word.is_relative_to(out) for word in words) else own / "run"
    with mode(folder, 0o555):
        assert main([str(word) for word in words]) == 74
    shown = one_sentence(capsys)
    assert f"ashore: {folder}/" in shown and "Permission denied. Make room there, mend its permissions" in shown
    assert not list(out.iterdir())


@pytest.mark.parametrize("name", ["policy", "policy.zip"])
def test_a_bundle_that_does_not_fit_is_named_and_not_left_in_halves(own: Path, tmp_path: Path, capsys, name):
    out = tmp_path / name
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A disk that is full for this process only: no file may grow beyond a kilobyte.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, usual[1]))
    try:
        assert main(["export", str(own / "run"), "--out", str(out)]) == 74
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert f"ashore: {out}: File too large. Make room there" in one_sentence(capsys)
    assert not out.exists()
    assert main(["export", str(own / "run"), "--out", str(out)]) == 0


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
