"""Pictures of the demo: how careful the policies were and what they spent, or what a script did."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ashore.experiments.demo_outcome import Outcome
from ashore.experiments.demo_plan import BASELINE, CALIBRATED, NEUTRAL, Planned
from ashore.experiments.play import Played

_COLOURS = {CALIBRATED: "#1f6fb2", NEUTRAL: "#c8501e", BASELINE: "#8a8f96"}


def draw(path: Path, found: Mapping[str, tuple[Planned, Sequence[Outcome]]]) -> Path:
    """Eta with the posterior's spread above, the cost of the episode below; a column for each task."""
    figure = Figure(figsize=(5.6 * len(found), 5.4), layout="constrained")
    panels = figure.subplots(2, len(found), sharex="col", squeeze=False, height_ratios=(2, 3))
    for column, (task, (planned, outcomes)) in enumerate(found.items()):
        careful, spending = panels[:, column]
        show = planned.show
        careful.set_title(f"{task} in {show.worlds} unseen worlds of its shift '{show.shift}'", fontsize=11)
        _draw_caution(careful, outcomes)
        _draw_cost(spending, outcomes)
        for axes in (careful, spending):
            axes.spines[["top", "right"]].set_visible(False)
            _part_episodes(axes, outcomes[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return path


def _draw_caution(axes: Axes, outcomes: Sequence[Outcome]) -> None:
    policies = [outcome for outcome in outcomes if outcome.way.name != BASELINE]
    for outcome in policies:
        colour = _COLOURS[outcome.way.name]
        eta = outcome.eta.mean(axis=0)
        axes.step(_decisions(eta), eta, where="post", color=colour, linewidth=2.2, label=f"eta, {outcome.way.label}")
        if outcome is policies[0]:
            spread = outcome.spread.mean(axis=0)
            axes.plot(_decisions(spread), spread, color="black", linestyle=":", label="posterior spread")
    # Room for the legend above all lines: a schedule may end anywhere.
    axes.set_ylim(-0.04, 1.3)
    axes.set_yticks(np.linspace(0.0, 1.0, 6))
    axes.set_ylabel("eta and spread")
    axes.legend(fontsize=8, frameon=False, loc="upper right", ncols=3)


def _draw_cost(axes: Axes, outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        colour = _COLOURS[outcome.way.name]
        decisions = _decisions(outcome.spent[0])
        for episode in np.array_split(np.arange(len(decisions)), outcome.episodes):
            named = outcome.way.label if episode[0] == 0 else None
            for world in outcome.spent:
                axes.plot(decisions[episode], world[episode], color=colour, linewidth=0.6, alpha=0.25)
            mean = outcome.spent[:, episode].mean(axis=0)
            # Where the others do the same, the policy that is shown lies on top.
            on_top = 4 if outcome is outcomes[0] else 3
            axes.plot(decisions[episode], mean, color=colour, linewidth=2.2, label=named, zorder=on_top)
    budget = outcomes[0].budget
    axes.axhline(budget, color="black", linestyle="--", linewidth=1.2, label=f"budget of an episode, {budget:g}")
    # One world that goes wrong must not press all others flat: its line may leave the picture.
    highest = max(float(outcome.spent.mean(axis=0).max()) for outcome in outcomes)
    axes.set_ylim(0.0, 1.7 * max(budget, highest))
    axes.set_ylabel("cost of the episode so far\n(thin: worlds, bold: their mean)")
    axes.set_xlabel("decisions since the world was met")
    axes.legend(fontsize=8, framealpha=0.9, edgecolor="none", loc="upper left", ncols=2)


def _part_episodes(axes: Axes, outcome: Outcome) -> None:
    length = outcome.eta.shape[1] // outcome.episodes
    for episode in range(1, outcome.episodes):
        axes.axvline(episode * length + 0.5, color="lightgrey", linewidth=0.8, zorder=0)


def _decisions(curve: np.ndarray) -> np.ndarray:
    return np.arange(1, len(curve) + 1)


def draw_scripted(path: Path, played: Mapping[str, Played]) -> Path:
    """Return and cost of each task's first episode over time, the cost against its budget."""
    figure = Figure(figsize=(5.5 * len(played), 6.0), layout="constrained")
    panels = figure.subplots(2, len(played), sharex="col", squeeze=False)
    for column, (task, result) in enumerate(played.items()):
        returned, spending = panels[:, column]
        episode, budget = result.episodes[0], result.description.budget.per_episode
        seconds = result.description.control_period * np.arange(1, len(episode.rewards) + 1)
        returned.set_title(f"{task}, scripted controller")
        returned.plot(seconds, np.cumsum(episode.rewards), color="tab:blue")
        returned.set_ylabel("return so far")
        spending.plot(seconds, np.cumsum(episode.costs), color="tab:red", label="cost so far")
        spending.axhline(budget, color="black", linestyle="--", label=f"budget of an episode, {budget:g}")
        spending.set_xlabel("time in s")
        spending.set_ylabel("cost so far")
        # Room above both lines for the legend.
        spending.set_ylim(0.0, 1.35 * max(budget, float(episode.costs.sum())))
        spending.legend(loc="upper left", ncols=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path
