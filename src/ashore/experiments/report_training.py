"""Training in charts: one thin line per seed and one for the mean, by metric; several runs in one chart by colour."""

from collections.abc import Sequence

from ashore.experiments.records import Row
from ashore.experiments.report_axes import Axis
from ashore.experiments.report_charts import Chart, Rule, Series, draw
from ashore.experiments.report_evaluation import LOWEST_R2
from ashore.experiments.report_parts import (
    Block,
    Column,
    Folded,
    Heading,
    Noted,
    Sentences,
    charts,
    real,
    spelt,
    table,
)
from ashore.experiments.report_sources import Run

_HEADLINES = {
    "episode_return": ("Return", "per episode"),
    "episode_cost": ("Cost", "per episode"),
    "multiplier": ("Multiplier", "lambda"),
    "kl": ("KL of the posterior from the prior", "nats"),
}
_EPISODES = {"episode_return", "episode_cost"}
_PROBE, _LOSS = "probe_", "loss"
_INK = -1
"""Colour of text."""

Drawn = tuple[Chart | None, Sequence[Series]]


def training(runs: Sequence[Run]) -> list[Block]:
    """The section of one run, or of several side by side; runs of different tasks are kept apart."""
    there = [run for run in runs if run.rows]
    names = list(dict.fromkeys(run.task for run in there))
    blocks: list[Block] = []
    for name in names:
        mine = [run for run in there if run.task == name]
        blocks += [Heading(name or "Of no named task")] if len(names) > 1 else []
        blocks += _of_task(mine)
    return blocks


def _of_task(runs: list[Run]) -> list[Block]:
    metrics = list(dict.fromkeys(name for run in runs for name in _metrics(run)))
    probes = [name for name in metrics if name.startswith(_PROBE)]
    losses = [name for name in metrics if _LOSS in name]
    first = [name for name in _HEADLINES if name in metrics] + probes
    others = [name for name in metrics if name not in (*first, *losses)]
    drawn = charts(_chart(runs, name) for name in (*first, *losses))
    if not drawn:
        return []
    sentences = ["Return and cost are of the worlds without action noise."] if _EPISODES & set(first) else []
    if any(_are_seeds(run) and _count(run) > 1 for run in runs):
        sentences.append("Pale lines are seeds, strong ones their mean.")
    if runs[0].limit is not None and "episode_cost" in first:
        sentences.append(f"The budget is that of {runs[0].limit.source}.")
    folded = charts(_chart(runs, name) for name in others)
    last = [block for run in runs for block in _last(run, [*first, *losses], with_name=len(runs) > 1)]
    return [
        *([Sentences([" ".join(sentences)])] if sentences else []),
        *drawn,
        *(last if len(runs) == 1 else [Folded("The last row of every run", last)]),
        *([Folded("Everything else that was recorded", folded)] if folded else []),
    ]


def _metrics(run: Run) -> list[str]:
    """Those with a place for every seed and a number in some of them."""
    count = _count(run)
    lists = dict.fromkeys(name for row in run.rows for name, value in row.items() if isinstance(value, list))
    return [name for name in lists if any(v is not None for row in run.rows for v in _values(row, name, count))]


def _count(run: Run) -> int:
    return max((len(value) for row in run.rows for value in row.values() if isinstance(value, list)), default=0)


def _are_seeds(run: Run) -> bool:
    """Whether the numbers of a list are seeds: a run that says otherwise has no mean worth drawing."""
    return run.config.get("seeds") == _count(run)


def _values(row: Row, name: str, count: int) -> list[float | None]:
    """One number per seed; what is counted in episodes does not exist before the first has ended."""
    values = [real(value) for value in row.get(name) or [None] * count]
    ended = row.get("episodes")
    if name in _EPISODES and isinstance(ended, list):
        return [value if number else None for value, number in zip(values, ended, strict=True)]
    return values


