"""Controllers for when the policy must not act: small, without memory, and tried before they are trusted.

A fallback is a function `(observation, last_action) -> action` of the last good observation (float32, the manifest's
order and units) and the last action sent. It is called ten thousand times when it is loaded and must always give a
finite action inside the box, in at most a millisecond.
"""

import re
import time
from collections.abc import Callable, Mapping
from math import isfinite, sqrt, tanh
from typing import Any

import numpy as np

from ashore_runtime.refinement import Box
from ashore_runtime.refusal import Refused
from ashore_runtime.schema import Manifest
from ashore_runtime.setting_checks import is_number

Fallback = Callable[[np.ndarray, np.ndarray], np.ndarray]

TRIALS = 10_000
MOST_SECONDS = 1e-3
"""Mean time of one call."""
_WIDE = 10.0
"""How far trial observations go in a field without bounds."""


def build(wish: str | Mapping[str, Any] | Fallback, manifest: Manifest, box: Box) -> Fallback:
    """The fallback that a configuration names, or the user's own function; validated either way.

    Args:
        wish: a name such as `"hold"`, a table such as `{"kind": "brake", "actions": {"pedal": -0.5}}`, or a function.
        manifest: names, units and bounds of observations and actions.
        box: the actions that may be sent.
    """
    if callable(wish):
        controller = wish
    else:
        options = dict(wish) if isinstance(wish, Mapping) else {"kind": wish}
        kind = options.pop("kind", None)
        if not isinstance(kind, str) or kind not in KINDS:
            raise Refused(f"There is no fallback called {kind!r}; there are {', '.join(KINDS)}.")
        try:
            controller = KINDS[kind](manifest, box, **options)
        except Refused:
            raise
        except (TypeError, ValueError) as error:
            raise Refused(f"The fallback {kind!r} does not take these options ({error}).") from error
    validate(controller, manifest, box)
    return controller


def validate(controller: Fallback, manifest: Manifest, box: Box, trials: int = TRIALS) -> None:
    """Try a fallback on random observations and refuse it at the first answer that could not be sent."""
    generator = np.random.default_rng(0)
    low = np.array([-_WIDE if field.low is None else field.low for field in manifest.observation], np.float32)
    high = np.array([_WIDE if field.high is None else field.high for field in manifest.observation], np.float32)
    observations = generator.uniform(low, high, (trials, len(low))).astype(np.float32)
    last_actions = generator.uniform(box.low, box.high, (trials, len(box.low))).astype(np.float32)
    begun = time.perf_counter()
    for observation, last_action in zip(observations, last_actions, strict=True):
        try:
            action = np.asarray(controller(observation.copy(), last_action.copy()))
        except Exception as error:
            raise Refused(f"The fallback failed on a random observation ({type(error).__name__}: {error}).") from error
        if action.shape != box.low.shape or action.dtype.kind not in "iuf":
            raise Refused(f"The fallback gave an action of shape {action.shape} instead of {box.low.shape}.")
        if not ((action >= box.low) & (action <= box.high)).all():
            raise Refused(f"The fallback gave an action that is not finite or outside the box: {action}.")
    if time.perf_counter() - begun > trials * MOST_SECONDS:
        raise Refused(f"The fallback takes more than {1000 * MOST_SECONDS:g} ms per call.")


def hold(_manifest: Manifest, box: Box) -> Fallback:
    """The last action again."""
    return lambda _, last_action: box.project(last_action)


def zero(_manifest: Manifest, box: Box) -> Fallback:
    """No action: zero, or what the box has nearest to it."""
    still = box.project(np.zeros_like(box.low))
    return lambda *_: still.copy()


def ramp_to_zero(manifest: Manifest, box: Box, seconds: float = 1.0) -> Fallback:
    """The last action, fading: from full deflection to zero in the given time."""
    if not seconds > 0.0:
        raise Refused("The fallback 'ramp_to_zero' needs a time above zero.")
    step = np.float32(manifest.task.control_period / seconds)

    def ramp(_: np.ndarray, last_action: np.ndarray) -> np.ndarray:
        return box.project(np.sign(last_action) * np.maximum(np.abs(last_action) - step, np.float32(0.0)))

    return ramp


def brake(manifest: Manifest, box: Box, actions: Mapping[str, float]) -> Fallback:
    """The same command always, by name: `{"pedal": -0.5}`; actions that are not named are zero."""
    command = np.zeros_like(box.low)
    for name, value in _table("actions", actions).items():
        command[_place(manifest.action, name, "action")] = _number(name, value)
    command = box.project(command)
    return lambda *_: command.copy()


