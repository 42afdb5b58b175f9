"""What a manifest and a calibration say, as types: everything a runtime reads, checked once when it is loaded."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from math import isfinite
from typing import Any, TypeVar

import numpy as np

from ashore_runtime.refusal import Refused

SCHEMA = 1
ACTIVATIONS = ("relu", "silu")
DYNAMICS_SCALES = ("learnt", "predicted", "unit")
CAUTIONS = ("refinement", "actor", "both")
VARIANTS = ("paper", "unit")
WEIGHTS = ("eta", "full", "sqrt")
KEEPS = ("best", "last")
PERCENTILES = (10, 50, 90)
"""Of eta over the simulated worlds, where caution follows the world."""
MAX_WIDTH = 1 << 16
"""More than any network here has; what comes from a manifest is multiplied, and must stay a sane number."""

_T = TypeVar("_T")
_Row = tuple[float, ...]
_LARGEST = 1e9
"""Size of a number in a world table; products of two are still far from overflowing."""


@dataclass(frozen=True)
class Field:
    """One number of an observation or an action; a bound of None is no bound."""

    name: str
    unit: str
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Task:
    """What the policy was trained for."""

    name: str
    summary: str
    action_map: str
    """How an action becomes a command, in words, for whoever connects the actuators."""
    control_period: float
    """Seconds between two decisions."""


@dataclass(frozen=True)
class Network:
    """Shapes of the networks."""

    latent: int
    hidden: tuple[int, ...]
    """Hidden layers of actor, encoder and dynamics head."""
    critic_width: int
    critic_blocks: int
    critic_heads: int
    """0 where the critics do not travel: nothing can be refined then."""
    feature_layers: int
    cosines: int
    fractions: int
    activation: str
    """Activation of the critics: `relu` or `silu`."""
    dynamics_scale: str
    """Scale of the dynamics head's likelihood: `learnt` per target, or `unit`."""
    risk_conditioned: bool
    """Whether eta is one more input of actor and critics, after z."""

    @property
    def context(self) -> int:
        """Length of what actor and critics are conditioned on: z, and eta where they know it."""
        return self.latent + self.risk_conditioned


@dataclass(frozen=True)
class Budget:
    """One cost limit in every unit that somebody needs."""

    per_episode: float
    per_decision: float
    discounted: float
    """The unit of the cost critic, and the threshold of Algorithm 1."""
    discount: float
    decisions_per_episode: int


@dataclass(frozen=True)
class Refinement:
    """How Algorithm 1 is run."""

    steps: int = 5
    """K_ref."""
    reward_step: float = 0.01
    """alpha_r."""
    cost_step: float = 0.05
    """alpha_c."""
    proximal: float = 1.0
    """beta_n."""
    variant: str = "paper"
    """`paper`: the cost gradient as it is; `unit`: scaled to length one, so that alpha_c is a distance."""
    weight: str = "eta"
    """w(eta): `eta` as in the paper, `sqrt`, or `full` (1 whenever eta > 0)."""
    keep: str = "best"
    """`best`: judge every action that could be sent and send the best; `last`: as printed, send the last iterate."""
    threshold_scale: float = 1.0
    """The threshold is this times the discounted budget."""


