"""The process as a place to meet deadlines in: one thread of arithmetic, no garbage collection while it matters."""

import contextlib
import ctypes
import gc
import os
from collections.abc import Generator
from pathlib import Path

_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_SETTERS = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
    "MKL_Set_Num_Threads",
)
"""What a BLAS calls the function that sets its threads, depending on who built it."""


def one_blas_thread() -> bool:
    """Let matrix products run in the caller's thread alone; returns whether a BLAS library was found and told.

    Products here are too small to share out, and a pool of threads that wakes up is what makes one decision in a
    thousand late. NumPy has no call for this, so the loaded library is looked up and asked directly.
    """
    for variable in _THREAD_VARIABLES:
        os.environ.setdefault(variable, "1")  # For whatever this process starts.
    told = False
    for path in _loaded_libraries():
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(path)
            for name in _SETTERS:
                if hasattr(library, name):
                    getattr(library, name)(ctypes.c_int(1))
                    told = True
    return told


def _loaded_libraries() -> set[str]:
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return set()
    paths = {line.split(maxsplit=5)[-1] for line in maps.read_text().splitlines() if "/" in line}
    return {path for path in paths if "blas" in Path(path).name.lower() or "mkl_rt" in Path(path).name.lower()}


def keep_what_was_loaded() -> None:
    """Collect once, then never look at the surviving objects again: later collections have little to walk through."""
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def no_collection() -> Generator[None, None, None]:
    """No garbage collection inside; whatever it was before afterwards."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def ask_for_priority(priority: int = 50) -> list[str]:
    """Real-time scheduling and locked memory, where the system permits; returns what could not be had.

    Nothing calls this by default: a process with real-time priority that hangs takes a core with it.
    """
    refused = []
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except (OSError, AttributeError) as error:
        refused.append(f"SCHED_FIFO {priority} ({error})")
    lock_current_and_future = 3
    try:
        if ctypes.CDLL(None, use_errno=True).mlockall(lock_current_and_future):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    except (OSError, AttributeError, TypeError) as error:
        refused.append(f"mlockall ({error})")
    return refused