def pd_to_home(manifest: Manifest, box: Box, axes: Mapping[str, Mapping[str, Any]]) -> Fallback:
    """Per action, u = kp (home - position) - kd velocity.

    Args:
        manifest, box: as for every fallback.
        axes: by action, `position` and `velocity` (names of observation fields; the velocity may be left out), `kp`,
            `kd` and `home`, in the observation's own units.
    """
    rows = []
    for name, axis in _table("axes", axes).items():
        for wanted in ("position", "kp"):
            if wanted not in _table(name, axis):
                raise Refused(f"The fallback 'pd_to_home' needs '{wanted}' for '{name}'.")
        position = _place(manifest.observation, axis["position"], "observation")
        velocity = _place(manifest.observation, axis["velocity"], "observation") if "velocity" in axis else position
        damping = _number("kd", axis.get("kd", 0.0)) if "velocity" in axis else 0.0
        gains = (_number("kp", axis["kp"]), damping, _number("home", axis.get("home", 0.0)))
        rows.append((_place(manifest.action, name, "action"), position, velocity, *gains))

    def control(observation: np.ndarray, _: np.ndarray) -> np.ndarray:
        command = np.zeros_like(box.low)
        for place, position, velocity, stiffness, damping, home in rows:
            command[place] = stiffness * (home - observation[position]) - damping * observation[velocity]
        return box.project(command)

    return control


def fvd_following(
    manifest: Manifest,
    box: Box,
    action: str = "pedal",
    speed: str = "ego_speed",
    lead_speed: str = "lead_speed",
    gap: str = "lead_gap",
    full_drive: float = 3.0,
    full_brake: float = 6.0,
    k: float = 0.41,
    lam: float = 0.5,
) -> Fallback:
    """Follow the car ahead as people do: the full velocity difference model (Jiang, Wu and Zhu, 2001).

    a = k (V(s) - v) + lambda (v_lead - v) with V(s) = 6.75 + 7.91 tanh(0.13 s - 1.57), in m and m/s.

    Args:
        manifest, box: as for every fallback.
        action, speed, lead_speed, gap: names of the fields; a unit such as `15 m/s` says what an observed 1 means.
        full_drive, full_brake: accelerations in m/s^2 that an action of +1 and of -1 gives.
        k, lam: the driver.
    """
    return _following(
        manifest,
        box,
        (action, speed, lead_speed, gap),
        (full_drive, full_brake),
        lambda v, lead, s: k * (6.75 + 7.91 * tanh(0.13 * s - 1.57) - v) + lam * (lead - v),
    )


def idm_following(
    manifest: Manifest,
    box: Box,
    action: str = "pedal",
    speed: str = "ego_speed",
    lead_speed: str = "lead_speed",
    gap: str = "lead_gap",
    full_drive: float = 3.0,
    full_brake: float = 6.0,
    top_speed: float = 30.0,
    headway: float = 1.5,
    standstill_gap: float = 2.0,
    acceleration: float = 1.0,
    comfortable_braking: float = 2.0,
) -> Fallback:
    """Follow the car ahead without hitting it: the intelligent driver model (Treiber, Hennecke and Helbing, 2000).

    a = A (1 - (v / v0)^4 - (s* / s)^2),   s* = s0 + max(0, v T + v (v - v_lead) / (2 sqrt(A B))).
    """

    def wish(v: float, lead: float, s: float) -> float:
        desired = standstill_gap + max(
            0.0, v * headway + v * (v - lead) / (2.0 * sqrt(acceleration * comfortable_braking))
        )
        return acceleration * (1.0 - (v / top_speed) ** 4 - (desired / max(s, _SHORTEST_GAP)) ** 2)

    return _following(manifest, box, (action, speed, lead_speed, gap), (full_drive, full_brake), wish)


_SHORTEST_GAP = 0.1
"""Metres; nearer than this the braking wish is limited by the brake anyway."""

KINDS: dict[str, Callable[..., Fallback]] = {
    "hold": hold,
    "zero": zero,
    "ramp_to_zero": ramp_to_zero,
    "brake": brake,
    "pd_to_home": pd_to_home,
    "fvd": fvd_following,
    "idm": idm_following,
}


def _following(
    manifest: Manifest,
    box: Box,
    names: tuple[str, str, str, str],
    full: tuple[float, float],
    wish: Callable[[float, float, float], float],
) -> Fallback:
    place = _place(manifest.action, names[0], "action")
    fields = [_place(manifest.observation, name, "observation") for name in names[1:]]
    meanings = [_meaning(manifest.observation[field].unit) for field in fields]
    drive, stop = full
    if not (drive > 0.0 and stop > 0.0):
        raise Refused("A following fallback needs accelerations above zero for full drive and full brake.")

    def follow(observation: np.ndarray, _: np.ndarray) -> np.ndarray:
        v, lead, s = (float(observation[i]) * meaning for i, meaning in zip(fields, meanings, strict=True))
        acceleration = wish(v, lead, s)
        command = np.zeros_like(box.low)
        command[place] = acceleration / (drive if acceleration > 0.0 else stop)
        return box.project(command)

    return follow


def _table(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Refused(f"The fallback needs a table for '{name}', not {value!r:.32}.")
    return value


def _number(name: str, value: Any) -> float:
    if not (is_number(value) and isfinite(value)):
        raise Refused(f"The fallback needs a finite number for '{name}', not {value!r:.32}.")
    return float(value)


def _place(fields: tuple[Any, ...], name: str, what: str) -> int:
    names = [field.name for field in fields]
    if name not in names:
        raise Refused(f"The fallback needs the {what} '{name}', and the bundle has {', '.join(names[:12])}.")
    return names.index(name)


def _meaning(unit: str) -> float:
    """What an observed 1 means: 15 for `15 m/s`, 1 for `m/s`."""
    number = re.match(r"[0-9.]+(?=\s)", unit)
    return float(number.group()) if number else 1.0
