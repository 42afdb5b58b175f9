"""Pictures in, an mp4 out, with the ffmpeg that comes in a wheel: nothing to install on the machine."""

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import imageio_ffmpeg
import numpy as np


def write_video(path: Path, pictures: Iterable[np.ndarray], pictures_per_second: float) -> Path:
    """Write pictures (height x width x 3, uint8, all of one size) as an H.264 video that any browser plays.

    Args:
        path: file to write; its folder is made if need be.
        pictures: at least one; they are taken one at a time, so a generator keeps memory small.
        pictures_per_second: speed at which the video plays.
    """
    incoming = iter(pictures)
    first = next(incoming, None)
    if first is None:
        raise ValueError(f"A video needs at least one picture, and {path} was given none.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile() as complaints:
        # Started directly rather than through imageio's writer, which forks in a way that JAX's threads do not survive.
        encoder = subprocess.Popen(
            _encode(path, first.shape, pictures_per_second), stdin=subprocess.PIPE, stderr=complaints
        )
        assert encoder.stdin is not None
        with encoder, encoder.stdin as pipe:
            pipe.write(_bytes(first, first.shape, path))
            for picture in incoming:
                pipe.write(_bytes(picture, first.shape, path))
        if encoder.returncode != 0:
            complaints.seek(0)
            raise RuntimeError(f"ffmpeg could not write {path}: {complaints.read().decode(errors='replace').strip()}")
    return path


def _encode(path: Path, shape: tuple[int, ...], pictures_per_second: float) -> list[str]:
    height, width, _ = shape
    incoming = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{pictures_per_second:g}"]
    # H.264 stores colour at half the resolution, so both sides must be even: an odd one is padded by a pixel.
    even = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2"]
    outgoing = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(path)]
    return [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", *incoming, "-i", "-", *even, *outgoing]


def _bytes(picture: np.ndarray, shape: tuple[int, ...], path: Path) -> bytes:
    if picture.shape != shape or picture.dtype != np.uint8:
        raise ValueError(f"All pictures of {path} must be {shape} of uint8; one is {picture.shape} of {picture.dtype}.")
    return picture.tobytes()
