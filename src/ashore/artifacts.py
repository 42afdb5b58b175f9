"""The hand-overs on disk: folders that are either complete and unharmed or not there at all.

A folder is written beside its final place, gets a manifest with the size and SHA-256 of every file and a checksum of
itself, is flushed to the disk and renamed. Whoever reads it checks the manifest first: a file that was cut, changed or
lost is named.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
SCHEMA = 1
_BLOCK = 1 << 20
_UNFINISHED = ".unfinished"
_CHECKSUM = "checksum"
_ENTRIES = ("schema", "files", "facts")

Write = Callable[[Path], object]
"""Writes one file at the given path; what it returns does not matter."""


class Damaged(ValueError):
    """An artifact that cannot be trusted; the message says which one and why."""


def write_folder(folder: Path, files: Mapping[str, Write], facts: Mapping[str, Any]) -> Path:
    """Write a folder of files all at once.

    Args:
        folder: where it shall be; an older folder there is replaced only when the new one is complete.
        files: what writes each file, by file name.
        facts: anything that JSON can hold, kept in the manifest.
    """
    unfinished = folder.with_name(folder.name + _UNFINISHED)
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    for name, write in files.items():
        write(unfinished / name)
    listing = {
        name: {"bytes": (unfinished / name).stat().st_size, "sha256": _hash(unfinished / name)} for name in files
    }
    # As it will be read: JSON has no tuples, and its keys are texts.
    manifest = json.loads(json.dumps({"schema": SCHEMA, "files": listing, "facts": dict(facts)}))
    (unfinished / MANIFEST).write_text(json.dumps(manifest | {_CHECKSUM: _checksum(manifest)}, indent=2) + "\n")
    for path in (*unfinished.iterdir(), unfinished):
        _flush(path)
    if folder.exists():
        shutil.rmtree(folder)
    unfinished.rename(folder)
    _flush(folder.parent)
    return folder


def verify_folder(folder: Path) -> dict[str, Any]:
    """Check a folder against its manifest and return the facts it was written with."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        # A checkpoint may be older than checksums of manifests; then there is nothing else in its place.
        checksum = manifest.pop(_CHECKSUM, None)
        schema, files, facts = manifest["schema"], manifest["files"], manifest["facts"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{folder} has no readable manifest ({type(error).__name__}).") from error
    if schema != SCHEMA:
        raise Damaged(f"{folder} was written in schema {schema}, and this version reads schema {SCHEMA}.")
    if len(manifest) > len(_ENTRIES) or checksum not in (None, _checksum(manifest)):
        raise Damaged(f"{folder / MANIFEST} was changed after it was written.")
    for name, expected in files.items():
        path = folder / name
        if not path.is_file():
            raise Damaged(f"{folder} lacks {name}.")
        if path.stat().st_size != expected["bytes"]:
            raise Damaged(f"{path} has {path.stat().st_size} bytes instead of {expected['bytes']}.")
        if _hash(path) != expected["sha256"]:
            raise Damaged(f"{path} was changed after it was written.")
    return facts


def _checksum(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
