"""What a stranger hands in as an action: checked at Gymnasium's edge, so that nothing odd reaches the physics."""

from typing import Any

import numpy as np

from ashore.environments.base import TaskDescription

ROUNDING = 1e-6
"""How far an action may lie outside its range and still count as rounding; it is clipped then."""


def checked_actions(actions: Any, description: TaskDescription, batch: int | None = None) -> np.ndarray:
    """Actions as float32 inside their bounds, or a ValueError that says what is wrong with them.

    Args:
        actions: whatever the caller gave, for one world or with a leading axis of `batch`.
        description: names and bounds of the action's fields.
        batch: number of worlds, or None for a single one.
    """
    try:
        array = np.asarray(actions)
    except ValueError:
        array = np.empty((), object)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"An action must be an array of numbers, not {_shown(actions)}.")
    low, high = description.action_bounds
    shape = low.shape if batch is None else (batch, *low.shape)
    if array.shape != shape:
        raise ValueError(f"An action of {description.name} must have shape {shape}, not {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"An action must be finite, not {_shown(array[~np.isfinite(array)][0])}.")
    outside = (array < low - ROUNDING) | (array > high + ROUNDING)
    if outside.any():
        place = tuple(np.argwhere(outside)[0])
        field = description.action[place[-1]]
        raise ValueError(f"Action '{field.name}' is {array[place]:g}, outside [{field.low:g}, {field.high:g}].")
    return np.clip(array, low, high).astype(np.float32)


def _shown(value: Any) -> str:
    text = repr(value)
    longest = 60
    return text if len(text) <= longest else f"{text[:longest]}..."
