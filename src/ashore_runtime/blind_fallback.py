"""Fallbacks that look at nothing but the last action, and an answer that can be sent even if they fail."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ashore_runtime import fallback as fallbacks
from ashore_runtime.refinement import Box
from ashore_runtime.refusal import Refused
from ashore_runtime.schema import Manifest

WITHOUT_OBSERVATION = ("hold", "zero", "ramp_to_zero", "brake")
Wish = str | Mapping[str, Any] | Callable[[np.ndarray], np.ndarray]
"""One of these by name, a table, or the user's own `(last_action) -> action`."""


class BlindFallback:
    """Called with the last action, it gives the next one and what failed, which is empty if nothing did."""

    def __init__(self, wish: Wish, manifest: Manifest, box: Box) -> None:
        self._choose = fallbacks.build(_seeing(wish), manifest, box)
        self._unseen = np.zeros(len(manifest.observation), np.float32)
        self._box = box
        self.still = box.project(np.zeros_like(box.low))
        """The action nearest to zero, which is what goes out when the fallback itself fails."""

    def __call__(self, last_action: np.ndarray) -> tuple[np.ndarray, str]:
        try:
            action = np.asarray(self._choose(self._unseen, last_action.copy())).astype(np.float32)
            if action.shape != self.still.shape or not np.isfinite(action).all():
                raise ValueError(f"The fallback gave {action}.")
            return self._box.project(action), ""
        except Exception as error:
            return self.still, f"{type(error).__name__}: {error}"


def _seeing(wish: Wish) -> Any:
    """The same for those who ask for an observation."""
    if callable(wish):
        return lambda _, last_action: wish(last_action)
    kind = wish.get("kind") if isinstance(wish, Mapping) else wish
    if kind not in WITHOUT_OBSERVATION:
        raise Refused(f"A supervisor sees no observation: its fallbacks are {', '.join(WITHOUT_OBSERVATION)}.")
    return wish
