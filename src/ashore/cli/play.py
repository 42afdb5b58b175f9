"""`ashore play TASK`: a video of a task under its scripted controller."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from ashore.compilation_cache import keep_compiled_programs
from ashore.experiments.play import PlayConfig, play


@dataclass(frozen=True)
class Options(PlayConfig):
    """Roll a scripted controller through a world, in C MuJoCo, and write a video."""

    task: Annotated[str, tyro.conf.arg(metavar="TASK")]
    """Name of the task; `ashore list` shows them."""


def run(options: Options) -> int:
    """Play, then say what came of it and where the video is."""
    keep_compiled_programs()
    played = play(options)
    budget = played.description.budget.per_episode
    for number, episode in enumerate(played.episodes, start=1):
        verdict = "within" if episode.costs.sum() <= budget else "over"
        ending = ", ended by diverging" if episode.diverged else ""
        print(
            f"episode {number}: return {episode.rewards.sum():.2f}, cost {episode.costs.sum():.2f} "
            f"({verdict} the budget of {budget:g} per episode), {len(episode.costs)} decisions{ending}"
        )
        if episode.metrics:
            print("  " + ", ".join(f"{name} {value:.3g}" for name, value in episode.metrics.items()))
    print(f"video: {played.video}")
    return 0
