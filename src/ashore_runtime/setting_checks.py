"""Numbers in settings, checked when the settings are made: later an action would depend on them."""

from numbers import Real
from typing import Any

import numpy as np

from ashore_runtime.refusal import Refused


def is_number(value: Any) -> bool:
    """Whether it can be compared with a number; a truth value is a slip of the pen, not a number."""
    return isinstance(value, Real) and not isinstance(value, bool)


def positive(name: str, value: Any) -> None:
    """Refuse what is not a number above zero; infinity is one, NaN is not."""
    if not (is_number(value) and value > 0):
        raise Refused(f"{name} must be a number above 0, not {value!r:.32}.")


def count(name: str, value: Any) -> None:
    """Refuse what is not a whole number from zero on."""
    if not (is_number(value) and isinstance(value, int | np.integer) and value >= 0):
        raise Refused(f"{name} must be a whole number, 0 or more, not {value!r:.32}.")
