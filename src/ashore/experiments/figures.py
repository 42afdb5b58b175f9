"""Pictures of results: every function takes records and returns a figure; nothing is read or written here."""

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ashore.experiments.outcomes import COST, RETURN, DeploymentPoint, Outcome, RefinementTime
from ashore.experiments.records import Row
from ashore.experiments.suites import FIXED_LEVELS, METHOD_NAMES

Names = Callable[[str], str]
"""From a method to what the figure calls it."""

_PANEL = (4.6, 3.6)
_BUDGET: dict[str, Any] = {"color": "black", "linestyle": "--", "linewidth": 1, "label": "budget"}
_MILLION = 1e6
_BAND = 0.15
_THIN, _THICK = 0.6, 1.8
_MARKS = "osD^vP*X"
_OTHERS = colormaps["tab20b"]
"""Colours of methods that are not in `METHOD_NAMES`."""
_OURS, _LEVEL_0 = "risk_adaptive", "without_risk_adaptation"
_PROBE = "probe_"
_LEGEND_ENTRY = 1.6
"""Width of a name in a legend, in inches."""


def as_it_is(name: str) -> str:
    """The method's own name."""
    return name


def reward_cost_scatter(outcomes: Sequence[Outcome], names: Names = as_it_is) -> Figure:
    """Return against cost, one panel per task and kind of world, one mark per method; a line at the budget.

    Ours at fixed risk levels is a curve, which begins at level 0. Bars are bootstrap intervals. The paper's numbers, in
    another unit, are not drawn.
    """
    ours = [row for row in outcomes if row.source == "ashore"]
    places = list(dict.fromkeys((row.task, row.worlds) for row in ours if row.metric == COST))
    figure, panels = _panels(len(places))
    for axes, place in zip(panels, places, strict=True):
        here = [row for row in ours if (row.task, row.worlds) == place]
        costs, returns = _by_method(here, COST), _by_method(here, RETURN)
        known = {method: (costs[method], returns[method]) for method in costs if method in returns}
        known = {method: both for method, both in known.items() if all(row.mean is not None for row in both)}
        _fixed_levels(axes, known)
        for method, (cost, reward) in known.items():
            if method in FIXED_LEVELS:
                continue
            assert cost.mean is not None and reward.mean is not None
            axes.errorbar(
                cost.mean,
                reward.mean,
                xerr=_bars([cost]),
                yerr=_bars([reward]),
                fmt=_MARKS[_place(method) % len(_MARKS)],
                color=_colour(method),
                capsize=2,
                label=names(method),
            )
        limit = next((row.budget for row in costs.values() if row.budget is not None), None)
        if limit is not None:
            axes.axvline(limit, **_BUDGET)
        axes.set(title=", ".join(place), xlabel="cost per episode", ylabel="return per episode")
        if not known.keys() & FIXED_LEVELS.keys():
            axes.set_xlim(left=0.0)
    _shared_legend(figure, panels)
    return figure


def _fixed_levels(axes: Axes, known: Mapping[str, tuple[Outcome, Outcome]]) -> None:
    """The curve of ours over its levels, each written beside its dot; nothing where no fixed level is known."""
    levels = {method: level for method, level in FIXED_LEVELS.items() if method in known}
    if not levels:
        return
    start = [known[_LEVEL_0]] if _LEVEL_0 in known else []
    rows = [*start, *(known[method] for method in sorted(levels, key=levels.__getitem__))]
    points = np.array([[row.mean for row in both] for both in rows], np.float64)
    axes.plot(*points.T, "-", marker=".", color=_colour(_OURS), linewidth=1, label="Ours at fixed levels")
    for level, point in zip(sorted(levels.values()), points[len(start) :], strict=True):
        axes.annotate(f"{level:g}", tuple(point), xytext=(4, -9), textcoords="offset points", fontsize=7)