@dataclass(frozen=True)
class Manifest:
    """The facts that travel with the weights."""

    task: Task
    observation: tuple[Field, ...]
    action: tuple[Field, ...]
    dynamics_features: tuple[int, ...]
    """Indices of the observation whose change reveals the physics; the encoder looks at these."""
    network: Network
    budget: Budget
    method: str = ""
    """What trained it; carried along for people."""
    closeness: tuple[int, ...] = ()
    """Indices of the observation that are 1 at contact; their near range is enlarged for the networks."""
    contrasts: tuple[tuple[int, int, float], ...] = ()
    """(first, second, scale): the networks also get scale times the difference of these two observed numbers."""
    approaches: tuple[tuple[int, int, int, float, float], ...] = ()
    """(faster, slower, gap, scale, floor): the networks also get how soon this gap closes."""
    refinement: Refinement = Refinement()
    caution: str = "refinement"
    """Where caution comes from: `refinement` (Algorithm 1), `actor` (eta is an input of the actor), or `both`."""
    training_ranges: tuple[Mapping[str, Any], ...] = ()
    """Physical parameters and the ranges they were drawn from; carried along for people."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Version of everything that took part, and the revision of the source."""

    def to_json(self) -> dict[str, Any]:
        """The manifest without `schema`, `files` and `checksum`, which the bundle's writer adds."""
        return _plain(asdict(self))

    @property
    def action_low(self) -> np.ndarray:
        return np.array([-1.0 if f.low is None else max(f.low, -1.0) for f in self.action], np.float32)

    @property
    def action_high(self) -> np.ndarray:
        return np.array([1.0 if f.high is None else min(f.high, 1.0) for f in self.action], np.float32)


@dataclass(frozen=True)
class ChangeCalibration:
    """When a change of the world is an alarm, and what simulated worlds without one promise of it; see `change`."""

    threshold: float
    """CUSUM alarm level, in nats of log likelihood."""
    drift: float = 0.3
    """What recent evidence must predict better by, in nats per transition, before it counts."""
    memory: int = 16
    """Transitions that recent evidence remembers."""
    clip: float = 5.0
    """Most that one transition can say, in nats."""
    false_alarms_per_million: float | None = None
    """Decisions being a million: what the threshold was chosen for; None where nobody measured."""
    runs: int = 0
    """Simulated worlds without a change behind the threshold."""
    run_length: int = 0
    """Decisions in each of them."""
    ood_level: float | None = None
    """Running mean of log surprise above which no simulated world was; None leaves the world unjudged."""


@dataclass(frozen=True)
class WorldCalibration:
    """What the identified world is predicted to cost at each risk level; see `world_levels`."""

    budget: float
    """What the predicted cost must keep, in the unit of the tables: discounted."""
    etas: tuple[float, ...]
    """Risk levels, rising, below 1."""
    intercept: tuple[tuple[float, ...], ...]
    """Predicted cost where the posterior's mean is 0, [count][eta]."""
    slope: tuple[tuple[tuple[float, ...], ...], ...]
    """How it changes with the posterior's mean, [count][eta][latent]."""
    margin: tuple[tuple[float, ...], ...]
    """What a world costs more than predicted, at most at the calibrated level; never rising, [count][eta]."""
    low: tuple[float, ...]
    """Box of the beliefs that were calibrated, [latent]."""
    high: tuple[float, ...]
    eta_percentiles: tuple[tuple[float, ...], ...]
    """10th, 50th and 90th percentile of eta over the simulated worlds, [count]; for people."""
    strangers: float | None = None
    """The least that a belief outside the box gets; the level of the careful start if left out."""

    def to_json(self) -> dict[str, Any]:
        known = asdict(self)
        if self.strangers is None:
            # A table from before there were levels for strangers is written again as it was.
            del known["strangers"]
        return known


@dataclass(frozen=True)
class Calibration:
    """The risk schedule and the numbers behind it."""

    counts: tuple[int, ...]
    """Transitions seen, 0 first, rising."""
    eta: tuple[float, ...]
    """Risk level per count, never rising; where there is a world table, that of a typical world, for people."""
    infeasible: tuple[bool, ...]
    """Per count: no eta on the grid was enough, and the strongest one is used."""
    spread: tuple[float, ...] | None = None
    """Posterior standard deviation (mean over dimensions) that each count asks for; None asks for the count alone."""
    tempering: float = 1.0
    """Factor on the evidence of one transition: correlated transitions say less than independent ones."""
    change: ChangeCalibration | None = None
    world: WorldCalibration | None = None
    """Where caution follows the identified world: read in the place of `eta` and `infeasible`."""
    assumptions: tuple[str, ...] = ()
    tables: Mapping[str, Any] = field(default_factory=dict)
    """Everything else (`epsilon`, `lipschitz`, `delta`, ...): carried along, not interpreted."""

    def to_json(self) -> dict[str, Any]:
        known = asdict(self)
        tables = known.pop("tables")
        if self.world is None:
            # A bundle from before there were world tables is written again as it was.
            del known["world"]
        else:
            known["world"] = self.world.to_json()
        return _plain({"schema": SCHEMA, **tables, **known})


