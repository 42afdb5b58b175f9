"""Evaluation in charts and tables: return against cost with the budget, every estimate with its interval."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ashore.experiments.report_axes import Axis
from ashore.experiments.report_charts import Chart, Rule, Series, draw
from ashore.experiments.report_parts import (
    Block,
    Column,
    Folded,
    Heading,
    Noted,
    Sentences,
    charts,
    estimated,
    interval,
    real,
    reals,
    spelt,
    table,
)
from ashore.experiments.report_sources import Content, Limit, Run
from ashore.experiments.suite_evaluation import OWN

LOWEST_R2 = -0.25
"""A probe that is worse than the mean says no more when it is much worse."""
_NAMED_POINTS = 8
"""So many points of several methods have one panel, with their shifts beside them; more have a panel for each shift."""
_ESTIMATE = "mean ± deviation, [95 % interval]"

Drawn = tuple[Chart | None, Sequence[Series]]


class Measured(NamedTuple):
    """One method under one shift."""

    method: str
    number: int
    """Of the method's colour."""
    shift: str
    result: Content
    limit: Limit | None


def evaluation(runs: Sequence[Run]) -> list[Block]:
    """The section: tasks apart, and what was measured under attack apart from what was not."""
    there = [(run, stem) for run in runs for stem in run.evaluations]
    groups = list(dict.fromkeys((run.task, stem) for run, stem in there))
    several_tasks = len({task for task, _ in groups}) > 1
    blocks: list[Block] = []
    for task, stem in groups:
        words = [word for word in (task if several_tasks else "", _beyond(stem)) if word]
        blocks += [Heading(", ".join(words))] if words else []
        blocks += _group([run for run, kind in there if (run.task, kind) == (task, stem)], stem)
    return blocks


def _beyond(stem: str) -> str:
    """What the name of an evaluation's file says beyond `evaluation`."""
    return spelt(stem.removeprefix("evaluation")).strip().capitalize()


def _group(runs: list[Run], stem: str) -> list[Block]:
    measured = [
        Measured(run.name, run.number, shift, result, run.limit)
        for run in runs
        for shift, result in run.evaluations[stem]["shifts"].items()
    ]
    protocols = dict.fromkeys(_protocol(run.evaluations[stem].get("protocol", {})) for run in runs)
    if any(one.shift == OWN for one in measured):
        protocols[f"'{OWN}' are draws of the ranges that each method was trained in."] = None
    latents = [(run.name, _latent(run.evaluations[stem]["shifts"])) for run in runs]
    folded: list[Block] = []
    for name, blocks in latents:
        folded += [Heading(name)] if len(runs) > 1 and blocks else []
        folded += blocks
    return [
        Sentences([sentence for sentence in protocols if sentence]),
        *_drawn(measured),
        *_caution(measured),
        *_table(measured),
        *([Folded("What the latent knows after N transitions", folded)] if folded else []),
    ]


def _protocol(protocol: Content) -> str:
    if not {"environments", "episodes"} <= set(protocol):
        return ""
    attack = protocol.get("attack", "none")
    disturbed = "" if attack == "none" else f"An attacker who maximises {attack} disturbs what the policy sees. "
    return (
        f"{protocol['environments']} worlds per shift x {protocol['episodes']} episodes, adaptation from the prior "
        f"included. {disturbed}Deviations are across worlds, intervals bootstraps of the mean over worlds and seeds."
    )


def _drawn(measured: Sequence[Measured]) -> list[Block]:
    """One method has one panel with a colour per shift; of several each has a colour."""
    methods = list(dict.fromkeys(one.method for one in measured))
    shifts = list(dict.fromkeys(one.shift for one in measured))
    if len(methods) == 1:
        points = [_points(one.shift, [one], shifts.index(one.shift)) for one in measured]
        lines = [_line(one, one.shift, shifts.index(one.shift)) for one in measured]
        return charts(
            [
                (_panel("Return against cost", points, measured), points),
                (_episodes("Cost by episode in the same world", lines, measured), []),
            ]
        )
    of_shift = {shift: [one for one in measured if one.shift == shift] for shift in shifts}
    if len(measured) <= _NAMED_POINTS:
        of_method = {method: [one for one in measured if one.method == method] for method in methods}
        points = [_points(method, mine, mine[0].number, named=True) for method, mine in of_method.items()]
        drawn: list[Drawn] = [(_panel("Return against cost", points, measured), points)]
    else:
        drawn = []
        for shift, mine in of_shift.items():
            points = [_points(one.method, [one], one.number) for one in mine]
            drawn.append((_panel(spelt(shift).capitalize(), points, measured), points))
    # The legend names whose line it is by the points.
    for shift, mine in of_shift.items():
        lines = [_line(one, one.method, one.number) for one in mine]
        drawn.append((_episodes(f"{spelt(shift).capitalize()}, by episode", lines, measured), []))
    return charts(drawn)


def _caution(measured: Sequence[Measured]) -> list[Block]:
    """How careful each method was while it collected transitions, a panel for each that was, a line for each shift."""
    shifts = list(dict.fromkeys(one.shift for one in measured))
    drawn: list[Drawn] = []
    for method in dict.fromkeys(one.method for one in measured):
        lines = [
            Series(
                spelt(one.shift),
                [float(number) for number in eta["decisions"]],
                reals(eta["mean"]),
                shifts.index(one.shift),
                key=shifts.index(one.shift),
            )
            for one in measured
            if one.method == method and (eta := one.result.get("eta", {})).get("decisions")
        ]
        title = "Risk level, eta" if len({one.method for one in measured}) == 1 else f"{method}, risk level eta"
        x = Axis("transitions collected in this world", "log")
        drawn.append((draw(title, x, Axis("mean over worlds", zero=True, reach=(1.0,)), lines), lines))
    return charts(drawn)


