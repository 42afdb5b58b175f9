"""From parsed JSON to a manifest, checked once when it is loaded, or to a refusal that says what is wrong."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ashore_runtime import entry_checks
from ashore_runtime.refusal import Refused
from ashore_runtime.schema import (
    ACTIVATIONS,
    CAUTIONS,
    DYNAMICS_SCALES,
    KEEPS,
    VARIANTS,
    WEIGHTS,
    Budget,
    Field,
    Manifest,
    Network,
    Refinement,
    Task,
)

MAX_WIDTH = 1 << 16
"""More than any network here has; what comes from a manifest is multiplied, and must stay a sane number."""

_T = TypeVar("_T")


def manifest_from_json(value: Any) -> Manifest:
    """The manifest in a parsed JSON value, or a refusal that names the entry that is wrong."""
    table = entry_checks.table(value, "The manifest")
    network = _read_network(_entry(table, "network", "The manifest"))
    observation = _fields(table, "observation")
    action = _fields(table, "action")
    features = _list(table, "dynamics_features", entry_checks.index(len(observation)))
    caution = _entry(table, "caution", "The manifest")
    if caution not in CAUTIONS:
        raise Refused(f"The manifest's caution must be one of {', '.join(CAUTIONS)}.")
    if caution != "refinement" and not network.risk_conditioned:
        raise Refused(f"The manifest asks for caution '{caution}' from an actor that does not know eta.")
    versions = entry_checks.table(_entry(table, "versions", "The manifest"), "The manifest's versions")
    if not all(isinstance(text, str) for text in versions.values()):
        raise Refused("The manifest's versions must be texts.")
    return Manifest(
        task=_read_task(_entry(table, "task", "The manifest")),
        observation=observation,
        action=action,
        dynamics_features=features,
        network=network,
        method=entry_checks.text(_entry(table, "method", "The manifest")),
        closeness=_list(table, "closeness", entry_checks.index(len(observation))),
        contrasts=_list(table, "contrasts", _contrast(len(observation))),
        approaches=_list(table, "approaches", _approach(len(observation))),
        budget=_read_budget(_entry(table, "budget", "The manifest")),
        refinement=_read_refinement(_entry(table, "refinement", "The manifest")),
        caution=caution,
        training_ranges=_list(table, "training_ranges", lambda row: entry_checks.table(row, "A training range")),
        versions=versions,
    )


def _read_task(value: Any) -> Task:
    table = entry_checks.exact(value, "task", ("name", "summary", "action_map", "control_period"))
    return Task(
        name=entry_checks.text(table["name"]),
        summary=entry_checks.text(table["summary"]),
        action_map=entry_checks.text(table["action_map"]),
        control_period=entry_checks.positive(table["control_period"], "control_period"),
    )


def _read_network(value: Any) -> Network:
    table = entry_checks.exact(value, "network", tuple(Network.__dataclass_fields__))

    def size(name: str, least: int = 1) -> int:
        entry = table[name]
        if not (isinstance(entry, int) and not isinstance(entry, bool) and least <= entry <= MAX_WIDTH):
            raise Refused(f"The manifest's network size '{name}' must be a whole number of at least {least}.")
        return entry

    if table["activation"] not in ACTIVATIONS:
        raise Refused(f"The manifest's activation must be one of {', '.join(ACTIVATIONS)}.")
    if table["dynamics_scale"] not in DYNAMICS_SCALES:
        raise Refused(f"The manifest's dynamics_scale must be one of {', '.join(DYNAMICS_SCALES)}.")
    return Network(
        latent=size("latent", 0),
        hidden=_list(table, "hidden", lambda v: entry_checks.index(MAX_WIDTH)(v)),
        critic_width=size("critic_width"),
        critic_blocks=size("critic_blocks", 0),
        critic_heads=size("critic_heads", 0),
        feature_layers=size("feature_layers"),
        cosines=size("cosines"),
        fractions=size("fractions"),
        activation=table["activation"],
        dynamics_scale=table["dynamics_scale"],
        risk_conditioned=entry_checks.boolean(table["risk_conditioned"]),
    )


def _read_budget(value: Any) -> Budget:
    table = entry_checks.exact(value, "budget", tuple(Budget.__dataclass_fields__))
    return Budget(
        per_episode=entry_checks.positive(table["per_episode"], "budget per_episode"),
        per_decision=entry_checks.positive(table["per_decision"], "budget per_decision"),
        discounted=entry_checks.positive(table["discounted"], "budget discounted"),
        discount=entry_checks.number(table["discount"], "budget discount", 0.0, 1.0),
        decisions_per_episode=entry_checks.count(table["decisions_per_episode"]),
    )


def _read_refinement(value: Any) -> Refinement:
    table = entry_checks.exact(value, "refinement", tuple(Refinement.__dataclass_fields__))
    for name, allowed in (("variant", VARIANTS), ("weight", WEIGHTS), ("keep", KEEPS)):
        if table[name] not in allowed:
            raise Refused(f"The manifest's refinement {name} must be one of {', '.join(allowed)}.")
    return Refinement(
        steps=entry_checks.count(table["steps"]),
        reward_step=entry_checks.number(table["reward_step"], "reward_step", 0.0),
        cost_step=entry_checks.number(table["cost_step"], "cost_step", 0.0),
        proximal=entry_checks.number(table["proximal"], "proximal", 0.0),
        variant=table["variant"],
        weight=table["weight"],
        keep=table["keep"],
        threshold_scale=entry_checks.positive(table["threshold_scale"], "threshold_scale"),
    )


def _fields(table: Mapping[str, Any], name: str) -> tuple[Field, ...]:
    def read(value: Any) -> Field:
        row = entry_checks.exact(value, name, ("name", "unit", "low", "high"))
        low, high = (
            None if row[end] is None else entry_checks.number(row[end], f"{name} {end}") for end in ("low", "high")
        )
        if low is not None and high is not None and low > high:
            raise Refused(f"The manifest's {name} {str(row['name'])[:64]!r} has its bounds the wrong way round.")
        return Field(entry_checks.text(row["name"]), entry_checks.text(row["unit"]), low, high)

    fields = _list(table, name, read)
    if not fields or len(fields) > MAX_WIDTH or len({f.name for f in fields}) != len(fields):
        raise Refused(f"The manifest's {name} must list at least one field, each name once.")
    return fields


def _entry(table: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in table:
        raise Refused(f"{where} lacks '{name}'.")
    return table[name]


def _list(table: Mapping[str, Any], name: str, read: Callable[[Any], _T]) -> tuple[_T, ...]:
    value = _entry(table, name, "The manifest")
    if not isinstance(value, list):
        raise Refused(f"The entry '{name}' is not a list.")
    return tuple(read(item) for item in value)


def _contrast(end: int) -> Callable[[Any], tuple[int, int, float]]:
    index = entry_checks.index(end)

    def read(value: Any) -> tuple[int, int, float]:
        if not (isinstance(value, list | tuple) and len(value) == 3):  # noqa: PLR2004 - first, second, scale
            raise Refused("A contrast is two places of the observation and a scale.")
        return index(value[0]), index(value[1]), entry_checks.number(value[2], "scale of a contrast")

    return read


def _approach(end: int) -> Callable[[Any], tuple[int, int, int, float, float]]:
    index = entry_checks.index(end)

    def read(value: Any) -> tuple[int, int, int, float, float]:
        if not (isinstance(value, list | tuple) and len(value) == 5):  # noqa: PLR2004 - three places, scale, floor
            raise Refused("An approach is three places of the observation, a scale and a floor.")
        scale, floor = (
            entry_checks.number(value[3], "scale of an approach"),
            entry_checks.number(value[4], "floor of an approach"),
        )
        if floor <= 0.0:
            raise Refused("The floor of an approach must be positive: the gap divides.")
        return index(value[0]), index(value[1]), index(value[2]), scale, floor

    return read
