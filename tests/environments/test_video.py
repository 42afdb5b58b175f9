import subprocess

import imageio_ffmpeg
import numpy as np
import pytest

from ashore.environments.video import write_video


def _grey(levels, height=48, width=64):
    for level in levels:
        yield np.full((height, width, 3), level, np.uint8)


def _read(path, height, width):
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    shown = subprocess.run(command, capture_output=True, check=True)
    return np.frombuffer(shown.stdout, np.uint8).reshape(-1, height, width, 3), shown.stderr.decode()


def test_what_was_written_can_be_read_back(tmp_path):
    path = write_video(tmp_path / "deep" / "video.mp4", _grey([0, 100, 200] * 4), 12.5)
    pictures, about = _read(path, 48, 64)
    # Compression may shift a level a little.
    np.testing.assert_allclose(pictures.mean(axis=(1, 2, 3)), [0, 100, 200] * 4, atol=3)
    assert "12.50 fps" in about
    assert "h264" in about


def test_odd_sizes_are_padded_to_even_ones(tmp_path):
    pictures, _ = _read(write_video(tmp_path / "odd.mp4", _grey([100, 100], height=47, width=63), 5), 48, 64)
    assert len(pictures) == 2
    np.testing.assert_allclose(pictures[0, :46, :62].mean(), 100, atol=3)


def test_no_picture_is_no_video(tmp_path):
    with pytest.raises(ValueError, match="at least one picture"):
        write_video(tmp_path / "none.mp4", [], 5)


@pytest.mark.parametrize("other", [np.zeros((48, 62, 3), np.uint8), np.zeros((48, 64, 3), np.float32)])
def test_pictures_that_do_not_match_are_refused(tmp_path, other):
    with pytest.raises(ValueError, match="must be"):
        write_video(tmp_path / "mixed.mp4", [np.zeros((48, 64, 3), np.uint8), other], 5)


def test_a_video_that_cannot_be_written_says_why(tmp_path):
    with pytest.raises(RuntimeError, match="could not write"):
        write_video(tmp_path / "video.unknown", _grey([0, 1]), 5)
