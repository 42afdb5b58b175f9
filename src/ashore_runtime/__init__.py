"""What travels to the robot: acting on a trained bundle with NumPy and safetensors only, nothing from `ashore`."""

from ashore_runtime.guard import GuardSettings
from ashore_runtime.limits import Limits
from ashore_runtime.loop import Loop
from ashore_runtime.modes import Mode, ModeSettings
from ashore_runtime.reasons import Reason
from ashore_runtime.refusal import Refused
from ashore_runtime.results import ActResult, Evidence
from ashore_runtime.runtime import Runtime
from ashore_runtime.signature import TrustedKey
from ashore_runtime.supervisor import ActuatorLink, Supervisor
from ashore_runtime.watchdog import Patience

__version__ = "0.1.0"

__all__ = [
    "ActResult",
    "ActuatorLink",
    "Evidence",
    "GuardSettings",
    "Limits",
    "Loop",
    "Mode",
    "ModeSettings",
    "Patience",
    "Reason",
    "Refused",
    "Runtime",
    "Supervisor",
    "TrustedKey",
]
