"""Bundles made by somebody who means harm. Each entry changes a good bundle; hashes are made to fit again afterwards.

Whoever can write a bundle can also write its hashes, so that hashes alone stop nobody: entries here pass them.
"""

import hashlib
import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ashore_runtime import container, strict_json, tensors

Files = dict[str, bytes]


def seal(files: Files, change: Callable[[dict[str, Any]], object] = lambda _: None) -> Files:
    """The files with a manifest that fits them, after `change` has had its way with it."""
    table = json.loads(files["manifest.json"])
    table["files"] = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
        if name != "manifest.json"
    }
    change(table)
    table.pop("checksum", None)
    table["checksum"] = hashlib.sha256(strict_json.serialise(table)).hexdigest()
    return files | {"manifest.json": strict_json.serialise(table)}


def with_file(name: str, make: Callable[[bytes], bytes]) -> Callable[[Files], Files]:
    return lambda files: seal(files | {name: make(files.get(name, b""))})


def with_entry(*path: str, value: Any) -> Callable[[Files], Files]:
    """Another value at one place of the manifest."""

    def change(table: dict[str, Any]) -> None:
        for key in path[:-1]:
            table = table[key]
        table[path[-1]] = value

    return lambda files: seal(files, change)


def with_weight(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Files], Files]:
    def make(data: bytes) -> bytes:
        weights = tensors.parse(data, "weights")
        return tensors.serialise(weights | {name: change(weights[name])})

    return with_file("weights.safetensors", make)


