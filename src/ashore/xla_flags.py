"""A compiler setting that keeps old JAX from hanging, set before JAX starts.

Below release 0.11, JAX's CPU scheduler deadlocks on two cores when it runs a batch of MJX worlds with contacts.
Switching that scheduler off cures it; newer releases do not need it.
"""

import importlib.metadata
import os
import sys
import warnings

SCHEDULER_FLAG = "--xla_cpu_enable_concurrency_optimized_scheduler"
FIRST_SAFE_JAX = (0, 11)


def safe_flags(flags: str, jax_version: str) -> str:
    """The user's XLA flags, with the risky scheduler off for a JAX that needs it; the user's own setting wins."""
    major, minor = (int(part) for part in jax_version.split(".")[:2])
    if (major, minor) >= FIRST_SAFE_JAX or SCHEDULER_FLAG in flags:
        return flags
    return f"{flags} {SCHEDULER_FLAG}=false".strip()


def apply_safe_flags() -> None:
    """Put the safe flags into the environment, for the JAX that is installed."""
    flags = os.environ.get("XLA_FLAGS", "")
    safe = safe_flags(flags, importlib.metadata.version("jax"))
    if safe == flags:
        return
    os.environ["XLA_FLAGS"] = safe
    if _jax_is_running():
        warnings.warn(
            "JAX was already running when ashore was imported and may hang on the CPU: import ashore first.",
            RuntimeWarning,
            stacklevel=3,
        )


def _jax_is_running() -> bool:
    # XLA reads its flags when the first device is opened, not when JAX is imported. Asking JAX itself would open it.
    bridge = sys.modules.get("jax._src.xla_bridge")
    running = getattr(bridge, "backends_are_initialized", None)
    return running is not None and running()
