"""`ashore demo`: both worlds on film, and their return and cost in a figure."""

from ashore.compilation_cache import keep_compiled_programs
from ashore.experiments.demo import DemoConfig, demo

Options = DemoConfig


def run(options: DemoConfig) -> int:
    """Play every task, then say what came of it and where the results are."""
    keep_compiled_programs()
    shown = demo(options)
    for task, played in shown.played.items():
        episode, budget = played.episodes[0], played.description.budget.per_episode
        print(f"{task}: return {episode.rewards.sum():.1f}, cost {episode.costs.sum():.1f} of a budget of {budget:g}")
        print(f"  video: {played.video}")
    print(f"figure: {shown.figure}")
    return 0
