"""Checkpoints that were killed, flipped, cut or met a full disk: the newest intact one is found, and nothing else."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import SafetensorError

from ashore.learning import checkpoint
from volumes import volume

# Saves one checkpoint after the other, each holding its own number, and says so, until it is killed.
SAVING = """
import sys
from pathlib import Path
import jax.numpy as jnp
from ashore.learning import checkpoint

for step in range(int(sys.argv[2]), 10**9):
    checkpoint.save(Path(sys.argv[1]), {"weights": jnp.full(20_000, step), "step": jnp.int32(step)}, step, {})
    print(step, flush=True)
"""
TEMPLATE = {"weights": jnp.zeros(20_000, jnp.int32), "step": jnp.int32(0)}


def state(step: int) -> dict[str, jnp.ndarray]:
    return {"weights": jnp.full(200, step, jnp.int32), "step": jnp.int32(step)}


def assert_whole(restored: checkpoint.Restored) -> None:
    assert (
        int(restored.state["step"]) == restored.step and (np.asarray(restored.state["weights"]) == restored.step).all()
    )


def test_kill_9_while_saving_leaves_the_newest_complete_one(tmp_path: Path):
    generator, step = np.random.default_rng(0), 0
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    for _ in range(volume(1, 25)):
        command = [sys.executable, "-c", SAVING, str(tmp_path), str(step + 1)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(float(generator.uniform(0.0, 0.1)))
            process.send_signal(signal.SIGKILL)
            said = [int(line) for line in process.stdout.read().splitlines() if line.strip()]
        restored = checkpoint.restore(tmp_path, TEMPLATE)
        assert_whole(restored)
        assert restored.step >= max(said, default=step + 1) and not restored.passed_over
        step = restored.step


@pytest.fixture
def two(tmp_path: Path) -> Path:
    for step in (1, 2):
        checkpoint.save(tmp_path, state(step), step, {})
    return tmp_path


def newest_files(folder: Path) -> list[Path]:
    return sorted((folder / "step_000000002").iterdir())


def test_every_flipped_bit_is_found(two: Path):
    generator = np.random.default_rng(0)
    for file in newest_files(two):
        whole = file.read_bytes()
        for _ in range(volume(60, 3_000)):
            bad = bytearray(whole)
            bad[int(generator.integers(len(whole)))] ^= 1 << int(generator.integers(8))
            file.write_bytes(bad)
            restored = checkpoint.restore(two, state(0))
            assert_whole(restored)
            assert restored.step == 1 and len(restored.passed_over) == 1
        file.write_bytes(whole)


def test_every_truncation_is_found(two: Path):
    generator = np.random.default_rng(0)
    for file in newest_files(two):
        whole = file.read_bytes()
        # The manifest ends with a line break, which may be missing.
        for length in (0, len(whole) - 2, *generator.integers(0, len(whole) - 1, volume(30, 1_000))):
            file.write_bytes(whole[:length])
            restored = checkpoint.restore(two, state(0))
            assert_whole(restored)
            assert restored.step == 1 and len(restored.passed_over) == 1
        file.write_bytes(whole)
    assert checkpoint.restore(two, state(0)).step == 2


def test_a_full_disk_keeps_what_was_there(two: Path):
    generator = np.random.default_rng(0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for _ in range(volume(5, 100)):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(generator.integers(0, 700)), hard))
        try:
            with pytest.raises((OSError, SafetensorError)):
                checkpoint.save(two, state(3), 3, {})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        restored = checkpoint.restore(two, state(0))
        assert restored.step == 2 and not restored.passed_over
    checkpoint.save(two, state(3), 3, {})
    assert checkpoint.restore(two, state(0)).step == 3
    assert [path.name for path in sorted(two.iterdir())] == ["step_000000002", "step_000000003"]


def test_a_checkpoint_that_loses_files_is_passed_over(two: Path):
    for file in newest_files(two):
        kept = file.read_bytes()
        file.unlink()
        assert checkpoint.restore(two, state(0)).step == 1
        file.write_bytes(kept)
    shutil.rmtree(two / "step_000000002")
    assert checkpoint.restore(two, state(0)).step == 1