def with_header(header: Any, data: bytes = b"") -> Callable[[Files], Files]:
    """A weights file with any header, well formed or not."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return with_file("weights.safetensors", lambda _: struct.pack("<Q", len(text)) + text + data)


def raw_manifest(text: bytes) -> Callable[[Files], Files]:
    return lambda files: files | {"manifest.json": text}


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


F32 = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
PICKLE = b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R."
# As cloudpickle writes a function: its code by value, made anew by a function of cloudpickle's.
CLOUDPICKLE = (
    b"\x80\x05\x8c\x17cloudpickle.cloudpickle\x8c\x0e_make_function\x93(\x8c\x17cloudpickle.cloudpickle"
    b"\x8c\x0d_builtin_type\x93\x8c\x08CodeType\x85R(K\x00K\x00K\x00K\x00K\x01KCC\x04d\x01S\x00tR}NNNtR."
)
# As joblib writes an array: a wrapper that says how to read the numbers behind it, which stand in the stream.
JOBLIB = (
    b"\x80\x04\x8c\x13joblib.numpy_pickle\x8c\x11NumpyArrayWrapper\x93)\x81}(\x8c\x05shapeK\x02\x85\x8c\x05dtype"
    b"\x8c\x05numpy\x8c\x05dtype\x93\x8c\x02f4\x85R\x8c\x0aallow_mmap\x88ub" + bytes(8) + b"."
)
HUGE = 1 << 62
LISTED = {"bytes": 1, "sha256": ""}
GAP = F32 | {"data_offsets": [8, 12]}


def object_array(_: bytes) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return buffer.getvalue()


def _field(number: int, content: bytes | str | int) -> bytes:
    """One field of a protobuf message: a short number, or a text or message of up to 127 bytes."""
    if isinstance(content, int):
        return bytes([number << 3, content])
    data = content.encode() if isinstance(content, str) else content
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def _onnx(node: bytes, initializer: bytes = b"", domain: bytes = b"") -> bytes:
    """A model of one node, in the numbers of onnx.proto: ir_version 1, graph 7, opset_import 8."""
    graph = _field(1, node) + _field(2, "g") + initializer + _field(12, _field(1, "y"))
    return _field(1, 9) + _field(7, graph) + _field(8, _field(2, 17)) + domain


# A tensor whose numbers are in another file (data_location 14, external_data 13), wherever that may be.
EXTERNAL = _onnx(
    _field(1, "w") + _field(2, "y") + _field(4, "Identity"),
    _field(
        5,
        _field(1, 1)
        + _field(2, 1)
        + _field(8, "w")
        + _field(13, _field(1, "location") + _field(2, "../../../etc/passwd"))
        + _field(14, 1),
    ),
)
# An operator of a domain that a library would have to be loaded for.
CUSTOM = _onnx(
    _field(2, "y") + _field(4, "Run") + _field(7, "evil.ops"),
    domain=_field(8, _field(1, "evil.ops") + _field(2, 1)),
)


def fewer_golden(data: bytes) -> bytes:
    return tensors.serialise({name: rows[:255] for name, rows in tensors.parse(data, "golden").items()})


def other_golden(data: bytes) -> bytes:
    vectors = tensors.parse(data, "golden")
    return tensors.serialise(vectors | {"output/cost_value": vectors["output/cost_value"] + np.float32(1e-3)})


FOREIGN: dict[str, bytes] = {
    "pickle": PICKLE,
    "cloudpickle": CLOUDPICKLE,
    "joblib": JOBLIB,
    "joblib, compressed": zlib.compress(JOBLIB),
    "object array": object_array(b""),
    "ONNX with external data": EXTERNAL,
    "ONNX with an operator of its own": CUSTOM,
}
"""What other programs run or follow when they read it."""


BY_CONTENT: dict[str, tuple[Callable[[Files], Files], str]] = {
    # What a manifest can say.
    "schema of tomorrow": (with_entry("schema", value=2), "schema 2"),
    "schema as text": (with_entry("schema", value="1"), "schema '1', and"),
    "another kind": (with_entry("kind", value="malware"), "not a bundle"),
    "manifest is a list": (raw_manifest(b"[]\n"), "not a bundle"),
    "manifest is empty": (raw_manifest(b""), "not JSON"),
    "manifest is not text": (raw_manifest(b"\xff\xfe{}"), "not JSON"),
    "manifest is a million deep": (raw_manifest(nested(1_000_000)), "at most 1048576"),
    # As deep as fits into what is read.
    "manifest is half a million deep": (raw_manifest(nested(500_000)), "nested deeper than 16"),
    "manifest is seventeen deep": (raw_manifest(b'{"a":' + nested(17) + b"}"), "nested deeper than 16"),
    "manifest is two megabytes": (raw_manifest(b" " * (2 << 20)), "at most 1048576"),
    "manifest names a key twice": (raw_manifest(b'{"kind": "ashore-bundle", "kind": "x"}'), "a key twice"),
    "manifest holds NaN": (raw_manifest(b'{"kind": NaN}'), "NaN where a number belongs"),
    "manifest holds infinity": (raw_manifest(b'{"kind": -Infinity}'), "Infinity where a number belongs"),
    "manifest holds 1e400": (raw_manifest(b'{"kind": 1e400}'), "1e400 where a number belongs"),
    "manifest in another layout": (
        lambda files: files | {"manifest.json": json.dumps(json.loads(files["manifest.json"])).encode()},
        "was changed",
    ),
    "unknown entry": (with_entry("run_this", value="rm -rf /"), "'run_this', which nothing here understands"),
    "unknown network entry": (with_entry("network", "loader", value="os.system"), "'loader'"),
    "no such activation": (with_entry("network", "activation", value="__import__('os')"), "activation"),
    "a network of 2^62": (with_entry("network", "critic_width", value=HUGE), "critic_width"),
    "a network of True": (with_entry("network", "critic_width", value=True), "critic_width"),
    "a method that is no text": (with_entry("method", value=["nominal"]), "A text was expected"),
    "negative period": (with_entry("task", "control_period", value=-0.05), "control_period"),
    "infinite period": (with_entry("task", "control_period", value=10**400), "control_period"),
    "no observation": (with_entry("observation", value=[]), "observation"),
    "a feature outside": (with_entry("dynamics_features", value=[4]), "below 4"),
    "budget of zero": (with_entry("budget", "discounted", value=0.0), "budget discounted"),
    "caution it cannot have": (with_entry("caution", value="actor"), "does not know eta"),
    "a file of bytes true": (with_entry("files", "CARD.md", "bytes", value=True), "size and hash"),
    "a file that is not there": (
        with_entry("files", "actor.onnx", value=LISTED),
        "lacks actor.onnx",
    ),
    "path traversal": (with_entry("files", "../../etc/passwd", value=LISTED), "cannot hold a file"),
    "absolute path": (with_entry("files", "/etc/passwd", value=LISTED), "cannot hold a file"),
    "path of Windows": (with_entry("files", "C:\\x", value=LISTED), "cannot hold a file"),
    "NUL in a path": (with_entry("files", "a\0b", value=LISTED), "cannot hold a file"),
    "a device of Windows": (with_entry("files", "CON.md", value=LISTED), "cannot hold a file"),
    # What calibration can say.
    "calibration rises": (
        with_file("calibration.json", lambda data: data.replace(b"0.9,\n    0.9", b"0.1,\n    0.9")),
        "never rise",
    ),
    "calibration of tomorrow": (
        with_file("calibration.json", lambda data: data.replace(b'"schema": 1', b'"schema": 2')),
        "schema 1",
    ),
    "calibration is deep": (with_file("calibration.json", lambda _: nested(100_000)), "nested deeper"),
    # What weights can hold.
    "weights are empty": (with_file("weights.safetensors", lambda _: b""), "ends before its header"),
    "header of 2^40 bytes": (
        with_file("weights.safetensors", lambda data: struct.pack("<Q", 1 << 40) + data[8:]),
        "header of 1099511627776 bytes",
    ),
    "header of two megabytes": (with_header(b" " * (2 << 20)), "header of 2097152 bytes"),
    "header is a list": (with_header([]), "not a table"),
    "header is deep": (with_header(nested(100_000)), "nested deeper"),
    "five thousand tensors": (
        with_header({f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(5000)}),
        "5000 tensors",
    ),
    "a million tensors": (
        with_header(b"{" + b",".join(b'"%d":{}' % i for i in range(1_000_000)) + b"}"),
        "header of .* bytes",
    ),
    "header names a tensor twice": (
        with_header(b'{"a":' + json.dumps(F32).encode() + b',"a":' + json.dumps(F32).encode() + b"}", bytes(4)),
        "a key twice",
    ),
    "shape overflows": (
        with_header({"a": {"dtype": "F32", "shape": [HUGE, 4], "data_offsets": [0, 0]}}),
        "does not fit its bytes",
    ),
    "negative shape": (with_header({"a": F32 | {"shape": [-1]}}, bytes(4)), "not understood"),
    "tensors overlap": (with_header({"a": F32, "b": F32}, bytes(4)), "overlap or leave gaps"),
    "tensors leave a gap": (
        with_header({"a": F32, "b": GAP}, bytes(12)),
        "overlap or leave gaps",
    ),
    "more data than tensors": (with_header({"a": F32}, bytes(8)), "where its header says"),
    "doubles": (with_header({"a": F32 | {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}, bytes(8)), "as 'F64'"),
    "metadata": (with_header({"__metadata__": {"x": "y"}, "a": F32}, bytes(4)), "not understood"),
    "other tensors": (with_header({"a": F32}, bytes(4)), "lack 'normaliser/observation/mean'"),
    "NaN weights": (with_weight("actor/output/kernel", lambda w: w * np.nan), "not finite"),
    "infinite weights": (with_weight("critic_cost/heads/output/bias", lambda w: w + np.inf), "not finite"),
    "weights of another shape": (with_weight("actor/output/kernel", lambda w: w[:-1]), "has the shape"),
    "other weights": (
        with_weight("actor/output/kernel", lambda w: w * np.float32(1.01)),
        "do not reproduce their golden",
    ),
    # What golden vectors can hold.
    "too few golden vectors": (with_file("golden.safetensors", fewer_golden), "between 256 and 4096"),
    "other golden vectors": (with_file("golden.safetensors", other_golden), "cost value is"),
}
REPLAYED = ("other weights", "other golden vectors")
"""Found out only when the networks have been asked, which takes as long as it does for a good bundle."""


def _foreign(place: str, reason: str) -> dict[str, tuple[Callable[[Files], Files], str]]:
    """Each of `FOREIGN` in the place of one file."""
    return {
        f"{what} as {place}": (with_file(place, lambda _, data=data: data), reason) for what, data in FOREIGN.items()
    }


BY_CONTENT |= (
    _foreign("weights.safetensors", "header")
    | _foreign("golden.safetensors", "header")
    | _foreign("calibration.json", "not JSON")
    | _foreign("model.pkl", "'model.pkl', which does not belong into a bundle")
    | _foreign("model.onnx", "'model.onnx', which does not belong into a bundle")
)
CARRIED = ("actor.onnx", "refine_step.onnx", "CARD.md")
"""Files whose content nothing here asks for: any bytes may be there, and nobody makes anything of them."""


def _link(folder: Path) -> None:
    target = folder.parent / "elsewhere"
    os.replace(folder / "weights.safetensors", target)
    (folder / "weights.safetensors").symlink_to(target)


def _pipe(folder: Path) -> None:
    (folder / "weights.safetensors").unlink()
    os.mkfifo(folder / "weights.safetensors")


def _many(folder: Path) -> None:
    for i in range(20):
        (folder / f"more{i}.txt").write_text("")


IN_FOLDERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "symbolic link": (_link, "symbolic link"),
    "link to itself": (lambda folder: (folder / "loop").symlink_to("loop"), "symbolic link"),
    "hard link": (lambda folder: os.link(folder / "CARD.md", folder.parent / "twin"), "hard link"),
    "pipe": (_pipe, "not a regular file"),
    "folder inside": (lambda folder: (folder / "more").mkdir(), "not a regular file"),
    **{
        f"{what} beside": (lambda folder, data=data: (folder / "model.bin").write_bytes(data), "does not list")
        for what, data in FOREIGN.items()
    },
    "hidden file": (lambda folder: (folder / ".hidden").write_text(""), "cannot hold a file"),
    "twenty files more": (_many, "more than 16 files"),
    "names that differ in case": (lambda folder: (folder / "card.md").write_text(""), "differ only in case"),
    "no manifest": (lambda folder: (folder / "manifest.json").unlink(), "has no manifest.json"),
    "no weights": (lambda folder: (folder / "weights.safetensors").unlink(), "lacks weights.safetensors"),
    "one byte more": (lambda folder: (folder / "CARD.md").write_bytes(b"# A toy\n!"), "9 bytes instead of 8"),
}


def _zipped(files: Files, names: Callable[[str], str] = str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", **options) as archive:
        for name, data in sorted(files.items()):
            archive.writestr(names(name), data)
    return buffer.getvalue()


def _canonical(files: Files, folder: Path) -> bytes:
    return container.write_zip(folder / "good.zip", files).read_bytes()


def _linked(files: Files, _: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in sorted(files.items()):
            info = zipfile.ZipInfo(name)
            info.external_attr = 0o120777 << 16
            archive.writestr(info, data)
    return buffer.getvalue()


def _bomb(files: Files, _: Path) -> bytes:
    return _zipped(files | {"weights.safetensors": bytes(100 << 20)}, compression=zipfile.ZIP_DEFLATED)


def _twice(files: Files, folder: Path) -> bytes:
    good = _canonical({"a.txt": b"1", "b.txt": b"2"}, folder)
    return good.replace(b"b.txt", b"a.txt")


def _encrypted(files: Files, folder: Path) -> bytes:
    return _canonical(files, folder).replace(b"PK\x03\x04\x14\0\0\0", b"PK\x03\x04\x14\0\1\0")


def _two_names(files: Files, folder: Path) -> bytes:
    head, _, tail = _canonical(files, folder).rpartition(b"CARD.md")
    return head + b"card.md" + tail


IN_ZIPS: dict[str, tuple[Callable[[Files, Path], bytes], str]] = {
    "compressed": (lambda files, _: _zipped(files, compression=zipfile.ZIP_DEFLATED), "stored form"),
    "bomb": (_bomb, "stored form"),
    "path traversal": (lambda files, _: _zipped(files, lambda name: "../../" + name), "cannot hold a file"),
    "absolute path": (lambda files, _: _zipped(files, lambda name: "/tmp/" + name), "cannot hold a file"),
    "symbolic links": (_linked, "stored form"),
    "a name twice": (_twice, "two files called"),
    "something before": (lambda files, folder: b"#!/bin/sh\n" + _canonical(files, folder), "stored form"),
    "something behind": (lambda files, folder: _canonical(files, folder) + b"\0", "stored form"),
    "encrypted": (_encrypted, "stored form"),
    "names that differ between headers": (_two_names, "stored form"),
    "no files": (lambda *_: b"PK\x05\x06" + bytes(18), "stored form"),
    "not a zip": (lambda *_: PICKLE, "stored form"),
    "empty": (lambda *_: b"", "stored form"),
    "a size beyond the end": (
        lambda files, folder: (lambda good: good[:22] + b"\xff\xff\xff\x7f" + good[26:])(_canonical(files, folder)),
        "stored form",
    ),
    "twenty files": (lambda _, folder: _canonical({f"f{i:02}": b"" for i in range(20)}, folder), "more than 16 files"),
}
