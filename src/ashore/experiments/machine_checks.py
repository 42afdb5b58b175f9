"""Whether this machine has what Ashore needs: one line per thing, each with a fix where it lacks."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import imageio_ffmpeg
import jax
import numpy as np

from ashore.compilation_cache import cache_folder
from ashore.environments import randomisation, tasks
from ashore.experiments.machine import usable_threads
from ashore.xla_flags import SCHEDULER_FLAG, safe_flags

Status = Literal["ok", "warn", "fail"]

PYTHON_RANGE = ((3, 11), (3, 14))
DISK_WANTED = 5.0
"""Free GiB that runs and compiled programs fit into comfortably."""
DISK_NEEDED = 1.0
RENDER_SECONDS = 60.0
"""Time limit for a renderer that may hang on a driver."""

_RENDER_ONE_PICTURE = """
import mujoco
model = mujoco.MjModel.from_xml_string('<mujoco><worldbody><geom size="1"/></worldbody></mujoco>')
with mujoco.Renderer(model, 16, 16) as renderer:
    renderer.update_scene(mujoco.MjData(model))
    renderer.render()
    print("drawn", flush=True)
"""


class Check(NamedTuple):
    """One thing that was looked at."""

    name: str
    status: Status
    found: str
    fix: str = ""
    """What to do about it; empty when all is well."""


def check_machine() -> Iterator[Check]:
    """Look at everything, one line at a time; a look that itself breaks is a failed check, not a crash."""
    for name, look in _LOOKS.items():
        try:
            yield look(name)
        except Exception as error:  # whatever is broken on this machine is what we came to find out
            yield Check(name, "fail", f"{type(error).__name__}: {error}", "Install into a new environment.")


def _python(name: str) -> Check:
    first, beyond = PYTHON_RANGE
    found = ".".join(str(part) for part in sys.version_info[:3])
    if first <= sys.version_info[:2] < beyond:
        return Check(name, "ok", found)
    return Check(name, "fail", found, "Use Python 3.11, 3.12 or 3.13.")


def _jax(name: str) -> Check:
    jaxlib = importlib.metadata.version("jaxlib")
    found = f"{jax.__version__} with jaxlib {jaxlib}"
    if jax.__version__ != jaxlib:
        return Check(name, "fail", found, f"pip install 'jaxlib=={jax.__version__}'")
    if safe_flags("", jax.__version__) and SCHEDULER_FLAG not in os.environ.get("XLA_FLAGS", ""):
        return Check(name, "fail", f"{found}, with a scheduler that can hang", "Import ashore before JAX.")
    return Check(name, "ok", found)


def _devices(name: str) -> Check:
    devices = jax.devices()
    found = ", ".join(sorted({f"{device.platform} ({device.device_kind})" for device in devices}))
    if all(device.platform == "cpu" for device in devices) and Path("/dev/nvidia0").exists():
        return Check(name, "warn", f"{found}, although there is an NVIDIA GPU", "pip install 'ashore[cuda]'")
    return Check(name, "ok", found)


def _engines(name: str) -> Check:
    engine, batched = (importlib.metadata.version(package) for package in ("mujoco", "mujoco-mjx"))
    found = f"MuJoCo {engine}, MJX {batched}"
    if engine == batched:
        return Check(name, "ok", found)
    return Check(name, "fail", found, f"pip install 'mujoco-mjx=={engine}'")


def _pictures(name: str) -> Check:
    sizes = []
    for task, family in tasks.TASKS.items():
        settings = family.presets[family.default_preset]
        rows = family.describe(settings).shifts["nominal"]
        world = family.make_c_world(settings, randomisation.from_names(rows, family.parameters_type, {}))
        world.reset(np.random.default_rng(0))
        height, width, _ = world.picture().shape
        sizes.append(f"{task} {width} x {height}")
    return Check(name, "ok", f"painted without GL: {', '.join(sizes)}")


def _renderers(name: str) -> Check:
    working = [backend for backend in ("egl", "osmesa") if _draws(backend)]
    if working:
        return Check(name, "ok", f"MUJOCO_GL={' or MUJOCO_GL='.join(working)}")
    fix = "Only for MuJoCo's own 3D pictures: apt-get install libegl1 libopengl0 (or libosmesa6, without a GPU driver)."
    return Check(name, "warn", "neither EGL nor OSMesa can be used", fix)


def _draws(backend: str) -> bool:
    try:
        shown = subprocess.run(
            [sys.executable, "-c", _RENDER_ONE_PICTURE],
            env={**os.environ, "MUJOCO_GL": backend},
            capture_output=True,
            text=True,
            timeout=RENDER_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return "drawn" in shown.stdout


def _video(name: str) -> Check:
    program = imageio_ffmpeg.get_ffmpeg_exe()
    subprocess.run([program, "-version"], capture_output=True, check=True)
    return Check(name, "ok", f"ffmpeg {imageio_ffmpeg.get_ffmpeg_version()}")


def _disk(name: str) -> Check:
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    found = f"{free:.1f} GiB free here"
    if free >= DISK_WANTED:
        return Check(name, "ok", found)
    return Check(name, "warn" if free >= DISK_NEEDED else "fail", found, f"Make room: {DISK_WANTED:g} GiB is ample.")


def _threads(name: str) -> Check:
    count = usable_threads()
    if count > 1:
        return Check(name, "ok", f"{count} CPU threads")
    return Check(name, "warn", "1 CPU thread", "Training on a CPU wants at least two.")


def _cache(name: str) -> Check:
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        fix = "Set ASHORE_CACHE to a folder that can be written to."
        return Check(name, "warn", f"{folder} cannot be written to ({error.strerror})", fix)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20
    return Check(name, "ok", f"{folder}, {size:.0f} MiB")


_LOOKS: dict[str, Callable[[str], Check]] = {
    "Python": _python,
    "JAX": _jax,
    "JAX devices": _devices,
    "engines": _engines,
    "pictures": _pictures,
    "3D renderer": _renderers,
    "video": _video,
    "disk": _disk,
    "threads": _threads,
    "compiled programs": _cache,
}
