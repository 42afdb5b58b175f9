"""A calibration in charts and tables: the schedule, the tables behind it, the theorem's bound beside what was realised.

Costs are per episode; what the file holds in the discounted unit is multiplied by their ratio, which the page names.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ashore.experiments.report_axes import Axis, Number
from ashore.experiments.report_charts import Chart, Rule, Series, draw
from ashore.experiments.report_parts import (
    Block,
    Cell,
    Column,
    Facts,
    Folded,
    Heading,
    Noted,
    Sentences,
    cell,
    charts,
    real,
    reals,
    spelt,
    table,
)
from ashore.experiments.report_sources import Content, Run
from ashore_runtime.schema import PERCENTILES

_COUNTS = Axis("transitions seen, N", "counts")
_COST = Axis("cost per episode", zero=True)
_REALISED = {"scheduled": "by the schedule", "neutral": "at eta = 0"}
_BELIEF = {"mean": "mean", "bound": "level"}

Drawn = tuple[Chart | None, Sequence[Series]]


def calibration(runs: Sequence[Run]) -> list[Block]:
    """The section: run by run and seed by seed."""
    there = [(_whose(runs, run, found.seed), found) for run in runs for found in run.calibrations if found.content]
    if len(there) == 1:
        return _one(_Tables(there[0][1].content or {}), there[0][1].change)
    whole = {name: _Tables(found.content or {}) for name, found in there}
    return [
        *charts([_schedules(whole)]),
        *_coverage(whole),
        *(Folded(f"All of {name}", _one(_Tables(found.content or {}), found.change)) for name, found in there),
    ]


def frontier(runs: Sequence[Run]) -> list[Block]:
    """The section on every way to be careful."""
    there = [(_whose(runs, run, found.seed), found) for run in runs for found in run.calibrations if found.frontier]
    blocks: list[Block] = []
    for name, found in there:
        blocks += [Heading(name)] if len(there) > 1 else []
        blocks += _ways(found.frontier or {})
    return blocks


def _whose(runs: Sequence[Run], run: Run, seed: str) -> str:
    return f"{run.name}, {spelt(seed)}" if len(runs) > 1 else spelt(seed)


class _Tables(NamedTuple):
    """What a calibration's file holds, in the unit of the page."""

    content: Content

    @property
    def counts(self) -> list[float]:
        return [float(count) for count in self.content["counts"]]

    @property
    def limit(self) -> float:
        return self.content["budget"]["per_episode"]

    @property
    def factor(self) -> float:
        """Episode cost per unit of discounted cost."""
        return self.limit / self.content["budget"]["discounted"]

    @property
    def level(self) -> str:
        return f"level {self.content['level']:g}" if "level" in self.content else "level"

    def per_episode(self, values: Sequence[Any]) -> list[Number]:
        return [None if value is None else value * self.factor for value in reals(values)]

    def by_count(self, name: str, values: Sequence[Any], key: int, error: Sequence[Number] | None = None) -> Series:
        return Series(name, self.counts, reals(values), key, key=key, error=error)

    def error(self, name: str) -> list[Number] | None:
        """Standard errors of a table that carries a cost."""
        found = self.content.get("standard_errors", {})
        return self.per_episode(found[name]) if name in found else None

    @property
    def bound(self) -> list[Number] | None:
        """The theorem's."""
        return self.per_episode(self.content["theorem_bound"]) if "theorem_bound" in self.content else None

    @property
    def unknown(self) -> list[Number]:
        """L_c epsilon, the part of the bound that is not the budget."""
        bound = self.bound or [None] * len(self.counts)
        return [None if value is None else value - self.limit for value in bound]