def manifest_from_json(value: Any) -> Manifest:
    """The manifest in a parsed JSON value, or a refusal that names the entry that is wrong."""
    table = _table(value, "The manifest")
    network = _read_network(_entry(table, "network", "The manifest"))
    observation = _fields(table, "observation")
    action = _fields(table, "action")
    features = _list(table, "dynamics_features", _index(len(observation)))
    caution = _entry(table, "caution", "The manifest")
    if caution not in CAUTIONS:
        raise Refused(f"The manifest's caution must be one of {', '.join(CAUTIONS)}.")
    if caution != "refinement" and not network.risk_conditioned:
        raise Refused(f"The manifest asks for caution '{caution}' from an actor that does not know eta.")
    versions = _table(_entry(table, "versions", "The manifest"), "The manifest's versions")
    if not all(isinstance(text, str) for text in versions.values()):
        raise Refused("The manifest's versions must be texts.")
    return Manifest(
        task=_read_task(_entry(table, "task", "The manifest")),
        observation=observation,
        action=action,
        dynamics_features=features,
        network=network,
        method=_text(_entry(table, "method", "The manifest")),
        closeness=_list(table, "closeness", _index(len(observation))),
        contrasts=_list(table, "contrasts", _contrast(len(observation))),
        approaches=_list(table, "approaches", _approach(len(observation))),
        budget=_read_budget(_entry(table, "budget", "The manifest")),
        refinement=_read_refinement(_entry(table, "refinement", "The manifest")),
        caution=caution,
        training_ranges=_list(table, "training_ranges", lambda row: _table(row, "A training range")),
        versions=versions,
    )


def calibration_from_json(value: Any) -> Calibration:
    """The calibration in a parsed JSON value, or a refusal that names the entry that is wrong."""
    where = "The calibration"
    table = dict(_table(value, where))
    if table.pop("schema", None) != SCHEMA:
        raise Refused(f"The calibration is not of schema {SCHEMA}, the only one this version reads.")
    change, world = table.pop("change", None), table.pop("world", None)
    calibration = Calibration(
        counts=_take_list(table, "counts", _count),
        eta=_take_list(table, "eta", lambda v: _number(v, "eta", 0.0, 1.0)),
        infeasible=_take_list(table, "infeasible", _boolean),
        spread=None
        if table.get("spread") is None
        else _take_list(table, "spread", lambda v: _number(v, "spread", 0.0, 1.0)),
        tempering=_number(table.pop("tempering", 1.0), "tempering", 0.0, 1.0),
        change=None if change is None else _read_change(change),
        world=None if world is None else _read_world(world),
        assumptions=_take_list(table, "assumptions", _text),
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


def _read_task(value: Any) -> Task:
    table = _exact(value, "task", ("name", "summary", "action_map", "control_period"))
    return Task(
        name=_text(table["name"]),
        summary=_text(table["summary"]),
        action_map=_text(table["action_map"]),
        control_period=_positive(table["control_period"], "control_period"),
    )


def _read_network(value: Any) -> Network:
    table = _exact(value, "network", tuple(Network.__dataclass_fields__))

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
        hidden=_list(table, "hidden", lambda v: _index(MAX_WIDTH)(v)),
        critic_width=size("critic_width"),
        critic_blocks=size("critic_blocks", 0),
        critic_heads=size("critic_heads", 0),
        feature_layers=size("feature_layers"),
        cosines=size("cosines"),
        fractions=size("fractions"),
        activation=table["activation"],
        dynamics_scale=table["dynamics_scale"],
        risk_conditioned=_boolean(table["risk_conditioned"]),
    )


