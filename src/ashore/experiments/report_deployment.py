"""Deployments in charts and tables: what was spent, how careful the policy was and how long it took, by decision."""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ashore.experiments.report_axes import Axis, Number
from ashore.experiments.report_charts import Chart, Look, Mark, Rule, Series, draw
from ashore.experiments.report_parts import (
    Block,
    Cell,
    Column,
    Facts,
    Heading,
    Noted,
    Sentences,
    cell,
    charts,
    real,
    spelt,
    table,
)
from ashore.experiments.report_sources import Content, Deployment

_CHOSEN = ("nominal", "refined")
"""Sources of actions that are the policy's own."""


def deployments(found: Sequence[Deployment]) -> list[Block]:
    """The section."""
    blocks: list[Block] = []
    for one in found:
        blocks += [Heading(one.label)] if len(found) > 1 else []
        blocks += [Facts(_facts(one.summary)), *_timeline(one), *_episodes(one.summary), *_reasons(one.decisions)]
    return blocks


def _facts(summary: Content) -> list[tuple[str, Cell]]:
    limit, mean = summary["budget_per_episode"], real(summary.get("mean_cost"))
    cost = None if mean is None else Noted(mean, f"of {limit:g} per episode")
    latency = summary.get("latency_ms", {})
    rows: list[tuple[str, Any]] = [
        ("world", summary.get("env") or ", ".join(str(summary[key]) for key in ("task", "shift") if summary.get(key))),
        ("mean return per episode", real(summary.get("mean_return"))),
        ("mean cost", cost),
        ("episodes over the budget", _of(summary.get("episodes_over_budget"), len(summary["episodes"]))),
        ("decisions refined", _of(summary.get("refined"), summary["decisions"])),
        ("refinement steps", summary.get("refinement_steps")),
        *((f"latency {name}", cell(real(value), note="ms")) for name, value in latency.items()),
        ("deadlines missed", _of(summary.get("deadlines_missed"), summary["decisions"])),
        ("held or fallback", _of(summary.get("held_or_fallback"), summary["decisions"])),
        ("changes detected", summary.get("changes_detected")),
    ]
    return [(name, cell(value)) for name, value in rows if value is not None and value != ""]


def _of(number: int | None, whole: int) -> Cell | None:
    return None if number is None else cell(number, note=f"of {whole:,}")


def _timeline(one: Deployment) -> list[Block]:
    rows, summary = one.decisions, one.summary
    if not rows:
        return []
    decisions = [float(number) for number in range(1, len(rows) + 1)]
    marks = [
        Mark(number + 0.5, "episode")
        for number, (row, following) in enumerate(itertools.pairwise(rows), start=1)
        if row.get("episode") != following.get("episode")
    ]
    marks += [Mark(float(number), "change") for number, row in enumerate(rows, start=1) if row.get("changed")]
    limit, period = summary["budget_per_episode"], real(summary.get("control_period"))
    x = Axis("decisions")

    def values(name: str) -> list[Number]:
        return [real(row.get(name)) for row in rows]

    def strip(
        title: str, axis: Axis, series: list[Series], rules: Sequence[Rule] = ()
    ) -> tuple[Chart | None, list[Series]]:
        return draw(title, x, axis, series, rules=rules, marks=marks, size="strip"), []

    def line(name: str, tone: int, look: Look = "line", stepped: bool = False) -> list[Series]:
        return [Series(name, decisions, values(name), tone, look, stepped=stepped)]

    deadline = [Rule(1000.0 * period, f"control period {1000.0 * period:g} ms")] if period else []
    spent = Axis("since it began", zero=True), _so_far(rows), [Rule(limit, f"budget {limit:g}")]
    drawn = charts(
        [
            strip("Cost of the episode", *spent),
            strip("Risk level, eta", Axis("", zero=True, reach=(1.0,)), line("eta", 6, stepped=True)),
            strip("Posterior spread", Axis("standard deviation, mean over the latent", zero=True), line("spread", 0)),
            strip("Refinement steps", Axis("per decision", "whole", zero=True), line("steps", 2, "specks")),
            strip("Latency", Axis("ms", "log"), line("latency_ms", 3, "specks"), deadline),
        ]
    )
    said = "Thin lines part the episodes" + (
        "; strong ones mark where the world was found to have changed."
        if any(row.get("changed") for row in rows)
        else "."
    )
    return [*([Sentences([said])] if marks else []), *drawn]


def _so_far(rows: Sequence[Content]) -> list[Series]:
    """Cost since the episode began, a line for each so that none falls back to zero."""
    series: list[Series] = []
    for episode, lines in itertools.groupby(enumerate(rows, start=1), key=lambda numbered: numbered[1].get("episode")):
        numbered = list(lines)
        costs = itertools.accumulate(real(row.get("cost")) or 0.0 for _, row in numbered)
        series.append(Series(f"episode {episode}", [float(number) for number, _ in numbered], list(costs), 1))
    return series


def _episodes(summary: Content) -> list[Block]:
    episodes, limit = summary["episodes"], summary["budget_per_episode"]
    metrics = list(dict.fromkeys(name for episode in episodes for name in episode.get("metrics", {})))
    in_each = summary.get("episodes_per_world")
    columns = [
        Column("episode"),
        Column("world"),
        Column("return"),
        Column("cost"),
        Column("cost / budget"),
        Column("mean eta"),
        Column("decisions"),
        *(Column(spelt(name)) for name in metrics),
        Column("diverged", numeric=False),
    ]
    rows = []
    for number, episode in enumerate(episodes, start=1):
        share = episode["cost"] / limit
        rows.append(
            [
                number,
                (number - 1) // in_each + 1 if in_each else None,
                real(episode.get("return")),
                real(episode.get("cost")),
                Noted(share, "over") if share > 1 else share,
                real(episode.get("mean_eta")),
                episode.get("decisions"),
                *(real(episode.get("metrics", {}).get(name)) for name in metrics),
                "diverged" if episode.get("diverged") else None,
            ]
        )
    return table(f"Episodes; budget {limit:g} per episode", columns, rows)


def _reasons(rows: Sequence[Content]) -> list[Block]:
    """Who chose the actions and why, where it was not simply the policy."""
    said = Counter((str(row.get("source", "")), str(row.get("mode", "")), str(row.get("reasons", ""))) for row in rows)
    if all(source in (*_CHOSEN, "") and not reasons for source, _, reasons in said):
        return []
    columns = [Column(name, numeric=False) for name in ("action", "mode", "reasons")]
    counted = [[source, mode, reasons or "none", number] for (source, mode, reasons), number in said.most_common()]
    return table("Where actions came from", [*columns, Column("decisions")], counted)