def _counter(runs: Sequence[Run]) -> str:
    """What all rows count: env steps, or decisions where some have nothing else."""
    everywhere = all("env_steps" in row for run in runs for row in run.rows)
    return "env_steps" if everywhere else "decisions"


def _mean(values: Sequence[float | None]) -> float | None:
    """Of all seeds; a mean over those that happen to have a number would jump when one more has."""
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there and len(there) == len(values) else None


def _series(run: Run, name: str, alone: bool, counter: str) -> list[Series]:
    count, number = _count(run), run.number
    by_row = [_values(row, name, count) for row in run.rows]
    steps = [float(row[counter]) for row in run.rows]
    word = "seed" if _are_seeds(run) else "line"
    if count == 1:
        return [Series("the run" if alone else run.name, steps, [row[0] for row in by_row], number, key=number)]
    found = [
        Series(
            f"{word} {seed}" if alone else run.name,
            steps,
            [row[seed] for row in by_row],
            tone=seed if alone else number,
            look="thin" if _are_seeds(run) else "line",
            key=seed if alone else number,
        )
        for seed in range(count)
    ]
    if _are_seeds(run):
        means = [_mean(row) for row in by_row]
        tone, key = (_INK, count) if alone else (number, number)
        # The mean stands for the run where there are several: its look is the one that the legend shows.
        mean = Series("mean" if alone else run.name, steps, means, tone, key=key)
        found = [*found, mean] if alone else [mean, *found]
    return found


def _chart(runs: Sequence[Run], name: str) -> Drawn:
    title, unit = _HEADLINES.get(name, (spelt(name).capitalize(), ""))
    if name.startswith(_PROBE):
        title, unit = f"Probe of {spelt(name.removeprefix(_PROBE))}", "R²"
    alone, counter = len(runs) == 1, _counter(runs)
    series = [one for run in runs for one in _series(run, name, alone, counter)]
    clipped = name.startswith(_PROBE) and any(value is not None and value < LOWEST_R2 for s in series for value in s.y)
    least = LOWEST_R2 if clipped else None
    unit += f" (below {least:g} drawn there)" if clipped else ""
    x = Axis("env steps per seed" if counter == "env_steps" else spelt(counter), zero=True)
    limit = runs[0].limit
    rules = [Rule(limit.per_episode, f"budget {limit.per_episode:g}")] if name == "episode_cost" and limit else []
    reach = (0.0, 1.0) if name.startswith(_PROBE) else ()
    y = Axis(unit, zero=name in ("episode_cost", "multiplier", "kl"), least=least, reach=reach)
    return draw(title, x, y, series, rules=rules), series


def _last(run: Run, names: Sequence[str], with_name: bool) -> list[Block]:
    """The last row in numbers."""
    last, count = run.rows[-1], _count(run)
    over = run.limit.per_episode if run.limit else float("inf")
    word = "seed" if _are_seeds(run) else "line"
    columns = [Column("", numeric=False), *(Column(f"{word} {seed}") for seed in range(count))]
    columns += [Column("mean")] if count > 1 and _are_seeds(run) else []

    def shown(name: str, value: float | None) -> float | Noted | None:
        return Noted(value, "over") if value is not None and name == "episode_cost" and value > over else value

    rows = []
    for name in names:
        values = _values(last, name, count)
        mean = [_mean(values)] if count > 1 and _are_seeds(run) else []
        if any(value is not None for value in values):
            title, unit = _HEADLINES.get(name, (spelt(name).removeprefix("probe ").capitalize(), ""))
            unit = "R² of the probe" if name.startswith(_PROBE) else unit
            rows.append([f"{title}, {unit}" if unit else title, *(shown(name, value) for value in [*values, *mean])])
    steps = last.get("env_steps")
    when = f"{steps:,} env steps per seed" if steps else f"{last.get('decisions', 0):,} decisions"
    whose = f"{run.name}: " if with_name else ""
    return table(f"{whose}The last row, after {when}", columns, rows, by_row=True)
