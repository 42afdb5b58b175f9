"""What this machine is, in the words that belong beside every measured number."""

import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

import jax
import mujoco


@dataclass(frozen=True)
class Machine:
    """Hardware and versions that a measurement depends on."""

    python: str
    jax: str
    mujoco: str
    system: str
    processor: str
    threads: int
    """CPU threads that this process may use."""
    devices: tuple[str, ...]
    """JAX devices by kind."""

    def as_dict(self) -> dict[str, object]:
        """The fields by name, for JSON."""
        return asdict(self)


def this_machine() -> Machine:
    """Look at the machine we are on; starts JAX."""
    return Machine(
        python=platform.python_version(),
        jax=jax.__version__,
        mujoco=mujoco.__version__,
        system=f"{platform.system()} {platform.machine()}",
        processor=_processor(),
        threads=usable_threads(),
        devices=tuple(f"{device.platform}: {device.device_kind}" for device in jax.devices()),
    )


def usable_threads() -> int:
    """CPU threads that this process may use, which in a container can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
