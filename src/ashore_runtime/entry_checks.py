"""One entry of parsed JSON at a time: it is what it has to be, or it is refused in one sentence."""

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from ashore_runtime.refusal import Refused


def table(value: Any, what: str) -> Mapping[str, Any]:
    """A JSON object; `what` begins the sentence of the refusal."""
    if not isinstance(value, dict):
        raise Refused(f"{what} is not a table.")
    return value


def exact(value: Any, what: str, names: tuple[str, ...]) -> Mapping[str, Any]:
    """A table with these names, all of them and no others."""
    entries = table(value, f"The entry '{what}'")
    if missing := [name for name in names if name not in entries]:
        raise Refused(f"The entry '{what}' lacks '{missing[0]}'.")
    if unknown := [name for name in entries if name not in names]:
        raise Refused(f"The entry '{what}' has {unknown[0][:64]!r}, which nothing here understands.")
    return entries


def number(value: Any, what: str, low: float = -float("inf"), high: float = float("inf")) -> float:
    """A finite number within the bounds; a truth value is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused(f"The entry '{what}' is not a number.")
    try:
        found = float(value)
    except OverflowError:
        found = float("inf")
    if not (isfinite(found) and low <= found <= high):
        raise Refused(f"The entry '{what}' is {found:g}, outside [{low:g}, {high:g}].")
    return found


def positive(value: Any, what: str) -> float:
    """A finite number above zero."""
    found = number(value, what, 0.0)
    if found == 0.0:
        raise Refused(f"The entry '{what}' must be positive.")
    return found


def index(end: int) -> Callable[[Any], int]:
    """A check for whole numbers from zero on, below `end`."""

    def read(value: Any) -> int:
        if not (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end):
            raise Refused(f"A whole number below {end} was expected.")
        return value

    return read


count = index(1 << 53)
"""A whole number from zero on, as far as float64 still tells every one from the next."""


def boolean(value: Any) -> bool:
    """True or false, and not 1 or 0."""
    if not isinstance(value, bool):
        raise Refused("true or false was expected.")
    return value


def text(value: Any) -> str:
    """A text, which may be empty."""
    if not isinstance(value, str):
        raise Refused("A text was expected.")
    return value
