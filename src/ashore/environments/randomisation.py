"""Randomisation declared as data: which parameter, in which range, applied how."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from ashore.types import Array, Parameters

Operation = Literal["scale", "add"]


@dataclass(frozen=True)
class Randomised:
    """One physical parameter and the range it is drawn from, uniformly."""

    name: str
    unit: str
    """Unit of the *default* that the number is applied to; a scale itself has none."""
    nominal: float
    low: float
    high: float
    operation: Operation
    """`scale` multiplies the model's default, `add` is added to it."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ValueError(f"The range of '{self.name}' must be finite and ordered, not [{self.low}, {self.high}].")


def with_ranges(rows: Sequence[Randomised], ranges: Mapping[str, tuple[float, float]]) -> tuple[Randomised, ...]:
    """The same parameters drawn from other ranges; every parameter must be given one."""
    missing = {row.name for row in rows} ^ set(ranges)
    if missing:
        raise ValueError(f"Ranges must be given for exactly the declared parameters; check {sorted(missing)}.")
    return tuple(replace(row, low=ranges[row.name][0], high=ranges[row.name][1]) for row in rows)


def widened(rows: Sequence[Randomised], times: float) -> tuple[Randomised, ...]:
    """The same parameters from ranges that many times as wide, about their middles.

    A mass of nothing is no world: no scale falls further than `times` below the smallest of its range. What is added to
    a default has no such floor; how far it may go is for those to say who know the default.
    """
    if times == 1.0:
        return tuple(rows)

    def wider(row: Randomised) -> Randomised:
        middle, reach = 0.5 * (row.low + row.high), 0.5 * times * (row.high - row.low)
        floor = row.low / times if row.operation == "scale" and row.low >= 0.0 else -math.inf
        return replace(row, low=max(middle - reach, floor), high=middle + reach)

    return tuple(wider(row) for row in rows)


def at_nominal(rows: Sequence[Randomised]) -> tuple[Randomised, ...]:
    """The same parameters, each fixed at its nominal value."""
    return tuple(replace(row, low=row.nominal, high=row.nominal) for row in rows)


def nominal(rows: Sequence[Randomised], parameters_type: type[Parameters]) -> Parameters:
    """The parameters of the nominal world, float32 scalars."""
    return parameters_type(**{row.name: jnp.float32(row.nominal) for row in rows})


def sample(rows: Sequence[Randomised], parameters_type: type[Parameters], key: Array, count: int) -> Parameters:
    """Draw `count` parameter vectors independently and uniformly; every field has shape [count]."""
    return sample_beyond(rows, parameters_type, key, 1.0, jnp.zeros(count, jnp.float32))


def sample_beyond(
    rows: Sequence[Randomised], parameters_type: type[Parameters], key: Array, times: float, strangeness: Array
) -> Parameters:
    """Draw one parameter vector for each strangeness; every field has its shape, [count].

    Args:
        strangeness: 0 draws from the ranges themselves, 1 from ranges `times` as wide, and what lies between from what
            lies between.
    """
    low, high = (_bounds(rows, end) for end in ("low", "high"))
    wider = widened(rows, times)
    reach_down, reach_up = _bounds(wider, "low") - low, _bounds(wider, "high") - high
    low = low[None, :] + strangeness[:, None] * reach_down[None, :]
    high = high[None, :] + strangeness[:, None] * reach_up[None, :]
    values = low + jax.random.uniform(key, high.shape, jnp.float32) * (high - low)
    return parameters_type(**{row.name: values[:, index] for index, row in enumerate(rows)})


def _bounds(rows: Sequence[Randomised], end: Literal["low", "high"]) -> Array:
    return jnp.array([getattr(row, end) for row in rows], jnp.float32)


def from_names(rows: Sequence[Randomised], parameters_type: type[Parameters], values: Mapping[str, Any]) -> Parameters:
    """Nominal parameters with some replaced by name, as float32 NumPy scalars; bad input is named in the error."""
    known = [row.name for row in rows]
    for name, value in values.items():
        if name not in known:
            raise ValueError(f"Unknown physical parameter '{name}'; this task knows {', '.join(known)}.")
        if not isinstance(value, (int, float, np.integer, np.floating)) or not math.isfinite(value):
            raise ValueError(
                f"Physical parameter '{name}' must be a finite number, not {value!r}; "
                f"this task knows {', '.join(known)}."
            )
    return parameters_type(**{row.name: np.float32(values.get(row.name, row.nominal)) for row in rows})


def leaves(rows: Sequence[Randomised], parameters: Parameters) -> Array:
    """Whether each of these parameter vectors lies outside of the ranges in at least one parameter, [count]."""
    values = jnp.stack([getattr(parameters, row.name) for row in rows], axis=1)
    low, high = (_bounds(rows, end)[None] for end in ("low", "high"))
    return jnp.any((values < low) | (values > high), axis=1)


def leaves_training(train: Sequence[Randomised], shift: Sequence[Randomised]) -> list[str]:
    """One sentence for every parameter whose range in `shift` is not inside its training range."""
    sentences = []
    for inside, outside in zip(train, shift, strict=True):
        if outside.low < inside.low or outside.high > inside.high:
            sentences.append(
                f"{outside.name} [{outside.low:g}, {outside.high:g}] leaves Train [{inside.low:g}, {inside.high:g}]"
            )
    return sentences