def _one(tables: _Tables, change: Content | None) -> list[Block]:
    content = tables.content
    assumed = [str(sentence) for sentence in content.get("assumptions", ())]
    marked = [str(n) for n, bad in zip(content["counts"], content["infeasible"], strict=True) if bad]
    warning = f"Infeasible at N = {', '.join(marked)}: no risk level of the grid is enough there by this rule."
    return [
        Facts(_facts(tables, change)),
        *([Sentences([warning])] if marked else []),
        *charts([_schedule(content, tables.counts)]),
        *charts([_realised(tables)]),
        *charts([_latent_error(tables), _sensitivity(tables), _unknown(tables)]),
        *charts([_reduction(tables)]),
        *_table(tables),
        *_coverage({"": tables}),
        *([Folded("What was assumed", [Sentences(assumed, listed=True)])] if assumed else []),
    ]


def _facts(tables: _Tables, change: Content | None) -> list[tuple[str, Cell]]:
    content, budget = tables.content, tables.content["budget"]
    rule = ": ".join(str(content[key]) for key in ("rule", "rule_meaning") if key in content)
    rows: list[tuple[str, Any]] = [
        ("rule", rule),
        ("level of every quantile", real(content.get("level"))),
        ("all together, by the union bound", real(content.get("joint_level"))),
        ("caution", content.get("caution")),
        ("budget per episode", real(budget["per_episode"])),
        ("budget, discounted", real(budget["discounted"])),
        ("episode cost per unit of discounted cost", tables.factor),
        ("evidence counts so many times", real(content.get("tempering"))),
        ("alarm of the change detector, CUSUM", real(((change or {}).get("change") or {}).get("threshold"))),
    ]
    return [(name, cell(value)) for name, value in rows if value is not None and value != ""]


def _schedules(whole: Mapping[str, _Tables]) -> Drawn:
    series = [
        Series(name, tables.counts, reals(tables.content["eta"]), number, key=number, stepped=True)
        for number, (name, tables) in enumerate(whole.items())
    ]
    axis = Axis("risk level", zero=True, reach=(1.0,))
    return draw("Risk schedules, eta(N)", _COUNTS, axis, series, size="wide"), series


def _schedule(content: Content, counts: list[float]) -> Drawn:
    rule = content.get("rule", "")
    others = {name: found for name, found in content.get("schedule", {}).get("by_rule", {}).items() if name != rule}
    world = content.get("world") or {}
    for place, share in enumerate(PERCENTILES if world else ()):
        others[f"{rule}, {share} % of worlds"] = {"eta": [row[place] for row in world["eta_percentiles"]]}
    # The dotted ones first: where they coincide, the one that is used lies on top.
    series = [
        Series(f"rule {name}", counts, reals(found["eta"]), key, "dotted", key, stepped=True)
        for key, (name, found) in enumerate(others.items(), start=1)
    ]
    bad = [eta if marked else None for eta, marked in zip(content["eta"], content["infeasible"], strict=True)]
    name = f"rule {rule}, {'a typical world' if world else 'used'}"
    used = Series(name, counts, reals(content["eta"]), 0, key=0, stepped=True)
    series = [*series, used, Series("infeasible", counts, reals(bad), 1 + len(others), "dots", 1 + len(others))]
    axis = Axis("risk level", zero=True, reach=(1.0,))
    return draw("Risk schedule, eta(N)", _COUNTS, axis, series, size="wide"), [used, *series]


def _realised(tables: _Tables) -> Drawn:
    content, series = tables.content, list[Series]()
    if tables.bound is not None:
        series.append(tables.by_count("the theorem's bound: budget + L_c epsilon", tables.bound, 3))
    for key, (name, word) in enumerate(_BELIEF.items(), start=4):
        if name in content.get("neutral_cost", {}):
            words = f"belief held, eta = 0, {tables.level if word == 'level' else word}"
            series.append(tables.by_count(words, tables.per_episode(content["neutral_cost"][name]), key))
    for key, (name, words) in zip((0, 1), _REALISED.items(), strict=True):
        if "cost_by_count" in content["coverage"].get(name, {}):
            values = tables.per_episode(content["coverage"][name]["cost_by_count"])
            series.append(tables.by_count(f"realised {words}, mean", values, key))
    rules = [Rule(tables.limit, f"budget {tables.limit:g}")]
    return draw("Realised cost beside the theorem's bound", _COUNTS, _COST, series, rules=rules, size="wide"), series