def shift_bars(outcomes: Sequence[Outcome], names: Names = as_it_is) -> Figure:
    """Cost and return of every method by kind of world, one row of panels per task; a line at the budget.

    A method without numbers leaves a gap.
    """
    ours = [row for row in outcomes if row.source == "ashore"]
    tasks = list(dict.fromkeys(row.task for row in ours))
    figure, panels = _panels(2 * len(tasks), columns=2)
    for row, task in enumerate(tasks):
        for column, (metric, label) in enumerate(((COST, "cost per episode"), (RETURN, "return per episode"))):
            axes = panels[2 * row + column]
            here = [found for found in ours if found.task == task and found.metric == metric]
            worlds = list(dict.fromkeys(found.worlds for found in here))
            methods = list(dict.fromkeys(found.method for found in here))
            width = 0.8 / max(1, len(methods))
            for number, method in enumerate(methods):
                found = {one.worlds: one for one in here if one.method == method and one.mean is not None}
                there = [place for place, name in enumerate(worlds) if name in found]
                if not there:
                    continue
                shown = [found[worlds[place]] for place in there]
                axes.bar(
                    [place + (number - (len(methods) - 1) / 2) * width for place in there],
                    np.array([one.mean for one in shown], np.float64),
                    width,
                    yerr=_bars(shown),
                    capsize=2,
                    color=_colour(method),
                    label=names(method),
                )
            limit = next((one.budget for one in here if one.budget is not None), None)
            if metric == COST and limit is not None:
                axes.axhline(limit, **_BUDGET)
            axes.set_xticks(range(len(worlds)), worlds)
            axes.set(title=task, ylabel=label)
    _shared_legend(figure, panels)
    return figure


def deployment_curves(points: Sequence[DeploymentPoint], budget: float, title: str, names: Names = as_it_is) -> Figure:
    """Cost, return and risk level against the transitions collected, one colour per method; a line at the budget.

    Thick lines are whole episodes with their intervals, thin ones the windows within: what happens in the first seconds
    of an episode is not what happens later.
    """
    figure, (above, middle, below) = _panels(3, columns=1, size=(7.0, 2.6), sharex=True)
    for method in dict.fromkeys(point.method for point in points):
        colour, mine = _colour(method), [point for point in points if point.method == method]
        windows = [point for point in mine if point.stretch == "window"]
        episodes = [point for point in mine if point.stretch == "episode"]
        for axes, chosen in ((above, "cost"), (middle, "reward")):
            axes.plot(
                _middles(windows), [getattr(point, chosen).mean for point in windows], color=colour, linewidth=_THIN
            )
            found = [getattr(point, chosen) for point in episodes]
            at = _middles(episodes)
            axes.plot(
                at, [one.mean for one in found], "o-", color=colour, markersize=3, linewidth=_THICK, label=names(method)
            )
            axes.fill_between(
                at, [one.low for one in found], [one.high for one in found], color=colour, alpha=_BAND, linewidth=0
            )
        if any(point.eta > 0 for point in windows):
            below.step(_middles(windows), [point.eta for point in windows], where="mid", color=colour)
    above.axhline(budget, **_BUDGET)
    above.set(title=title, ylabel="cost per episode", ylim=(0.0, None))
    middle.set(ylabel="return per episode")
    below.set(ylabel="risk level, eta", xlabel="transitions collected", ylim=(-0.02, 1.0))
    _shared_legend(figure, [above])
    return figure


def training_curves(runs: Mapping[str, Sequence[Row]], budget: float, title: str, names: Names = as_it_is) -> Figure:
    """Return, cost and multiplier against env steps: a colour per run, thin lines for seeds, a thick one for all."""
    figure, panels = _panels(3)
    for method, rows in runs.items():
        for axes, metric in zip(panels, ("episode_return", "episode_cost", "multiplier"), strict=True):
            _seeds(axes, rows, metric, _colour(method), names(method))
    panels[1].axhline(budget, **_BUDGET)
    for axes, label in zip(panels, ("return per episode", "cost per episode", "multiplier"), strict=True):
        axes.set(xlabel="million env steps per seed", ylabel=label)
    figure.suptitle(title)
    _shared_legend(figure, [panels[1]])
    return figure