def _read_budget(value: Any) -> Budget:
    table = _exact(value, "budget", tuple(Budget.__dataclass_fields__))
    return Budget(
        per_episode=_positive(table["per_episode"], "budget per_episode"),
        per_decision=_positive(table["per_decision"], "budget per_decision"),
        discounted=_positive(table["discounted"], "budget discounted"),
        discount=_number(table["discount"], "budget discount", 0.0, 1.0),
        decisions_per_episode=_count(table["decisions_per_episode"]),
    )


def _read_refinement(value: Any) -> Refinement:
    table = _exact(value, "refinement", tuple(Refinement.__dataclass_fields__))
    for name, allowed in (("variant", VARIANTS), ("weight", WEIGHTS), ("keep", KEEPS)):
        if table[name] not in allowed:
            raise Refused(f"The manifest's refinement {name} must be one of {', '.join(allowed)}.")
    return Refinement(
        steps=_count(table["steps"]),
        reward_step=_number(table["reward_step"], "reward_step", 0.0),
        cost_step=_number(table["cost_step"], "cost_step", 0.0),
        proximal=_number(table["proximal"], "proximal", 0.0),
        variant=table["variant"],
        weight=table["weight"],
        keep=table["keep"],
        threshold_scale=_positive(table["threshold_scale"], "threshold_scale"),
    )


def _read_change(value: Any) -> ChangeCalibration:
    table = _exact(value, "change", tuple(ChangeCalibration.__dataclass_fields__))
    rate, level = table["false_alarms_per_million"], table["ood_level"]
    memory = _count(table["memory"])
    if not memory:
        raise Refused("The entry 'change memory' must be positive.")
    return ChangeCalibration(
        threshold=_positive(table["threshold"], "change threshold"),
        drift=_number(table["drift"], "change drift", 0.0),
        memory=memory,
        clip=_positive(table["clip"], "change clip"),
        false_alarms_per_million=None if rate is None else _positive(rate, "change false_alarms_per_million"),
        runs=_count(table["runs"]),
        run_length=_count(table["run_length"]),
        ood_level=None if level is None else _number(level, "change ood_level"),
    )


def _read_world(value: Any) -> WorldCalibration:
    told = isinstance(value, Mapping) and "strangers" in value
    known = tuple(name for name in WorldCalibration.__dataclass_fields__ if told or name != "strangers")
    table = _exact(value, "world", known)

    def items(value: Any, name: str, length: int | None) -> list[Any]:
        if not isinstance(value, list) or length not in (None, len(value)):
            raise Refused(f"The entry 'world {name}' does not have the shape of its table.")
        return value

    def row(value: Any, name: str, length: int | None = None) -> _Row:
        return tuple(_number(item, f"world {name}", -_LARGEST, _LARGEST) for item in items(value, name, length))

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
    strangers = _number(table["strangers"], "world strangers") if told else None
    if strangers is not None and strangers not in etas:
        raise Refused("The entry 'world strangers' must be one of the levels in 'world etas'.")
    counts = len(margin)
    return WorldCalibration(
        budget=_positive(table["budget"], "world budget"),
        etas=etas,
        intercept=rows(table["intercept"], "intercept", counts, len(etas)),
        slope=tuple(rows(item, "slope", len(etas), len(low)) for item in items(table["slope"], "slope", counts)),
        margin=margin,
        low=low,
        high=high,
        eta_percentiles=rows(table["eta_percentiles"], "eta_percentiles", counts, len(PERCENTILES)),
        strangers=strangers,
    )


