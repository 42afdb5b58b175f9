"""Where a bundle is deployed: a drawn world of ours, or anybody's Gymnasium environment that proves it fits.

A policy's observation is a list of numbers whose meaning is their place. An environment must therefore say what its
numbers are called: `observation_names` and `action_names` as attributes of the unwrapped environment or in its
`metadata`, or in a JSON file {"observation": [...], "action": [...]} that somebody wrote who knows. They must be the
manifest's, in its order. Nothing is guessed from shapes.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces

from ashore import names
from ashore.environments import randomisation, tasks
from ashore.environments.gymnasium_adapter import AshoreEnv
from ashore_runtime.schema import Field, Manifest

_UNSEEN = 2_000_003
"""Where the worlds of deployments come from; training and evaluation draw theirs from other keys."""
_ROUNDING = 1e-6


def draw_parameters(task: str, preset: str | None, shift: str, seed: int, count: int) -> list[dict[str, float]]:
    """Physical parameters of `count` worlds of a shift that nobody has trained in."""
    family = tasks.lookup(task)
    settings = names.lookup("preset", family.default_preset if preset is None else preset, family.presets)
    rows = names.lookup("shift", shift, family.describe(settings).shifts)
    key = jax.random.fold_in(jax.random.key(_UNSEEN), seed)
    drawn = randomisation.sample(rows, family.parameters_type, key, count)
    fields = {row.name: np.asarray(getattr(drawn, row.name)) for row in rows}
    return [{name: float(values[i]) for name, values in fields.items()} for i in range(count)]


def task_of(manifest: Manifest) -> str:
    """The task that a bundle was trained for, if it is one of ours."""
    task = manifest.task.name
    if task not in tasks.TASKS:
        raise ValueError(
            f"The bundle is for the task '{task}', which this installation does not know: give its world as --task "
            "module:FAMILY or --env module:ID."
        )
    return task


def world(
    manifest: Manifest, task: str, preset: str | None, parameters: Mapping[str, float], pictures: bool = False
) -> AshoreEnv:
    """One of our worlds in C MuJoCo, checked against the manifest."""
    env = AshoreEnv(task, preset, parameters, render_mode="rgb_array" if pictures else None)
    check(manifest, env, _described(env.description.observation), _described(env.description.action))
    return env


def foreign(
    manifest: Manifest, identifier: str, names_file: Path | None = None, pictures: bool = False
) -> gymnasium.Env[Any, Any]:
    """Anybody's environment by `module:ID`, made by Gymnasium and checked against the manifest."""
    try:
        with tasks.importing_from_here():
            env = gymnasium.make(identifier, render_mode="rgb_array" if pictures else None)
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        raise ValueError(f"There is no environment '{identifier}' to be made here ({_first_line(error)}).") from error
    observation, action = _names_in(names_file) if names_file is not None else (None, None)
    if observation is None:
        observation, action = (_exposed(env, f"{kind}_names") for kind in ("observation", "action"))
    if observation is None and isinstance(env.unwrapped, AshoreEnv):
        description = env.unwrapped.description
        observation, action = _described(description.observation), _described(description.action)
    check(manifest, env, observation, action)
    return env


def check(
    manifest: Manifest,
    env: gymnasium.Env[Any, Any],
    observation_names: Sequence[str] | None,
    action_names: Sequence[str] | None,
) -> None:
    """Refuse, in one sentence, an environment that is not known to be what the policy was trained for."""
    sides = (
        ("observation", manifest.observation, env.observation_space, observation_names),
        ("action", manifest.action, env.action_space, action_names),
    )
    for kind, fields, space, given in sides:
        shape = (len(fields),)
        if not isinstance(space, spaces.Box) or space.shape != shape:
            found = f"{type(space).__name__} of shape {space.shape}"
            raise ValueError(f"The environment's {kind} is a {found}, and the bundle needs a Box of shape {shape}.")
        if given is None:
            raise ValueError(
                f"The environment does not say what its {kind} is called: give it `{kind}_names`, or give --names a "
                "JSON file."
            )
        _check_names(kind, fields, list(given))
    # An action of 1 means "all there is". A wider or narrower space is in another unit, and the scale is not ours to
    # invent.
    for index, field in enumerate(manifest.action):
        ends = (manifest.action_low[index], manifest.action_high[index])
        there = (env.action_space.low[index], env.action_space.high[index])  # pyright: ignore[reportAttributeAccessIssue]
        if not np.allclose(ends, there, atol=_ROUNDING):
            raise ValueError(
                f"The environment takes '{field.name}' in [{there[0]:g}, {there[1]:g}], and the bundle gives it in "
                f"[{ends[0]:g}, {ends[1]:g}]."
            )


def _check_names(kind: str, fields: tuple[Field, ...], given: list[str]) -> None:
    if len(given) != len(fields):
        raise ValueError(f"The environment names {len(given)} fields of its {kind}, and the bundle has {len(fields)}.")
    for index, (field, name) in enumerate(zip(fields, given, strict=True)):
        if field.name != name:
            raise ValueError(
                f"The environment's {kind} has '{name}' at place {index}, where the bundle has '{field.name}'."
            )


def _exposed(env: gymnasium.Env[Any, Any], attribute: str) -> list[str] | None:
    found = getattr(env.unwrapped, attribute, None)
    if found is None:
        found = (env.metadata or {}).get(attribute)
    return None if found is None else [str(name) for name in found]


def _described(fields: Sequence[Any]) -> list[str]:
    return [field.name for field in fields]


def _names_in(path: Path) -> tuple[list[str], list[str]]:
    if not path.exists():
        raise ValueError(f"The file of names {path} does not exist.")
    try:
        content = json.loads(path.read_text())
        sides = content["observation"], content["action"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is no file of names: it must hold {{'observation': [...], 'action': [...]}} as JSON."
        ) from error
    if not all(isinstance(side, list) and all(isinstance(name, str) for name in side) for side in sides):
        raise ValueError(f"{path} is no file of names: both of its lists must hold texts.")
    return sides


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
