"""Settings as JSON and back: the resolved configuration of a run is written beside what it produced."""

import dataclasses
import json
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from ashore import names

Settings = TypeVar("Settings")


def to_json(settings: Any) -> dict[str, Any]:
    """A frozen dataclass as nested dictionaries and lists."""
    return dataclasses.asdict(settings)


def from_json(settings_type: type[Settings], content: Mapping[str, Any]) -> Settings:
    """The dataclass that `to_json` was given; a missing or unknown field is an error that names it."""
    hints = typing.get_type_hints(settings_type)
    known = list(hints)
    different = sorted(set(known) ^ set(content))
    if different:
        raise ValueError(f"Settings of {settings_type.__name__} do not fit this version: check {', '.join(different)}.")
    return settings_type(**{name: _value(hints[name], content[name]) for name in known})


def _value(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return from_json(hint, value)
    if isinstance(value, list):
        return tuple(value)
    return value


def override(settings: Settings, assignment: str) -> Settings:
    """The settings with one value replaced, given as `name.of.field=value`; the value is read as JSON or as a word."""
    path, equals, text = assignment.partition("=")
    if not equals:
        raise ValueError(f"An override has the form name=value, which '{assignment}' has not.")
    known = _dotted(settings)
    if path not in known:
        raise names.UnknownName(names.unknown("setting", path, known))
    return _replaced(settings, path.split("."), text)


def _replaced(settings: Any, path: list[str], text: str) -> Any:
    name, *rest = path
    old = getattr(settings, name)
    new = _replaced(old, rest, text) if rest else _read(name, text, old)
    return dataclasses.replace(settings, **{name: new})


def _read(name: str, text: str, old: Any) -> Any:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = text
    value = tuple(value) if isinstance(value, list) else value
    if isinstance(old, float) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if old is not None and type(value) is not type(old):
        raise ValueError(f"'{name}' is of type {type(old).__name__}, and '{text}' is not.")
    return value


def _dotted(settings: Any, prefix: str = "") -> list[str]:
    found: list[str] = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        nested = dataclasses.is_dataclass(value)
        found += _dotted(value, f"{prefix}{field.name}.") if nested else [prefix + field.name]
    return found