def _points(name: str, measured: Sequence[Measured], number: int, named: bool = False) -> Series:
    # A point without a cost has no place: it is left out like one without a return.
    there = [one for one in measured if real(one.result["episode_cost"].get("mean")) is not None]
    costs = [one.result["episode_cost"] for one in there]
    returns = [one.result["episode_return"] for one in there]
    return Series(
        name,
        [cost["mean"] for cost in costs],
        [real(gain.get("mean")) for gain in returns],
        number,
        "dots",
        key=number,
        interval=[interval(gain) or (None, None) for gain in returns],
        x_interval=[interval(cost) or (None, None) for cost in costs],
        names=[spelt(one.shift) if named else "" for one in there],
    )


def _panel(title: str, series: Sequence[Series], measured: Sequence[Measured]) -> Chart | None:
    """Panels beside each other have the same axes, which reach over everything that was measured."""

    def axis(name: str, label: str, zero: bool) -> Axis:
        return Axis(label, zero=zero, reach=tuple(end for one in measured for end in interval(one.result[name]) or ()))

    axes = axis("episode_cost", "cost per episode", True), axis("episode_return", "return per episode", False)
    return draw(title, *axes, series, rules=_budget(measured, "x"))


def _budget(measured: Sequence[Measured], along: Literal["x", "y"]) -> list[Rule]:
    limits = sorted({one.limit.per_episode for one in measured if one.limit})
    return [Rule(limit, f"budget {limit:g}", along) for limit in limits]


def _line(one: Measured, name: str, number: int) -> Series:
    costs = reals(one.result.get("cost_by_episode", ()))
    # A single episode is no line.
    costs = costs if len(costs) > 1 else []
    return Series(name, [float(episode) for episode in range(1, len(costs) + 1)], costs, number, key=number)


def _episodes(title: str, lines: Sequence[Series], measured: Sequence[Measured]) -> Chart | None:
    """Cost from one episode to the next: what adapting is worth."""
    y = Axis("cost per episode", zero=True)
    return draw(title, Axis("episode", "whole"), y, lines, rules=_budget(measured, "y"))


def _table(measured: Sequence[Measured]) -> list[Block]:
    several = len({one.method for one in measured}) > 1
    metrics = list(dict.fromkeys(name for one in measured for name in one.result.get("metrics", {})))
    columns = [
        Column("shift", numeric=False),
        *([Column("method", numeric=False)] if several else []),
        Column("return", "per episode"),
        Column("cost", "per episode"),
        Column("cost / budget"),
        Column("first episode's cost"),
        *(Column(spelt(name)) for name in metrics),
        Column("diverged", "worlds"),
    ]
    rows = []
    shifts = list(dict.fromkeys(one.shift for one in measured))
    for one in sorted(measured, key=lambda one: shifts.index(one.shift)):
        mean = real(one.result["episode_cost"].get("mean"))
        share = mean / one.limit.per_episode if one.limit and mean is not None else None
        rows.append(
            [
                one.shift,
                *([one.method] if several else []),
                estimated(one.result["episode_return"]),
                estimated(one.result["episode_cost"]),
                Noted(share, "over") if share is not None and share > 1 else share,
                estimated(one.result.get("first_cost", {})),
                *(estimated(one.result.get("metrics", {}).get(name, {})) for name in metrics),
                one.result.get("diverged"),
            ]
        )
    limits = sorted({one.limit for one in measured if one.limit})
    said = [f"budget {limit.per_episode:g} per episode, from {limit.source}" for limit in limits]
    return table("; ".join([_ESTIMATE, *said]), columns, rows)


def _latent(shifts: Content) -> list[Block]:
    """Distance from where the latent ends up, and what a linear probe reads from it."""
    counts = sorted({count for result in shifts.values() for count in result.get("latent_error", {})}, key=int)
    quantities = dict.fromkeys(
        name for result in shifts.values() for by in result.get("probes", {}).values() for name in by
    )
    drawn = [_over_counts(shifts, counts, "Distance from where it ends up", Axis("latent", zero=True), _distance)]
    for name in quantities:
        axis = Axis(f"R² (below {LOWEST_R2:g} drawn there)", least=LOWEST_R2, reach=(0.0, 1.0))

        def read(result: Content, count: str, name: str = name) -> Any:
            return result.get("probes", {}).get(count, {}).get(name)

        drawn.append(_over_counts(shifts, counts, f"Probe of {spelt(name)}", axis, read))
    return charts(drawn)


def _distance(result: Content, count: str) -> Any:
    return result.get("latent_error", {}).get(count)


def _over_counts(
    shifts: Mapping[str, Content], counts: Sequence[str], title: str, axis: Axis, read: Callable[[Content, str], Any]
) -> Drawn:
    places = [float(count) for count in counts]
    series = [
        Series(shift, places, [real(read(result, count)) for count in counts], number, key=number)
        for number, (shift, result) in enumerate(shifts.items())
    ]
    return draw(title, Axis("transitions seen, N", "counts"), axis, series), series
