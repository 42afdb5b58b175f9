"""The first thing to run: every world driven by its scripted controller, as videos and one figure."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ashore.experiments.play import PlayConfig, Played, play

VIDEOS = {"PointGoal2": "point_goal.mp4", "Platoon": "platoon.mp4"}


@dataclass(frozen=True)
class DemoConfig:
    """Roll scripted controllers through both worlds; write two videos and a figure of return and cost."""

    out: Path = Path("demo")
    """Folder for the results."""
    seed: int = 0
    """Chooses the scenes."""


class Demo(NamedTuple):
    """Where the results are, and what was played, by task."""

    played: dict[str, Played]
    figure: Path


def demo(config: DemoConfig) -> Demo:
    """Play every world once in its nominal physics."""
    played = {}
    for task, name in VIDEOS.items():
        result = play(PlayConfig(task, seed=config.seed, out=config.out))
        played[task] = result._replace(video=result.video.replace(config.out / name))
    return Demo(played, draw_summary(config.out / "summary.png", played))


def draw_summary(path: Path, played: Mapping[str, Played]) -> Path:
    """Draw return and cost of each task's first episode over time, the cost against its budget."""
    figure = Figure(figsize=(5.5 * len(played), 6.0), layout="constrained")
    panels = figure.subplots(2, len(played), sharex="col", squeeze=False)
    for column, (task, result) in enumerate(played.items()):
        episode = result.episodes[0]
        seconds = result.description.control_period * np.arange(1, len(episode.rewards) + 1)
        _draw_return(panels[0, column], seconds, episode.rewards)
        _draw_cost(panels[1, column], seconds, episode.costs, result.description.budget.per_episode)
        panels[0, column].set_title(f"{task}, scripted controller")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def _draw_return(axes: Axes, seconds: np.ndarray, rewards: np.ndarray) -> None:
    axes.plot(seconds, np.cumsum(rewards), color="tab:blue")
    axes.set_ylabel("return so far")


def _draw_cost(axes: Axes, seconds: np.ndarray, costs: np.ndarray, budget: float) -> None:
    axes.plot(seconds, np.cumsum(costs), color="tab:red", label="cost so far")
    axes.axhline(budget, color="black", linestyle="--", label=f"budget of an episode, {budget:g}")
    axes.set_xlabel("time in s")
    axes.set_ylabel("cost so far")
    # Room above both lines for the legend.
    axes.set_ylim(0.0, 1.35 * max(budget, float(costs.sum())))
    axes.legend(loc="upper left", ncols=2)