def charge_curves(runs: Mapping[str, Sequence[Row]], budget: float, title: str, names: Names = as_it_is) -> Figure:
    """What is earned, and what disagreement is charged for beside what is really paid, all per episode."""
    figure, panels = _panels(3)
    for method, rows in runs.items():
        colour, name = _colour(method), names(method)
        _seeds(panels[0], rows, "reward_rate", colour, name)
        _seeds(panels[1], rows, "cost_rate", colour, f"{name}: cost")
        _seeds(panels[1], rows, "penalty_rate", colour, f"{name}: charged beside it", style="--")
        _seeds(panels[2], rows, "multiplier", colour, name)
    panels[1].axhline(budget, **_BUDGET)
    # Linear up to one, so that a charge of nothing has a place beside one of thirty budgets.
    panels[1].set_yscale("symlog", linthresh=1.0)
    panels[1].set_ylim(bottom=0.0)
    for axes, label in zip(panels, ("reward per episode", "per episode", "multiplier"), strict=True):
        axes.set(xlabel="million env steps per seed", ylabel=label)
    figure.suptitle(title)
    _shared_legend(figure, [panels[1]])
    return figure


def encoder_metrics(runs: Mapping[str, Sequence[Row]]) -> tuple[str, ...]:
    """What is known of the encoders: loss, KL, and how well a linear probe reads the world from each belief."""
    found = dict.fromkeys(name for rows in runs.values() for row in rows for name in row if name.startswith(_PROBE))
    known = [name for name in found if any(_numbers(row, name) for rows in runs.values() for row in rows)]
    return ("encoder_loss", "kl", *known)


def encoder_curves(runs: Mapping[str, Sequence[Row]], title: str, names: Names = as_it_is) -> Figure:
    """Encoder loss, KL to the prior and probes against env steps; runs without an encoder are left out."""
    learnt = {method: rows for method, rows in runs.items() if any("encoder_loss" in row for row in rows)}
    metrics = encoder_metrics(learnt)
    labels = {"encoder_loss": "encoder loss", "kl": "KL to the prior"}
    figure, panels = _panels(len(metrics), columns=3)
    for axes, metric in zip(panels, metrics, strict=True):
        for method, rows in learnt.items():
            _seeds(axes, rows, metric, _colour(method), names(method))
        said = f"R^2 of {metric.removeprefix(_PROBE).replace('_', ' ')}"
        axes.set(xlabel="million env steps per seed", ylabel=labels.get(metric, said))
        if metric.startswith(_PROBE):
            # A probe that knows nothing has any negative R^2, as large as one likes.
            axes.set_ylim(-0.2, 1.0)
    figure.suptitle(title)
    _shared_legend(figure, [panels[0]])
    return figure


def calibration_tables(calibrations: Mapping[str, Mapping[str, Any]], title: str) -> Figure:
    """epsilon(N), L_c(N), Delta_c(eta | 0) and eta(N) of several calibrations, given by what their files hold."""
    figure, (error, slope, gain, schedule) = _panels(4, columns=2)
    for number, (name, content) in enumerate(calibrations.items()):
        counts, colour = content["counts"], f"C{number}"
        _known(error, counts, content["epsilon"], colour, name)
        _known(slope, counts, content["per_episode"]["lipschitz"], colour, name)
        _known(gain, content["etas"], content["per_episode"]["delta"][0], colour, name)
        schedule.step(counts, content["eta"], where="post", color=colour, label=name)
        bad = [place for place, marked in enumerate(content["infeasible"]) if marked]
        schedule.plot([counts[at] for at in bad], [content["eta"][at] for at in bad], "x", color=colour)
    for axes, label in (
        (error, "latent error, epsilon(N)"),
        (slope, "L_c(N), episode cost per unit"),
        (schedule, "risk level, eta(N); x: infeasible"),
    ):
        # Linear up to one, so that N = 0 has a place.
        axes.set_xscale("symlog", base=2, linthresh=1)
        axes.set(xlabel="transitions seen, N", ylabel=label)
    gain.axhline(0.0, color="black", linewidth=0.5)
    gain.set(xlabel="risk level, eta", ylabel="Delta_c(eta | 0), episode cost")
    figure.suptitle(title)
    _shared_legend(figure, [schedule])
    return figure


