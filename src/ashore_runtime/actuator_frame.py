"""One action on its way to the actuator: what is written is read back, and any other bytes are refused.

    frame   "ASHA", CRC-32 of the rest (u32), sequence number (u64), time of sending in ns (i64), action (f32 each)

Nothing that is read is ever run.
"""

import struct
import zlib
from enum import Enum
from typing import NamedTuple

import numpy as np

from ashore_runtime.refinement import Box

_MAGIC = b"ASHA"
_HEAD = struct.Struct("<4sI")
_STAMP = struct.Struct("<Qq")


class Frame(NamedTuple):
    """One action on its way to the actuator."""

    sequence: int
    sent: int
    """Monotonic time in ns."""
    action: np.ndarray


class Refusal(Enum):
    """Why a frame was not forwarded."""

    MALFORMED = "malformed"
    NOT_FINITE = "not_finite"
    OUTSIDE = "outside"
    """Outside the action box."""
    OLD = "old"
    """Not newer than the last one, sent too long ago, or from the future."""
    LATCHED = "latched"
    """Fresh, while the fallback waits for `reset`."""


def pack(frame: Frame) -> bytes:
    """A frame as bytes; a number that float32 does not have becomes infinite, and is refused over there."""
    with np.errstate(all="ignore"):
        values = np.asarray(frame.action).astype("<f4").tobytes()
    content = _STAMP.pack(frame.sequence, frame.sent) + values
    return _HEAD.pack(_MAGIC, zlib.crc32(content)) + content


def unpack(data: bytes, box: Box) -> Frame | Refusal:
    """The frame that any bytes are, if its action may be sent."""
    if len(data) != size(box):
        return Refusal.MALFORMED
    magic, crc = _HEAD.unpack_from(data)
    if magic != _MAGIC or zlib.crc32(data[_HEAD.size :]) != crc:
        return Refusal.MALFORMED
    sequence, sent = _STAMP.unpack_from(data, _HEAD.size)
    action = np.frombuffer(data, "<f4", offset=_HEAD.size + _STAMP.size).astype(np.float32)
    if not np.isfinite(action).all():
        return Refusal.NOT_FINITE
    if not ((action >= box.low) & (action <= box.high)).all():
        return Refusal.OUTSIDE
    return Frame(sequence, sent, action)


def size(box: Box) -> int:
    """Bytes of a frame whose action fits the box."""
    return _HEAD.size + _STAMP.size + 4 * len(box.low)
