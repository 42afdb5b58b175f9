"""Disks that are full, gone or not ours: acting goes on, loading says which path and what to do about it."""

import errno
import os
import resource
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from ashore_runtime import GuardSettings, Limits, Mode, Reason, Refused, Runtime, bundle
from ashore_runtime import journal as journals
from runtime.toy_plant import ToyPlant
from volumes import volume

NEVER_STUCK = Limits(guard=GuardSettings(stuck_steps=0))


@contextmanager
def files_up_to(size: int) -> Generator[None, None, None]:
    """The kernel refuses to let any file grow beyond so many bytes, as a full disk would, but for this process only."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def decide(runtime: Runtime, plant: ToyPlant):
    result = runtime.act(plant.step(np.zeros(2)))
    return result, runtime.observe(plant.step(result.action), 0.0, 0.0)


def test_a_disk_that_fills_up_at_any_byte(make_runtime, tmp_path: Path):
    generator = np.random.default_rng(0)
    for trial in range(volume(4, 60)):
        path = tmp_path / f"{trial}.jnl"
        runtime = make_runtime(journal=path, limits=NEVER_STUCK, sync=False)
        plant, kept = ToyPlant(trial), int(generator.integers(0, 6))
        for _ in range(kept):
            decide(runtime, plant)
        with files_up_to(path.stat().st_size + int(generator.integers(0, 200))):
            results = [decide(runtime, plant) for _ in range(5)]
        for result, evidence in results:
            assert result.source in ("nominal", "refined") and evidence.used and not result.missed
        # The limit leaves room for less than one decision: the next one says so.
        assert all(Reason.JOURNAL_LOST in r.reasons and r.mode is Mode.DEGRADED for r, _ in results[1:])
        result, _ = decide(runtime, plant)
        assert runtime.health()["journal"] == "ok", "there is room again"
        runtime.close()
        assert Runtime.resume(path, rule="trust", freeze=False).posterior.count == kept + 6


def test_a_disk_that_does_not_answer(make_runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    runtime = make_runtime(journal=tmp_path / "run.jnl", limits=NEVER_STUCK)

    def broken(_handle: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(journals, "_sync", broken)
        decide(runtime, ToyPlant(0))
        assert runtime.health()["journal"] == "lost"
    decide(runtime, ToyPlant(1))
    assert runtime.health()["journal"] == "ok"


def test_a_deleted_folder_is_noticed_with_the_next_transition(make_runtime, tmp_path: Path):
    folder = tmp_path / "run"
    folder.mkdir()
    runtime, plant = make_runtime(journal=folder / "run.jnl", limits=NEVER_STUCK), ToyPlant(0)
    decide(runtime, plant)
    shutil.rmtree(folder)
    # The system would go on writing into a file that nobody can open any more.
    _, evidence = decide(runtime, plant)
    assert evidence.used and runtime.health()["journal"] == "lost"
    result, _ = decide(runtime, plant)
    assert Reason.JOURNAL_LOST in result.reasons and result.mode is Mode.DEGRADED and result.source != "fallback"
    runtime.close()


def test_a_full_journal_that_cannot_be_put_aside_is_kept(make_runtime, tmp_path: Path, monkeypatch):
    path = tmp_path / "run.jnl"
    runtime, plant = make_runtime(journal=path, limits=NEVER_STUCK), ToyPlant(0)
    runtime._logbook.journal._max_bytes = 2_000

    def refused(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refused)
        for _ in range(10):
            assert decide(runtime, plant)[1].used
    assert runtime.health()["journal"] == "lost"
    for _ in range(10):
        decide(runtime, plant)
    assert runtime.health()["journal"] == "ok" and journals.previous(path).exists()
    runtime.close()
    assert Runtime.resume(path, rule="trust", freeze=False).posterior.count == 20


REAL_PLACES = {
    "no such folder": lambda folder: folder / "missing" / "x",
    "a folder": lambda folder: folder,
    "below a file": lambda folder: folder / "file" / "x",
    "a name too long": lambda folder: folder / ("x" * 300),
    "a link to itself": lambda folder: folder / "loop",
    "below a link to nowhere": lambda folder: folder / "dangling" / "x",
}
REFUSALS = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EIO,
    errno.ESTALE, errno.ENODEV,
)  # fmt: skip


def prepared(folder: Path) -> Path:
    (folder / "file").write_text("")
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nowhere")
    return folder


@pytest.mark.parametrize("place", REAL_PLACES)
def test_a_place_that_is_none_is_named(tmp_path: Path, place):
    path = REAL_PLACES[place](prepared(tmp_path))
    with pytest.raises(Refused, match="cannot be written .*; choose a folder that can") as refusal:
        journals.Journal(path)
    assert str(path) in str(refusal.value)
    if place != "a folder":
        with pytest.raises(Refused, match="can(not)? be read") as refusal:
            bundle.load(path)
        assert str(path) in str(refusal.value)


@pytest.mark.parametrize("code", REFUSALS, ids=errno.errorcode.get)
def test_whatever_the_system_says_is_passed_on_in_one_sentence(tmp_path: Path, bundle_folder: Path, monkeypatch, code):
    # Read-only disks, lost permissions and exhausted inodes are not to be had in a test that may run as root.
    really_open = os.open

    def refuse(path, *options, **more):
        if str(path).startswith((str(tmp_path), str(bundle_folder))):
            raise OSError(code, os.strerror(code), str(path))
        return really_open(path, *options, **more)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(Refused, match="cannot be written .*; choose a folder that can") as refusal:
        journals.Journal(tmp_path / "run.jnl")
    assert os.strerror(code) in str(refusal.value) and "\n" not in str(refusal.value)
    with pytest.raises(Refused, match="cannot be read") as refusal:
        bundle.load(bundle_folder)
    assert os.strerror(code) in str(refusal.value) and str(bundle_folder) in str(refusal.value)