def refinement_times(times: Sequence[RefinementTime], title: str) -> Figure:
    """Milliseconds per refined action by number of steps, ours beside the paper's."""
    figure, (axes,) = _panels(1)
    for number, source in enumerate(dict.fromkeys(row.source for row in times)):
        mine = [row for row in times if row.source == source]
        # Step sizes do not matter for the time: rows of the same number of steps stand side by side.
        seen: dict[int, int] = {}
        for row in mine:
            seen[row.steps] = seen.get(row.steps, -1) + 1
            at = row.steps + 0.25 * seen[row.steps] + 1.2 * number - 1.0
            label = source if row is mine[0] else None
            axes.errorbar(at, row.milliseconds, yerr=row.deviation, fmt=_MARKS[number], color=f"C{number}", label=label)
    axes.set_xticks(sorted({row.steps for row in times}))
    axes.set(title=title, xlabel="refinement steps", ylabel="milliseconds", ylim=(0.0, None))
    axes.legend()
    return figure


def _panels(
    count: int, columns: int | None = None, size: tuple[float, float] = _PANEL, sharex: bool = False
) -> tuple[Figure, list[Axes]]:
    across = min(count, columns or 4) or 1
    down = -(-max(1, count) // across)
    figure = Figure(figsize=(size[0] * across, size[1] * down), layout="constrained")
    panels: list[Axes] = []
    for place in range(count):
        panels.append(figure.add_subplot(down, across, place + 1, sharex=panels[0] if sharex and panels else None))
    return figure, panels


def _shared_legend(figure: Figure, panels: Sequence[Axes]) -> None:
    """One legend below all panels, each name once."""
    found: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        columns = min(len(found), int(figure.get_figwidth() / _LEGEND_ENTRY))
        figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=columns)


def _place(method: str) -> int:
    """The same for a method in all figures, whoever else is in them; other people's methods come after ours."""
    if method in METHOD_NAMES:
        return list(METHOD_NAMES).index(method)
    return len(METHOD_NAMES) + zlib.crc32(method.encode()) % _OTHERS.N


def _colour(method: str) -> Any:
    return f"C{_place(method)}" if method in METHOD_NAMES else _OTHERS(_place(method) - len(METHOD_NAMES))


def _middles(points: Sequence[DeploymentPoint]) -> list[float]:
    return [0.5 * (point.begins + point.ends) for point in points]


def _by_method(rows: Sequence[Outcome], metric: str) -> dict[str, Outcome]:
    return {row.method: row for row in rows if row.metric == metric}


def _bars(rows: Sequence[Outcome]) -> np.ndarray | None:
    """Distances from the means to the ends of their intervals, as matplotlib wants them; None where one has none."""
    ends: list[tuple[float, float]] = []
    for row in rows:
        if row.mean is None or row.low is None or row.high is None:
            return None
        ends.append((max(0.0, row.mean - row.low), max(0.0, row.high - row.mean)))
    return np.array(ends).reshape(-1, 2).T


def _seeds(axes: Axes, rows: Sequence[Row], metric: str, colour: str, label: str, style: str = "-") -> None:
    there = [row for row in rows if metric in row]
    if not there:
        return
    steps = np.array([row["env_steps"] for row in there]) / _MILLION
    values = np.array([[np.nan if value is None else value for value in row[metric]] for row in there], np.float64)
    for seed in values.T:
        axes.plot(steps, seed, style, color=colour, linewidth=_THIN, alpha=0.6)
    known = ~np.isnan(values).all(axis=1)
    axes.plot(steps[known], np.nanmean(values[known], axis=1), style, color=colour, linewidth=_THICK, label=label)


def _numbers(row: Row, metric: str) -> list[float]:
    return [value for value in row.get(metric, ()) if value is not None]


def _known(axes: Axes, x: Sequence[float], y: Sequence[float | None], colour: str, label: str) -> None:
    pairs = [(a, b) for a, b in zip(x, y, strict=True) if b is not None]
    axes.plot([a for a, _ in pairs], [b for _, b in pairs], "o-", markersize=3, color=colour, label=label)