def _latent_error(tables: _Tables) -> Drawn:
    content = tables.content
    errors = content.get("standard_errors", {}).get("epsilon")
    series = [tables.by_count(f"epsilon(N), {tables.level}", content["epsilon"], 0, errors and reals(errors))]
    if "spread" in content:
        series.append(tables.by_count("widest posterior spread", content["spread"], 1))
    return draw("Latent error", _COUNTS, Axis("latent", zero=True), series), series


def _unknown(tables: _Tables) -> Drawn:
    per_episode = tables.content["per_episode"]
    direct = tables.by_count(f"|dJ_c|(N) measured, {tables.level}", per_episode["direct"], 2, tables.error("direct"))
    series = [direct, tables.by_count("L_c epsilon", tables.unknown, 3)]
    floor = real(per_episode.get("noise_floor"))
    rules = [] if floor is None else [Rule(floor, f"noise floor {floor:.3g}")]
    return draw("What not knowing the world costs", _COUNTS, _COST, series, rules=rules), series


def _sensitivity(tables: _Tables) -> Drawn:
    values = tables.content["per_episode"]["lipschitz"]
    series = [tables.by_count(f"L_c(N), {tables.level}", values, 4, tables.error("lipschitz"))]
    axis = Axis("episode cost per unit of latent", zero=True)
    return draw("Cost sensitivity to the latent", _COUNTS, axis, series), series


def _reduction(tables: _Tables) -> Drawn:
    """Delta_c against eta, mean and bound, for the counts at which it was measured."""
    content = tables.content
    etas, means = [float(eta) for eta in content["etas"]], content.get("mean_delta", {})
    series: list[Series] = []
    for row, count in enumerate(means.get("counts", ())):
        mean, error = (tables.per_episode(means[key][row]) for key in ("value", "standard_error"))
        low = reals(content["per_episode"]["delta"][content["counts"].index(count)])
        series.append(Series(f"N = {count}, mean", etas, mean, row, key=2 * row, error=error))
        series.append(Series(f"N = {count}, {tables.level}", etas, low, row, "dashed", 2 * row + 1))
    x, y = Axis("risk level, eta"), Axis("drop of the cost per episode", reach=(0.0,))
    return draw("Cost reduction by caution, Delta_c(eta | N)", x, y, series, size="wide"), series


def _table(tables: _Tables) -> list[Block]:
    content, per_episode = tables.content, tables.content["per_episode"]
    columns = [
        Column("N", "transitions"),
        Column("eta(N)"),
        Column("epsilon", "latent"),
        Column("L_c", "cost / latent"),
        Column("|dJ_c|", "per episode"),
        Column("L_c epsilon", "per episode"),
        Column("largest Delta_c", "per episode"),
        Column("widest spread", "latent"),
    ]
    rows = []
    for place, count in enumerate(content["counts"]):
        eta = float(content["eta"][place])
        gains = [gain for gain in reals(per_episode["delta"][place]) if gain is not None]
        rows.append(
            [
                count,
                Noted(eta, "infeasible") if content["infeasible"][place] else eta,
                real(content["epsilon"][place]),
                real(per_episode["lipschitz"][place]),
                real(per_episode["direct"][place]),
                tables.unknown[place],
                max(gains, default=None),
                real(content["spread"][place]) if "spread" in content else None,
            ]
        )
    return table("The tables and the schedule; costs per episode", columns, rows)


