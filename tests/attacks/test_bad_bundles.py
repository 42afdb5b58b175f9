"""Every crafted bundle is refused with one sentence that says why, quickly, and without touching anything else."""

import re
import resource
import shutil
import time
from pathlib import Path

import pytest

from ashore_runtime import Refused, bundle, container
from attacks.crafted import BY_CONTENT, IN_FOLDERS, IN_ZIPS
from runtime import small_bundle

# 100 ms are meant, of the processor: how long a busy machine makes it wait is not the loader's doing.
MOST_SECONDS = 0.5
MOST_KILOBYTES = 50 << 10


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bundle.write(tmp_path_factory.mktemp("attacks") / "good.bundle")


def files_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def refuse(path: Path, message: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.process_time()
    with pytest.raises(Refused, match=message) as refusal:
        bundle.load(path)
    assert time.process_time() - begun < MOST_SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_KILOBYTES
    assert re.fullmatch(r"[^\n]{10,400}\.", str(refusal.value)), f"not one sentence: {refusal.value}"


@pytest.mark.parametrize("name", BY_CONTENT)
def test_content(good: Path, tmp_path: Path, name):
    change, message = BY_CONTENT[name]
    bad = tmp_path / "bad"
    bad.mkdir()
    for file, data in change(files_of(good)).items():
        (bad / file).write_bytes(data)
    refuse(bad, message)


@pytest.mark.parametrize("name", IN_FOLDERS)
def test_folder(good: Path, tmp_path: Path, name):
    change, message = IN_FOLDERS[name]
    bad = tmp_path / "bad"
    shutil.copytree(good, bad)
    change(bad)
    refuse(bad, message)


@pytest.mark.parametrize("name", IN_ZIPS)
def test_zip(good: Path, tmp_path: Path, name):
    make, message = IN_ZIPS[name]
    bad = tmp_path / "bad.zip"
    bad.write_bytes(make(files_of(good), tmp_path))
    inside = set(tmp_path.rglob("*"))
    refuse(bad, message)
    assert set(tmp_path.rglob("*")) == inside, "loading wrote something"


def test_the_good_one_is_loaded_both_ways(good: Path, tmp_path: Path):
    bundle.load(good)
    bundle.load(container.write_zip(tmp_path / "good.zip", files_of(good)))


def test_what_is_not_there_is_said(tmp_path: Path):
    refuse(tmp_path / "nothing", "cannot be read: No such file")


@pytest.mark.parametrize("name", ["../x", "/x", "", ".", "..", "a/b", "a\\b", "nul", "COM1.txt", "x" * 65, "é", "a\0"])
def test_names_are_checked_when_writing_too(tmp_path: Path, name):
    for write in (container.write_folder, container.write_zip):
        with pytest.raises(Refused, match="cannot hold a file"):
            write(tmp_path / "out", {name: b""})