def _fields(table: Mapping[str, Any], name: str) -> tuple[Field, ...]:
    def read(value: Any) -> Field:
        row = _exact(value, name, ("name", "unit", "low", "high"))
        low, high = (None if row[end] is None else _number(row[end], f"{name} {end}") for end in ("low", "high"))
        if low is not None and high is not None and low > high:
            raise Refused(f"The manifest's {name} {str(row['name'])[:64]!r} has its bounds the wrong way round.")
        return Field(_text(row["name"]), _text(row["unit"]), low, high)

    fields = _list(table, name, read)
    if not fields or len(fields) > MAX_WIDTH or len({f.name for f in fields}) != len(fields):
        raise Refused(f"The manifest's {name} must list at least one field, each name once.")
    return fields


def _table(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Refused(f"{what} is not a table.")
    return value


def _exact(value: Any, what: str, names: tuple[str, ...]) -> Mapping[str, Any]:
    table = _table(value, f"The entry '{what}'")
    if missing := [name for name in names if name not in table]:
        raise Refused(f"The entry '{what}' lacks '{missing[0]}'.")
    if unknown := [name for name in table if name not in names]:
        raise Refused(f"The entry '{what}' has {unknown[0][:64]!r}, which nothing here understands.")
    return table


def _entry(table: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in table:
        raise Refused(f"{where} lacks '{name}'.")
    return table[name]


def _list(table: Mapping[str, Any], name: str, read: Callable[[Any], _T]) -> tuple[_T, ...]:
    value = _entry(table, name, "The manifest")
    if not isinstance(value, list):
        raise Refused(f"The entry '{name}' is not a list.")
    return tuple(read(item) for item in value)


def _take_list(table: dict[str, Any], name: str, read: Callable[[Any], _T]) -> tuple[_T, ...]:
    value = table.pop(name, None)
    if not isinstance(value, list):
        raise Refused(f"The calibration's '{name}' is not a list.")
    return tuple(read(item) for item in value)


def _number(value: Any, what: str, low: float = -float("inf"), high: float = float("inf")) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused(f"The entry '{what}' is not a number.")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if not (isfinite(number) and low <= number <= high):
        raise Refused(f"The entry '{what}' is {number:g}, outside [{low:g}, {high:g}].")
    return number


def _positive(value: Any, what: str) -> float:
    number = _number(value, what, 0.0)
    if number == 0.0:
        raise Refused(f"The entry '{what}' must be positive.")
    return number


def _index(end: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if not (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end):
            raise Refused(f"A whole number below {end} was expected.")
        return value

    return read


def _contrast(end: int) -> Callable[[Any], tuple[int, int, float]]:
    index = _index(end)

    def read(value: Any) -> tuple[int, int, float]:
        if not (isinstance(value, list | tuple) and len(value) == 3):  # noqa: PLR2004 - first, second, scale
            raise Refused("A contrast is two places of the observation and a scale.")
        return index(value[0]), index(value[1]), _number(value[2], "scale of a contrast")

    return read


def _approach(end: int) -> Callable[[Any], tuple[int, int, int, float, float]]:
    index = _index(end)

    def read(value: Any) -> tuple[int, int, int, float, float]:
        if not (isinstance(value, list | tuple) and len(value) == 5):  # noqa: PLR2004 - three places, scale, floor
            raise Refused("An approach is three places of the observation, a scale and a floor.")
        scale, floor = _number(value[3], "scale of an approach"), _number(value[4], "floor of an approach")
        if floor <= 0.0:
            raise Refused("The floor of an approach must be positive: the gap divides.")
        return index(value[0]), index(value[1]), index(value[2]), scale, floor

    return read


_count = _index(1 << 53)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Refused("true or false was expected.")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Refused("A text was expected.")
    return value


def _plain(value: Any) -> Any:
    """Tuples become lists, as JSON will give them back: what is compared with a file must look like the file."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value