def _coverage(whole: Mapping[str, _Tables]) -> list[Block]:
    """How many unseen worlds stayed under the budget, of one calibration or of several by name."""
    columns = [
        Column("calibration", numeric=False),
        Column("in unseen worlds", numeric=False),
        Column("worlds"),
        Column("under the budget", "worlds"),
        Column("share"),
        Column("at least", "share"),
        Column("in the first episode", "share"),
        Column("mean cost", "per episode"),
        Column("return", "per episode"),
        Column("decisions refined", "share"),
        Column("diverged", "worlds"),
    ]
    rows = []
    for name, tables in whole.items():
        for key, words in _REALISED.items():
            found = tables.content["coverage"].get(key)
            if not found:
                continue
            (cost,) = tables.per_episode([found.get("mean_cost")])
            rows.append(
                [
                    name,
                    words,
                    found.get("worlds"),
                    found.get("covered"),
                    *(real(found.get(part)) for part in ("share", "lower_bound")),
                    real(found.get("first_episode", {}).get("share")),
                    Noted(cost, "over") if cost is not None and cost > tables.limit else cost,
                    real(found.get("episode_return")),
                    real(found.get("trigger_rate")),
                    found.get("diverged"),
                ]
            )
    limits = ", ".join(f"{limit:g}" for limit in sorted({tables.limit for tables in whole.values()}))
    found = [real(part.get("confidence")) for tables in whole.values() for part in tables.content["coverage"].values()]
    levels = "".join(f"; 'at least' holds with confidence {level:g}" for level in sorted({v for v in found if v}))
    caption = f"Coverage: worlds whose mean cost stayed under the budget of {limits} per episode{levels}"
    return table(caption, columns, rows)


def _ways(content: Content) -> list[Block]:
    curves, limit, settings = content["curves"], content["budget"]["per_episode"], content.get("settings", {})
    drawn: list[Drawn] = []
    for shift in dict.fromkeys(shift for by_shift in curves.values() for shift in by_shift):
        series = [
            _way(way, by_shift[shift], number)
            for number, (way, by_shift) in enumerate(curves.items())
            if shift in by_shift
        ]
        axes, rules = (_COST, Axis("return per episode")), [Rule(limit, f"budget {limit:g}", "x")]
        drawn.append((draw(spelt(shift).capitalize(), *axes, series, rules=rules), series))
    etas = ", ".join(f"{eta:g}" for eta in settings.get("etas", ()))
    sentence = (
        f"Each point of a line is a deployment at one risk level (eta = {etas}), in the same worlds for all: "
        f"{settings.get('environments')} per shift x {settings.get('episodes')} episodes."
    )
    return [*([Sentences([sentence])] if etas else []), *charts(drawn), *_ways_table(content)]


def _way(name: str, curve: Content, number: int) -> Series:
    """One way to be careful; all begin at the same point, that of eta = 0, which is named once."""
    kept = [place for place, cost in enumerate(reals(curve["episode_cost"])) if cost is not None]

    def column(key: str) -> list[Any]:
        return [real(curve[key][place]) for place in kept] if key in curve else [None] * len(kept)

    costs, errors = column("episode_cost"), column("cost_error")
    spans = [(None, None) if e is None else (cost - e, cost + e) for cost, e in zip(costs, errors, strict=True)]
    names = ["eta = 0" if place == 0 and number == 0 else "" for place in kept]
    returns, error = column("episode_return"), column("return_error")
    return Series(name, costs, returns, number, key=number, error=error, x_interval=spans, names=names)


def _ways_table(content: Content) -> list[Block]:
    columns = [
        Column("way to be careful", numeric=False),
        Column("shift", numeric=False),
        Column("eta"),
        Column("cost", "per episode"),
        Column("± error", "of the mean"),
        Column("return", "per episode"),
        Column("± error", "of the mean"),
        Column("decisions refined", "share"),
    ]
    shown = ("episode_cost", "cost_error", "episode_return", "return_error", "triggered")
    rows = [
        [way, shift, float(eta), *(real(curve[name][place]) if name in curve else None for name in shown)]
        for way, by_shift in content["curves"].items()
        for shift, curve in by_shift.items()
        for place, eta in enumerate(content.get("settings", {}).get("etas", ()))
    ]
    found = table("Every point, with standard errors over worlds", columns, rows)
    return [Folded("All numbers", found)] if found else []
