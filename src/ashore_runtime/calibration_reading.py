"""From parsed JSON to a calibration, checked once when it is loaded, or to a refusal that says what is wrong."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, TypeVar

from ashore_runtime import entry_checks
from ashore_runtime.refusal import Refused
from ashore_runtime.schema import PERCENTILES, SCHEMA, Calibration, ChangeCalibration, WorldCalibration

_T = TypeVar("_T")
_Row = tuple[float, ...]
_LARGEST = 1e9
"""Size of a number in a world table; products of two are still far from overflowing."""


def calibration_from_json(value: Any) -> Calibration:
    """The calibration in a parsed JSON value, or a refusal that names the entry that is wrong."""
    where = "The calibration"
    table = dict(entry_checks.table(value, where))
    if table.pop("schema", None) != SCHEMA:
        raise Refused(f"The calibration is not of schema {SCHEMA}, the only one this version reads.")
    change, world = table.pop("change", None), table.pop("world", None)
    calibration = Calibration(
        counts=_take_list(table, "counts", entry_checks.count),
        eta=_take_list(table, "eta", lambda v: entry_checks.number(v, "eta", 0.0, 1.0)),
        infeasible=_take_list(table, "infeasible", entry_checks.boolean),
        spread=None
        if table.get("spread") is None
        else _take_list(table, "spread", lambda v: entry_checks.number(v, "spread", 0.0, 1.0)),
        tempering=entry_checks.number(table.pop("tempering", 1.0), "tempering", 0.0, 1.0),
        change=None if change is None else _read_change(change),
        world=None if world is None else _read_world(world),
        assumptions=_take_list(table, "assumptions", entry_checks.text),
        tables={name: entry for name, entry in table.items() if name != "spread"},
    )
    counts, eta = calibration.counts, calibration.eta
    if not counts or counts[0] != 0 or any(a >= b for a, b in pairwise(counts)):
        raise Refused("The calibration's counts must start at 0 and rise.")
    if not len(counts) == len(eta) == len(calibration.infeasible) == len(calibration.spread or counts):
        raise Refused("The calibration's tables differ in length.")
    # The eta of a typical world may rise: it is not what is deployed.
    if max(eta) >= 1.0 or (calibration.world is None and any(a < b for a, b in pairwise(eta))):
        raise Refused("The calibration's eta must stay below 1 and never rise with the count.")
    if calibration.world is not None and len(calibration.world.margin) != len(counts):
        raise Refused("The calibration's tables differ in length.")
    return calibration


def _read_change(value: Any) -> ChangeCalibration:
    table = entry_checks.exact(value, "change", tuple(ChangeCalibration.__dataclass_fields__))
    rate, level = table["false_alarms_per_million"], table["ood_level"]
    memory = entry_checks.count(table["memory"])
    if not memory:
        raise Refused("The entry 'change memory' must be positive.")
    return ChangeCalibration(
        threshold=entry_checks.positive(table["threshold"], "change threshold"),
        drift=entry_checks.number(table["drift"], "change drift", 0.0),
        memory=memory,
        clip=entry_checks.positive(table["clip"], "change clip"),
        false_alarms_per_million=None
        if rate is None
        else entry_checks.positive(rate, "change false_alarms_per_million"),
        runs=entry_checks.count(table["runs"]),
        run_length=entry_checks.count(table["run_length"]),
        ood_level=None if level is None else entry_checks.number(level, "change ood_level"),
    )


def _read_world(value: Any) -> WorldCalibration:
    optional = ("strangers", "strangers_enough")
    left_out = [name for name in optional if not isinstance(value, Mapping) or name not in value]
    known = tuple(name for name in WorldCalibration.__dataclass_fields__ if name not in left_out)
    table = entry_checks.exact(value, "world", known)

    def items(value: Any, name: str, length: int | None) -> list[Any]:
        if not isinstance(value, list) or length not in (None, len(value)):
            raise Refused(f"The entry 'world {name}' does not have the shape of its table.")
        return value

    def row(value: Any, name: str, length: int | None = None) -> _Row:
        return tuple(
            entry_checks.number(item, f"world {name}", -_LARGEST, _LARGEST) for item in items(value, name, length)
        )

    def rows(value: Any, name: str, count: int | None, length: int) -> tuple[_Row, ...]:
        return tuple(row(item, name, length) for item in items(value, name, count))

    etas = row(table["etas"], "etas")
    if not etas or etas[0] < 0.0 or etas[-1] >= 1.0 or any(a >= b for a, b in pairwise(etas)):
        raise Refused("The entry 'world etas' must rise within [0, 1).")
    low = row(table["low"], "low")
    high = row(table["high"], "high", len(low))
    if any(a > b for a, b in zip(low, high, strict=True)):
        raise Refused("The entry 'world low' is above 'world high'.")
    margin = rows(table["margin"], "margin", None, len(etas))
    if any(a < b for early, late in pairwise(margin) for a, b in zip(early, late, strict=True)):
        raise Refused("The entry 'world margin' must never rise with the count.")
    strangers = None if "strangers" in left_out else entry_checks.number(table["strangers"], "world strangers")
    if strangers is not None and strangers not in etas:
        raise Refused("The entry 'world strangers' must be one of the levels in 'world etas'.")
    enough = None if "strangers_enough" in left_out else entry_checks.boolean(table["strangers_enough"])
    counts = len(margin)
    return WorldCalibration(
        budget=entry_checks.positive(table["budget"], "world budget"),
        etas=etas,
        intercept=rows(table["intercept"], "intercept", counts, len(etas)),
        slope=tuple(rows(item, "slope", len(etas), len(low)) for item in items(table["slope"], "slope", counts)),
        margin=margin,
        low=low,
        high=high,
        eta_percentiles=rows(table["eta_percentiles"], "eta_percentiles", counts, len(PERCENTILES)),
        strangers=strangers,
        strangers_enough=enough,
    )


def _take_list(table: dict[str, Any], name: str, read: Callable[[Any], _T]) -> tuple[_T, ...]:
    value = table.pop(name, None)
    if not isinstance(value, list):
        raise Refused(f"The calibration's '{name}' is not a list.")
    return tuple(read(item) for item in value)
