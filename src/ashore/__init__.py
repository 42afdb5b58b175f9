"""Ashore: train a cost-aware policy in simulation, calibrate its caution offline, deploy it careful-first.

Importing the package is cheap: it starts neither JAX nor MuJoCo. It makes old JAX safe to start, and tells Gymnasium
the names of the worlds.
"""

from ashore.budget import Budget
from ashore.environments.gymnasium_registration import register_worlds
from ashore.names import UnknownName
from ashore.xla_flags import apply_safe_flags
from ashore_runtime import __version__

__all__ = ["Budget", "UnknownName", "__version__"]

apply_safe_flags()
register_worlds()
