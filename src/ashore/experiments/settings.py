"""Settings as JSON and back: the resolved configuration of a run is written beside what it produced."""

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from ashore import names

Settings = TypeVar("Settings")


def to_json(settings: Any) -> dict[str, Any]:
    """A frozen dataclass as nested dictionaries and lists."""
    return dataclasses.asdict(settings)


def from_json(settings_type: type[Settings], content: Mapping[str, Any]) -> Settings:
    """The dataclass that `to_json` was given; an unknown field, or one missing without a default, is an error.

    A recorded run must stay readable when a setting is added: it has none, and gets the default. So the default of a
    new setting has to be what was done before there was one.
    """
    hints = typing.get_type_hints(settings_type)
    needed = {field.name for field in dataclasses.fields(settings_type) if _has_no_default(field)}  # type: ignore[arg-type]
    different = sorted((needed - set(content)) | (set(content) - set(hints)))
    if different:
        raise ValueError(f"Settings of {settings_type.__name__} do not fit this version: check {', '.join(different)}.")
    return settings_type(**{name: _value(hints[name], value) for name, value in content.items()})


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _value(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return from_json(hint, value)
    if isinstance(value, list):
        return tuple(value)
    return value


def override(settings: Settings, assignment: str) -> Settings:
    """The settings with one value replaced, given as `name.of.field=value`; the value is read as JSON or as a word.

    `null` takes a value back that may be left out.
    """
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
    new = _replaced(old, rest, text) if rest else _read(name, text, old, typing.get_type_hints(type(settings))[name])
    return dataclasses.replace(settings, **{name: new})


def _read(name: str, text: str, old: Any, hint: Any) -> Any:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = text
    alternatives = typing.get_args(hint)
    if value is None and types.NoneType in alternatives:
        return None
    value = tuple(value) if isinstance(value, list) else value
    decimal = isinstance(old, float) or (old is None and float in alternatives)
    if decimal and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    declared = [typing.get_origin(kind) or kind for kind in alternatives if kind is not types.NoneType]
    allowed = declared if old is None else [type(old)]
    if type(value) not in allowed:
        kinds = " or ".join(kind.__name__ for kind in allowed)
        raise ValueError(f"'{name}' is of type {kinds}, and '{text}' is not.")
    return value


def _dotted(settings: Any, prefix: str = "") -> list[str]:
    found: list[str] = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        nested = dataclasses.is_dataclass(value)
        found += _dotted(value, f"{prefix}{field.name}.") if nested else [prefix + field.name]
    return found
