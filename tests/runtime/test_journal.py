"""The journal: torn, flipped, full, shared, rotated; what is read back was written, and writing never raises."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from ashore_runtime import Refused
from ashore_runtime import journal as journals
from ashore_runtime.journal import EVENT, Journal
from volumes import volume


def write(path: Path, count: int = 5) -> bytes:
    journal = Journal(path, sync=False)
    for i in range(count):
        assert journal.append_json(EVENT, {"number": i})
    journal.close()
    return path.read_bytes()


def numbers(path: Path) -> list[int]:
    return [record.json()["number"] for record in journals.records(path)]


def test_what_is_written_is_read_and_continued(tmp_path: Path):
    path = tmp_path / "run.jnl"
    write(path, 3)
    write(path, 2)
    assert numbers(path) == [0, 1, 2, 0, 1]


def test_packed_numbers_come_back_exactly():
    parts = (np.array([1 / 3, -1e-40], np.float32), 2**53, -0.1)
    found = journals.unpack(journals.pack(*parts))
    assert found[:2].astype(np.float32).tobytes() == parts[0].tobytes() and found[2:].tolist() == [2**53, -0.1]


def test_every_truncation_leaves_the_records_before_it(tmp_path: Path):
    path = tmp_path / "run.jnl"
    whole = write(path)
    # Eight bytes of name, then five records of equal length.
    record = (len(whole) - 8) // 5
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        if length >= 8:
            assert numbers(path) == list(range((length - 8) // record))
        journal = Journal(path, sync=False)
        journal.append_json(EVENT, {"number": 9})
        journal.close()
        assert numbers(path) == [*range(max(length - 8, 0) // record), 9], "the torn tail was not cut off"


def test_every_flipped_bit_is_found(tmp_path: Path):
    path = tmp_path / "run.jnl"
    count = min(volume(3, 10), 10)
    whole = write(path, count)
    for place in range(len(whole)):
        for bit in range(8):
            bad = bytearray(whole)
            bad[place] ^= 1 << bit
            path.write_bytes(bad)
            if place < 8:
                with pytest.raises(Refused, match="not a journal"):
                    numbers(path)
            else:
                assert numbers(path) == list(range((place - 8) // ((len(whole) - 8) // count)))


def test_a_full_disk_is_reported_and_what_it_left_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "run.jnl"
    journal = Journal(path, sync=False)
    assert journal.append_json(EVENT, {"number": 0})
    really_write = os.write

    def full(handle: int, data: bytes) -> int:
        if len(data) > 5:
            return really_write(handle, data[:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    assert not journal.append_json(EVENT, {"number": 1}) and journal.lost
    monkeypatch.undo()
    assert journal.append_json(EVENT, {"number": 2}) and not journal.lost
    journal.close()
    assert numbers(path) == [0, 2]


def test_a_second_process_is_refused(tmp_path: Path):
    journal = Journal(tmp_path / "run.jnl")
    with pytest.raises(Refused, match="in use by another process"):
        Journal(tmp_path / "run.jnl")
    journal.close()
    Journal(tmp_path / "run.jnl").close()


@pytest.mark.parametrize("place", ["missing/run.jnl", "folder"])
def test_places_that_cannot_be_written_are_named(tmp_path: Path, place):
    (tmp_path / "folder").mkdir()
    with pytest.raises(Refused, match=f"{place} cannot be written .*; choose a folder that can"):
        Journal(tmp_path / place)


def test_a_foreign_file_is_left_alone(tmp_path: Path):
    path = tmp_path / "letter.txt"
    path.write_text("Dear Sir or Madam")
    with pytest.raises(Refused, match="not a journal; choose another name"):
        Journal(path)
    assert path.read_text() == "Dear Sir or Madam"


def test_rotation_keeps_one_complete_file_at_every_moment(tmp_path: Path):
    path = tmp_path / "run.jnl"
    journal = Journal(path, sync=False, max_bytes=200)
    for i in range(50):
        assert journal.append_json(EVENT, {"number": i})
        if journal.full:
            journal.rotate({"begin": i}, {"snapshot": i})
            assert not journal.lost
    journal.close()
    assert path.stat().st_size < 400 and journals.previous(path).stat().st_size < 400
    kinds = [record.kind for record in journals.records(path)]
    assert kinds[:2] == [journals.BEGIN, journals.SNAPSHOT]
    # Killed between the two renames: the older file is found.
    path.unlink()
    assert [record.kind for record in journals.records(path)][:2] == [journals.BEGIN, journals.SNAPSHOT]
