"""Several ways to act in the same worlds, side by side: what they returned and cost, and how careful they were."""

from collections.abc import Sequence

from ashore.experiments.demo_plan import BASELINE, CALIBRATED, NEUTRAL
from ashore.experiments.report_axes import Axis
from ashore.experiments.report_charts import Look, Rule, Series, draw
from ashore.experiments.report_parts import Block, Cell, Column, Heading, Noted, Sentences, cell, charts, real, table
from ashore.experiments.report_sources import Content

_TONES = {CALIBRATED: 0, NEUTRAL: 1, BASELINE: 7}
"""A way has the same colour in every show, whatever is missing beside it."""


def comparison(found: Content | None) -> list[Block]:
    """The section; nothing where nothing was compared."""
    if found is None:
        return []
    blocks: list[Block] = [Sentences([str(remark) for remark in found.get("remarks", [])])]
    for show in found["shows"]:
        times = f"{show['episodes']} episode{'s' if show['episodes'] > 1 else ''} each"
        blocks.append(Heading(f"{show['task']}, {show['worlds']} worlds of the shift '{show['shift']}', {times}"))
        blocks += [Sentences([str(sentence) for sentence in show["sentences"]])]
        blocks += [*_table(show), *_curves(show)]
    return [block for block in blocks if not (isinstance(block, Sentences) and not block.sentences)]


def _table(show: Content) -> list[Block]:
    limit = show["budget_per_episode"]
    columns = [
        Column("way", numeric=False),
        Column("return", "per episode"),
        Column("cost", "per episode"),
        Column("budget", "per episode"),
        Column("worlds under the budget"),
        *(Column(name) for name in ("eta, first", "eta, last", "spread, first", "spread, last")),
    ]
    rows = []
    for way in show["ways"]:
        cost, curves = way["mean_cost"], way["mean_over_worlds"]
        ends = [
            real(curves[name][place]) if name in curves else None for name in ("eta", "spread") for place in (0, -1)
        ]
        rows.append(
            [
                way["label"],
                real(way["mean_return"]),
                Noted(cost, "over") if cost > limit else cost,
                real(limit),
                _share(way["worlds_under_budget"], way["worlds"]),
                *ends,
            ]
        )
    return table("Means over the worlds", columns, rows)


def _share(number: int, whole: int) -> Cell:
    return cell(number, note=f"of {whole}")


def _curves(show: Content) -> list[Block]:
    x, limit = Axis("decisions since the world was met"), show["budget_per_episode"]

    def lines(name: str) -> list[Series]:
        return [
            Series(way["label"], _numbers(values), values, _TONES.get(way["way"], place), _look(way["way"]), key=place)
            for place, way in enumerate(show["ways"])
            if (values := way["mean_over_worlds"].get(name))
        ]

    eta, spread, spent = lines("eta"), lines("spread"), lines("spent")
    rules = [Rule(limit, f"budget {limit:g}")]
    return charts(
        [
            (draw("Cost of the episode so far", x, Axis("mean over worlds", zero=True), spent, rules=rules), spent),
            (draw("Risk level, eta", x, Axis("mean over worlds", zero=True, reach=(1.0,)), eta), eta),
            (draw("Posterior spread", x, Axis("mean over worlds", zero=True, reach=(1.0,)), spread), spread),
        ]
    )


def _look(way: str) -> Look:
    return "dashed" if way == BASELINE else "line"


def _numbers(values: Sequence[float]) -> list[float]:
    return [float(number) for number in range(1, len(values) + 1)]
