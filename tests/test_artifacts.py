"""Folders on disk: complete and unharmed, or refused with a sentence that says why."""

import json
from pathlib import Path

import numpy as np
import pytest

from ashore import artifacts
from ashore.artifacts import Damaged


def make(folder: Path, content: bytes = b"some numbers " * 100) -> Path:
    return artifacts.write_folder(folder, {"data.bin": lambda path: path.write_bytes(content)}, {"step": 7})


def test_what_was_written_is_read_back(tmp_path: Path):
    folder = make(tmp_path / "run")
    assert artifacts.verify_folder(folder) == {"step": 7}
    assert [path.name for path in tmp_path.iterdir()] == ["run"], "something unfinished was left behind"


def test_every_flipped_bit_is_found(tmp_path: Path):
    generator = np.random.default_rng(0)
    folder = make(tmp_path / "run")
    good = (folder / "data.bin").read_bytes()
    for position in generator.integers(0, len(good), 100):
        bad = bytearray(good)
        bad[position] ^= 1 << int(generator.integers(8))
        (folder / "data.bin").write_bytes(bad)
        with pytest.raises(Damaged, match="was changed after it was written"):
            artifacts.verify_folder(folder)
    (folder / "data.bin").write_bytes(good)
    artifacts.verify_folder(folder)


def test_every_truncation_is_found(tmp_path: Path):
    folder = make(tmp_path / "run", b"0123456789")
    for length in range(10):
        (folder / "data.bin").write_bytes(b"0123456789"[:length])
        with pytest.raises(Damaged, match="bytes instead of 10"):
            artifacts.verify_folder(folder)
    (folder / "data.bin").unlink()
    with pytest.raises(Damaged, match="lacks data.bin"):
        artifacts.verify_folder(folder)


def test_a_broken_or_foreign_manifest_is_refused(tmp_path: Path):
    folder = make(tmp_path / "run")
    manifest = folder / artifacts.MANIFEST
    text = manifest.read_text()
    for broken in ("", text[: len(text) // 2], "[]", "{}", "null"):
        manifest.write_text(broken)
        with pytest.raises(Damaged, match="no readable manifest"):
            artifacts.verify_folder(folder)
    manifest.write_text(json.dumps(json.loads(text) | {"schema": 99}))
    with pytest.raises(Damaged, match="schema 99"):
        artifacts.verify_folder(folder)


def test_a_failed_write_leaves_the_old_folder_as_it_was(tmp_path: Path):
    folder = make(tmp_path / "run")

    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        artifacts.write_folder(folder, {"data.bin": fail}, {"step": 8})
    assert artifacts.verify_folder(folder) == {"step": 7}
    # And the next attempt is not disturbed by what was left.
    artifacts.write_folder(folder, {"data.bin": lambda path: path.write_bytes(b"new")}, {"step": 9})
    assert artifacts.verify_folder(folder) == {"step": 9}
