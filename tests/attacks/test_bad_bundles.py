"""Every crafted bundle is refused with one sentence that says why, quickly, and without touching anything else."""

import io
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ashore_runtime import Refused, bundle, container
from attacks import loading_process
from attacks.crafted import (
    BY_CONTENT,
    CARRIED,
    CLOUDPICKLE,
    CUSTOM,
    EXTERNAL,
    FOREIGN,
    IN_FOLDERS,
    IN_ZIPS,
    JOBLIB,
    PICKLE,
    REPLAYED,
    seal,
    with_file,
)
from runtime import small_bundle

# Of the processor: how long a busy machine makes the loader wait is not the loader's doing.
MOST_SECONDS = 0.1
MOST_SECONDS_OF_A_REPLAY = 0.5
MOST_KILOBYTES = 50 << 10
READING = {"open", "os.scandir"}
HARMLESS = {"builtins.id"}

Load = Callable[[Path], dict[str, Any]]


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bundle.write(tmp_path_factory.mktemp("attacks") / "good.bundle")


@pytest.fixture(scope="session")
def load(good: Path) -> Iterator[Load]:
    """Loads a bundle in a process that does nothing else, and tells what came of it."""
    # A second thread would not survive the fork, and its memory would not be the loader's.
    alone = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, loading_process.__file__, str(good)]
    with subprocess.Popen(command, env=alone, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        asked, told = process.stdin, process.stdout

        def load(path: Path) -> dict[str, Any]:
            asked.write(f"{path}\n")
            asked.flush()
            answer = told.readline()
            assert answer.strip(), "loading raised something else than a refusal"
            found = json.loads(answer)
            touched = [event for event in found["events"] if event[0] not in HARMLESS]
            assert touched, "nobody listened"
            for event, place in touched:
                # A number is a file that was opened by its name before.
                inside = place.isdigit() or path in (Path(place), Path(place).parent)
                assert event in READING and inside, f"{event} of {place}"
            return found

        yield load


@pytest.fixture
def refuse(load: Load) -> Callable[..., None]:
    def refuse(path: Path, message: str, most_seconds: float = MOST_SECONDS) -> None:
        found = load(path)
        assert re.search(message, str(found["refusal"])), found["refusal"]
        assert re.fullmatch(r"[^\n]{10,400}\.", found["refusal"]), f"not one sentence: {found['refusal']}"
        assert found["seconds"] < most_seconds
        assert found["kilobytes"] < MOST_KILOBYTES

    return refuse


def files_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("name", BY_CONTENT)
def test_content(good: Path, tmp_path: Path, refuse, name):
    change, message = BY_CONTENT[name]
    bad = write_files(tmp_path / "bad", change(files_of(good)))
    refuse(bad, message, MOST_SECONDS_OF_A_REPLAY if name in REPLAYED else MOST_SECONDS)


@pytest.mark.parametrize("name", IN_FOLDERS)
def test_folder(good: Path, tmp_path: Path, refuse, name):
    change, message = IN_FOLDERS[name]
    bad = tmp_path / "bad"
    shutil.copytree(good, bad)
    change(bad)
    refuse(bad, message)


@pytest.mark.parametrize("name", IN_ZIPS)
def test_zip(good: Path, tmp_path: Path, refuse, name):
    make, message = IN_ZIPS[name]
    bad = tmp_path / "bad.zip"
    bad.write_bytes(make(files_of(good), tmp_path))
    inside = set(tmp_path.rglob("*"))
    refuse(bad, message)
    assert set(tmp_path.rglob("*")) == inside, "loading wrote something"


@pytest.mark.parametrize("place", CARRIED)
@pytest.mark.parametrize("what", FOREIGN)
def test_what_nothing_reads_is_carried_along_unread(good: Path, tmp_path: Path, load: Load, what, place):
    odd = write_files(tmp_path / "odd", with_file(place, lambda _: FOREIGN[what])(files_of(good)))
    # Nothing was opened but the files of the bundle, and nothing was looked up by name.
    assert load(odd)["refusal"] is None
    found = bundle.load(odd)
    assert (
        found.card == FOREIGN[what].decode("utf-8", "replace")
        if place == "CARD.md"
        else found.files[place] == FOREIGN[what]
    )


@pytest.mark.parametrize(
    ("data", "asked"),
    [
        (PICKLE, "posix.system"),
        (CLOUDPICKLE, "cloudpickle.cloudpickle._make_function"),
        (JOBLIB, "joblib.numpy_pickle.NumpyArrayWrapper"),
    ],
)
def test_whoever_unpickled_them_would_be_asked_for_code(data, asked):
    class Asked(pickle.Unpickler):
        def find_class(self, module_name: str, global_name: str):
            raise LookupError(f"{module_name}.{global_name}")

    with pytest.raises(LookupError, match=asked):
        Asked(io.BytesIO(data)).load()


def test_the_models_are_models():
    onnx = pytest.importorskip("onnx", reason="needs the extra 'onnx'")
    external, custom = (onnx.load_model_from_string(data) for data in (EXTERNAL, CUSTOM))
    (tensor,) = external.graph.initializer
    assert tensor.data_location == onnx.TensorProto.EXTERNAL and tensor.external_data[0].value == "../../../etc/passwd"
    assert custom.graph.node[0].domain == custom.opset_import[1].domain == "evil.ops"


def test_the_good_one_is_loaded_both_ways(good: Path, tmp_path: Path, load: Load):
    packed = container.write_zip(tmp_path / "good.zip", files_of(good))
    assert load(good)["refusal"] is load(packed)["refusal"] is None


def test_what_takes_memory_is_seen(good: Path, tmp_path: Path, load: Load):
    large = write_files(tmp_path / "large", seal(files_of(good) | {"actor.onnx": bytes(MOST_KILOBYTES << 10)}))
    found = load(large)
    assert found["refusal"] is None and found["kilobytes"] > MOST_KILOBYTES
    # And not remembered: the next one begins anew.
    assert load(good)["kilobytes"] < MOST_KILOBYTES


def test_what_is_not_there_is_said(tmp_path: Path, refuse):
    refuse(tmp_path / "nothing", "cannot be read: No such file")


@pytest.mark.parametrize("name", ["../x", "/x", "", ".", "..", "a/b", "a\\b", "nul", "COM1.txt", "x" * 65, "é", "a\0"])
def test_names_are_checked_when_writing_too(tmp_path: Path, name):
    for write in (container.write_folder, container.write_zip):
        with pytest.raises(Refused, match="cannot hold a file"):
            write(tmp_path / "out", {name: b""})
