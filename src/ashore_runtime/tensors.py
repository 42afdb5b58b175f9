"""Tensors from a stranger: a safetensors file whose header is checked before anything is made of it."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ashore_runtime import strict_json
from ashore_runtime.refusal import Refused

MAX_TENSORS = 4096
MAX_RANK = 8
_LENGTH = 8
_WIDTH = 4
"""Bytes of a float32, the only kind of number a bundle holds."""


def parse(data: bytes, what: str) -> dict[str, np.ndarray]:
    """All tensors of a safetensors file: float32, finite, and exactly as many bytes as their shapes need."""
    _check_header(data, what)
    try:
        tensors = load(data)
    except SafetensorError as error:
        raise Refused(f"{what} is not a safetensors file.") from error
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise Refused(f"{what} holds a number in '{name}' that is not finite.")
    return tensors


def serialise(tensors: Mapping[str, np.ndarray]) -> bytes:
    """A safetensors file; the same tensors give the same bytes, whatever order they come in."""
    ordered = {name: np.array(tensors[name], np.float32, order="C") for name in sorted(tensors)}
    return save(ordered)


def _check_header(data: bytes, what: str) -> None:
    if len(data) < _LENGTH:
        raise Refused(f"{what} ends before its header.")
    length = int.from_bytes(data[:_LENGTH], "little")
    if length > strict_json.MAX_BYTES:
        raise Refused(f"{what} announces a header of {length} bytes, and at most {strict_json.MAX_BYTES} are read.")
    if _LENGTH + length > len(data):
        raise Refused(f"{what} ends within its header.")
    header = strict_json.parse(data[_LENGTH : _LENGTH + length], f"The header of {what}")
    if not isinstance(header, dict):
        raise Refused(f"The header of {what} is not a table.")
    if len(header) > MAX_TENSORS:
        raise Refused(f"{what} announces {len(header)} tensors, and at most {MAX_TENSORS} are read.")
    spans = sorted(_span(name, entry, what) for name, entry in header.items())
    end = 0
    for begin, stop in spans:
        if begin != end:
            raise Refused(f"The tensors of {what} overlap or leave gaps.")
        end = stop
    if _LENGTH + length + end != len(data):
        raise Refused(f"{what} is {len(data)} bytes long where its header says {_LENGTH + length + end}.")


def _span(name: str, entry: Any, what: str) -> tuple[int, int]:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise Refused(f"{what} describes {name[:64]!r} in a way that is not understood.")
    if entry["dtype"] != "F32":
        raise Refused(f"{what} holds {name[:64]!r} as {str(entry['dtype'])[:16]!r}, and only F32 is read.")
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not (_counts(shape) and len(shape) <= MAX_RANK and _counts(offsets) and len(offsets) == len(("begin", "end"))):
        raise Refused(f"{what} describes {name[:64]!r} in a way that is not understood.")
    begin, end = offsets
    # Python's integers do not overflow, so a shape cannot wrap around to a small size.
    if end - begin != _WIDTH * prod(shape):
        raise Refused(f"{what} gives {name[:64]!r} a shape that does not fit its bytes.")
    return begin, end


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in value
    )
