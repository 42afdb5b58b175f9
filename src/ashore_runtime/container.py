"""The files of a bundle as bytes, from a folder or from one stored (uncompressed) zip; and back.

Reading trusts nothing: sizes are checked before anything is read, links and devices are not followed, and a zip must be
byte for byte what `write_zip` makes of its members. That one rule leaves no room for compressed members, bombs, entries
that overlap, names that differ between the two headers, or data before, between and after the members.
"""

import os
import re
import shutil
import stat
import struct
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from ashore_runtime.refusal import Refused

MAX_FILES = 16
MAX_BYTES = 2 << 30
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_MAX_NAME = 64
_RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(10))}
"""Names that mean a device on Windows, with any ending."""

_LOCAL_MARK = b"PK\x03\x04"
_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_DAY_ONE = 0x21
"""1 January 1980, the first day a zip can name: a bundle does not depend on when it was written."""
_VERSION = 20
_UNFINISHED = ".unfinished"


def check_name(name: str) -> None:
    """Refuse anything but the plain name of a file in one flat folder."""
    plain = len(name) <= _MAX_NAME and _NAME.fullmatch(name) and name.split(".")[0].lower() not in _RESERVED
    if not plain:
        raise Refused(f"A bundle cannot hold a file called {name[:_MAX_NAME]!r}.")


class Container(Protocol):
    """A bundle that has been looked at but not read."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """Bytes of every file, by name."""
        ...

    def read(self, name: str) -> bytes:
        """One file, of exactly the announced size."""
        ...

    def check(self, files: Mapping[str, bytes]) -> None:
        """Refuse a container in which there is anything besides these files, which are all of them."""
        ...

    def close(self) -> None: ...


@contextmanager
def opened(path: Path) -> Generator[Container, None, None]:
    """The bundle at `path`; whatever goes wrong with the file system is a refusal."""
    try:
        container: Container = Folder(path) if path.is_dir() else StoredZip(path)
        try:
            if len({name.lower() for name in container.sizes}) != len(container.sizes):
                raise Refused(f"{path} holds two files whose names differ only in case.")
            if sum(container.sizes.values()) > MAX_BYTES:
                raise Refused(f"{path} holds more than {MAX_BYTES} bytes.")
            yield container
        finally:
            container.close()
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror or type(error).__name__}.") from error


def write_folder(path: Path, files: Mapping[str, bytes]) -> Path:
    """Write all files at once; a bundle that stood there before is replaced only when the new one is complete."""
    unfinished = path.with_name(path.name + _UNFINISHED)
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    for name in sorted(files):
        check_name(name)
        _write_flushed(unfinished / name, (files[name],))
    if path.is_dir():
        shutil.rmtree(path)
    unfinished.rename(path)
    return path


def write_zip(path: Path, files: Mapping[str, bytes]) -> Path:
    """Write all files into one stored zip; the same files give the same bytes."""
    for name in files:
        check_name(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + _UNFINISHED)
    _write_flushed(unfinished, _zip_chunks(dict(sorted(files.items()))))
    unfinished.replace(path)
    return path


def _write_flushed(path: Path, chunks: Iterable[bytes]) -> None:
    with path.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


class Folder:
    """A bundle as a flat folder of regular files."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.sizes: dict[str, int] = {}
        with os.scandir(path) as entries:
            for entry in entries:
                if len(self.sizes) == MAX_FILES:
                    raise Refused(f"{path} holds more than {MAX_FILES} files.")
                check_name(entry.name)
                facts = entry.stat(follow_symlinks=False)
                if stat.S_ISLNK(facts.st_mode):
                    raise Refused(f"{entry.path} is a symbolic link, and links are not followed.")
                _check_regular(facts, entry.path)
                self.sizes[entry.name] = facts.st_size

    def read(self, name: str) -> bytes:
        with _open(self._path / name) as file:
            return _exactly(file, self.sizes[name], self._path / name)

    def check(self, files: Mapping[str, bytes]) -> None:
        assert set(files) == set(self.sizes)

    def close(self) -> None:
        pass


class StoredZip:
    """A bundle as one zip without compression."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._foreign = Refused(f"{path} is not a bundle in its stored form; unpack it and load the folder.")
        self.sizes: dict[str, int] = {}
        self._places: dict[str, int] = {}
        self._file = _open(path)
        try:
            self._length = os.fstat(self._file.fileno()).st_size
            self._scan()
        except BaseException:
            self._file.close()
            raise

    def _scan(self) -> None:
        place = 0
        while True:
            head = self._at(place, _LOCAL.size)
            if head[:4] != _LOCAL_MARK or len(head) < _LOCAL.size:
                break
            if len(self.sizes) == MAX_FILES:
                raise Refused(f"{self._path} holds more than {MAX_FILES} files.")
            _, _, flags, method, _, _, _, packed, size, name_length, more = _LOCAL.unpack(head)
            if flags or method or more or packed != size:
                raise self._foreign
            begin = place + _LOCAL.size + name_length
            name = self._at(place + _LOCAL.size, min(name_length, _MAX_NAME + 1)).decode("latin-1")
            check_name(name)
            place = begin + size
            if place > self._length:
                raise self._foreign
            if name in self.sizes:
                raise Refused(f"{self._path} holds two files called {name!r}.")
            self.sizes[name], self._places[name] = size, begin
        if not self.sizes or list(self.sizes) != sorted(self.sizes):
            raise self._foreign

    def _at(self, place: int, size: int) -> bytes:
        self._file.seek(place)
        return self._file.read(size)

    def read(self, name: str) -> bytes:
        return self._at(self._places[name], self.sizes[name])

    def check(self, files: Mapping[str, bytes]) -> None:
        place = 0
        for chunk in _zip_chunks({name: files[name] for name in self.sizes}):
            if self._at(place, len(chunk)) != chunk:
                raise self._foreign
            place += len(chunk)
        if place != self._length:
            raise self._foreign

    def close(self) -> None:
        self._file.close()


def _open(path: Path) -> BinaryIO:
    if path.is_symlink() and not path.is_file():
        raise Refused(f"{path} is a link to nothing that can be read.")
    # Non-blocking, so that a pipe in the place of a file cannot make us wait for its writer.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        _check_regular(os.fstat(handle), path)
    except Refused:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def _check_regular(facts: os.stat_result, path: object) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise Refused(f"{path} is not a regular file.")
    if facts.st_nlink > 1:
        raise Refused(f"{path} is a hard link that can be changed under another name; copy it and load the copy.")
    if facts.st_size > MAX_BYTES:
        raise Refused(f"{path} is larger than {MAX_BYTES} bytes.")


def _exactly(file: BinaryIO, size: int, path: Path) -> bytes:
    data = file.read(size + 1)
    if len(data) != size:
        raise Refused(f"{path} changed while it was read.")
    return data


def _zip_chunks(files: Mapping[str, bytes]) -> Iterator[bytes]:
    directory = []
    place = 0
    for name, data in files.items():
        label = name.encode("ascii")
        facts = (_VERSION, 0, 0, 0, _DAY_ONE, zlib.crc32(data), len(data), len(data), len(label), 0)
        yield _LOCAL.pack(_LOCAL_MARK, *facts) + label
        yield data
        directory.append(_CENTRAL.pack(b"PK\x01\x02", _VERSION, *facts, 0, 0, 0, 0, place) + label)
        place += _LOCAL.size + len(label) + len(data)
    listing = b"".join(directory)
    yield listing
    yield _END.pack(b"PK\x05\x06", 0, 0, len(directory), len(directory), len(listing), place, 0)
