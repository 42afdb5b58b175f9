"""What happened, on disk: records with length and CRC-32, appended; a torn tail is cut off, never believed.

    file    "ASHJRNL1", then records
    record  length of the payload (u32), CRC-32 of the payload (u32), payload
    payload one byte for the kind, then JSON (events, snapshots) or packed floats (decisions, transitions)

A journal that cannot be written is a fact the runtime reports, not a reason to stop acting: `append` says whether the
record is safe, cuts off what a full disk left behind, and tries again with the next record.
"""

import contextlib
import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ashore_runtime.refusal import Refused

try:
    import fcntl
except ImportError:  # Windows has no advisory locks; there two runtimes on one journal are the user's to avoid.
    fcntl = None

MAGIC = b"ASHJRNL1"
_HEAD = struct.Struct("<II")
MAX_RECORD = 1 << 20
"""A length beyond this is damage, not a record."""

BEGIN, EVENT, SNAPSHOT, DECISION, TRANSITION = b"B", b"E", b"S", b"D", b"T"
_sync = getattr(os, "fdatasync", os.fsync)


class Record(NamedTuple):
    """One record: what kind, and its content."""

    kind: bytes
    body: bytes

    def json(self) -> Any:
        """The content of a begin, an event or a snapshot."""
        return json.loads(self.body)


def pack(*parts: np.ndarray | float | int) -> bytes:
    """Numbers as float64, one after the other; exact for float32 and for counts up to 2^53."""
    return b"".join(np.asarray(part, np.float64).tobytes() for part in parts)


def unpack(body: bytes) -> np.ndarray:
    """The inverse of `pack`, as one vector."""
    return np.frombuffer(body, np.float64)


class Journal:
    """An open journal. One process at a time: a second one is refused."""

    def __init__(self, path: Path, sync: bool = True, max_bytes: int = 64 << 20) -> None:
        """Args: the file, whether `append(durable=True)` waits for the disk, and the size at which to start anew."""
        self.path = path
        self.lost = False
        """Whether the last record could not be written."""
        self._sync = sync
        self._max_bytes = max_bytes
        self._handle = -1
        self._open()

    def _open(self) -> None:
        try:
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)
            if fcntl is not None:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._end = _good_length(self._handle, self.path)
            os.ftruncate(self._handle, self._end)
            if self._end == 0:
                _write_all(self._handle, MAGIC, 0)
                self._end = len(MAGIC)
        except Refused:
            self.close()
            raise
        except BlockingIOError as error:
            self.close()
            raise Refused(f"The journal {self.path} is in use by another process.") from error
        except OSError as error:
            self.close()
            problem = error.strerror or type(error).__name__
            raise Refused(
                f"The journal {self.path} cannot be written ({problem}); choose a folder that can."
            ) from error

    @property
    def full(self) -> bool:
        """Whether it is time to `rotate`."""
        return self._end >= self._max_bytes

    def append(self, kind: bytes, body: bytes, durable: bool = False) -> bool:
        """Add a record; returns whether it is written (and, if durable, on the disk)."""
        payload = kind + body
        record = _HEAD.pack(len(payload), zlib.crc32(payload)) + payload
        try:
            _write_all(self._handle, record, self._end)
            if not os.fstat(self._handle).st_nlink:
                # Somebody removed the file. The system goes on writing where nobody can read.
                raise FileNotFoundError(self.path)
            if durable and self._sync:
                _sync(self._handle)
        except OSError:
            self.lost = True
            # What a full disk left of the record would end the journal for every record after it.
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, self._end)
            return False
        self._end += len(record)
        self.lost = False
        return True

    def append_json(self, kind: bytes, content: Any, durable: bool = False) -> bool:
        """Add a record of JSON."""
        return self.append(kind, json.dumps(content).encode(), durable)

    def rotate(self, begin: Any, snapshot: Any) -> None:
        """Put the file aside as `<name>.1` and start a new one with a begin and a snapshot.

        The new file is complete before the names change, so that at every moment one of the two can be resumed.
        """
        fresh = self.path.with_name(self.path.name + ".new")
        with contextlib.suppress(OSError):
            fresh.unlink()
        try:
            following = Journal(fresh, self._sync, self._max_bytes)
        except Refused:
            self.lost = True
            return
        written = following.append_json(BEGIN, begin) and following.append_json(SNAPSHOT, snapshot, durable=True)
        if not written:
            following.close()
            self.lost = True
            return
        try:
            os.replace(self.path, previous(self.path))
            os.replace(fresh, self.path)
        except OSError:
            self.lost = True
            following.close()
            return
        self.close()
        self._handle, self._end = following._handle, following._end
        following._handle = -1

    def close(self) -> None:
        """Flush and let go of the file."""
        if self._handle >= 0:
            with contextlib.suppress(OSError):
                _sync(self._handle)
            os.close(self._handle)
            self._handle = -1


def previous(path: Path) -> Path:
    """Where `rotate` puts the file that was full."""
    return path.with_name(path.name + ".1")


def records(path: Path) -> Iterator[Record]:
    """All records up to the end or to the first that is damaged."""
    try:
        if not path.exists() and previous(path).exists():
            path = previous(path)  # It ended between the two renames of `rotate`.
        data = path.read_bytes()
    except OSError as error:
        raise Refused(f"The journal {path} cannot be read: {error.strerror or type(error).__name__}.") from error
    if data[: len(MAGIC)] != MAGIC:
        raise Refused(f"{path} is not a journal.")
    for begin, end in _spans(data):
        yield Record(data[begin : begin + 1], data[begin + 1 : end])


def _spans(data: bytes) -> Iterator[tuple[int, int]]:
    place = len(MAGIC)
    while place + _HEAD.size <= len(data):
        length, crc = _HEAD.unpack_from(data, place)
        begin = place + _HEAD.size
        place = begin + length
        if not 0 < length <= MAX_RECORD or place > len(data) or zlib.crc32(data[begin:place]) != crc:
            return
        yield begin, place


def _good_length(handle: int, path: Path) -> int:
    size = os.fstat(handle).st_size
    with os.fdopen(os.dup(handle), "rb") as file:
        data = file.read(size)
    if MAGIC.startswith(data):
        return 0  # New, or torn within its first eight bytes.
    if data[: len(MAGIC)] != MAGIC:
        raise Refused(f"{path} is not a journal; choose another name.")
    end = len(MAGIC)
    for _, stop in _spans(data):
        end = stop
    return end


def _write_all(handle: int, data: bytes, place: int) -> None:
    os.lseek(handle, place, os.SEEK_SET)
    while data:
        data = data[os.write(handle, data) :]


def holds_evidence(path: Path) -> bool:
    """Whether `path` tells of a run that has learnt something and could be resumed."""
    try:
        _, state = last_state(path)
    except Refused:
        return False
    return bool(state.get("count"))


def last_state(path: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The last begin of a journal and the newest state after it."""
    begin: Mapping[str, Any] | None = None
    state: Mapping[str, Any] = {}
    for record in records(path):
        if record.kind not in (BEGIN, SNAPSHOT, TRANSITION):
            continue
        try:
            content = record.json()
        except ValueError as error:
            raise Refused(f"The journal {path} holds a record that is not understood.") from error
        if not isinstance(content, dict):
            raise Refused(f"The journal {path} holds a record that is not understood.")
        if record.kind == BEGIN:
            begin, state = content, content.get("state", {})
        else:
            state = content
    if begin is None:
        raise Refused(f"The journal {path} does not begin.")
    return begin, state
