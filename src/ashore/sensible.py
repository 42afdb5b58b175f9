"""Numbers that mean nothing are refused where a setting is made, in one sentence that names it."""

from collections.abc import Iterable
from typing import Any


def at_least(config: Any, least: float, *names: str) -> None:
    """Refuse settings below `least`; None is a setting that was left out."""
    _refuse(config, names, lambda value: value >= least, f"at least {least:g}")


def positive(config: Any, *names: str) -> None:
    """Refuse settings that are not above 0."""
    _refuse(config, names, lambda value: value > 0.0, "above 0")


def share(config: Any, *names: str) -> None:
    """Refuse settings that are not above 0 and at most 1."""
    _refuse(config, names, lambda value: 0.0 < value <= 1.0, "above 0 and at most 1")


def discount(config: Any, *names: str) -> None:
    """Refuse settings that are not between 0 and 1, both left out."""
    _refuse(config, names, lambda value: 0.0 < value < 1.0, "between 0 and 1")


def _refuse(config: Any, names: Iterable[str], fits: Any, what: str) -> None:
    for name in names:
        value = getattr(config, name)
        if value is not None and not fits(value):
            raise ValueError(f"{name} must be {what}, not {value!r}.")
