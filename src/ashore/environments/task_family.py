"""A family of tasks: one kind of world in all its presets, and how a caller picks one of them."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from ashore import names
from ashore.environments.base import CWorld, Task, TaskDescription
from ashore.types import Parameters


class Controller(Protocol):
    """A scripted way to act: nothing is learned, so it shows a world before there is a policy."""

    def __call__(self, observation: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class TaskFamily:
    """One kind of world in all its presets, and how to build each of its forms."""

    summary: str
    presets: Mapping[str, Any]
    """Configurations by name, frozen dataclasses of one class; the first is the default."""
    parameters_type: type[Parameters]
    describe: Callable[[Any], TaskDescription]
    make: Callable[[Any], Task]
    """The batched world of a configuration."""
    make_c_world: Callable[[Any, Parameters], CWorld]
    """The single world of a configuration and one vector of physical parameters."""
    scripted: Callable[[TaskDescription], Controller]

    @property
    def default_preset(self) -> str:
        """Name of the preset that is meant when none is named."""
        return next(iter(self.presets))


class Choice(NamedTuple):
    """One world as somebody asked for it."""

    config: Any
    description: TaskDescription
    parameters: dict[str, Any]
    """Physical parameters that were given a value, by name; the others are nominal. Not checked yet."""


def choose(
    family: TaskFamily, preset: str | None, parameters: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> Choice:
    """Settle what a caller asked for: a preset, changed by options that name its settings or physical parameters.

    Args:
        family: the kind of world.
        preset: name of a preset, or None for the default one.
        parameters: physical parameters by name, where the caller keeps them apart.
        options: settings of the configuration and physical parameters, mixed, by name.

    Returns:
        The choice; a name that is neither a setting nor a parameter is an error that lists both.
    """
    config = names.lookup("preset", family.default_preset if preset is None else preset, family.presets)
    settings = [field.name for field in dataclasses.fields(config)]
    physical = [row.name for row in family.describe(config).shifts["nominal"]]
    given = dict(parameters or {})
    changes = {}
    for name, value in options.items():
        if name in settings:
            changes[name] = _setting(name, value, settings)
        elif name in given:
            raise ValueError(f"Physical parameter '{name}' was given twice.")
        else:
            given[name] = value
    for name in given:
        if name not in physical:
            hint = names.nearest(name, [*physical, *settings])
            meant = f", did you mean '{hint}'" if hint else ""
            raise names.UnknownName(
                f"Unknown option '{name}'{meant}; physical parameters are {', '.join(physical)} and settings are "
                f"{', '.join(settings)}."
            )
    config = dataclasses.replace(config, **changes)
    return Choice(config, family.describe(config), given)


def _setting(name: str, value: Any, settings: list[str]) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"Setting '{name}' must be finite, not {value!r}; settings are {', '.join(settings)}.")
    # A list would make the configuration unhashable, and options that came through JSON have no tuples.
    return tuple(value) if isinstance(value, list) else value
