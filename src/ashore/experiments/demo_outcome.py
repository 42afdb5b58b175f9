"""What came of one way to act in all worlds of a show, as numbers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ashore.experiments.demo_plan import Planned, Way
from ashore.experiments.deployment import Moment

_DIGITS = 6
"""Significant digits of a curve on disk."""


class Outcome(NamedTuple):
    """One way in all worlds; whatever is by decision has all episodes of a world in a row."""

    way: Way
    budget: float
    """Per episode."""
    returns: np.ndarray
    """Per episode, [world]."""
    costs: np.ndarray
    """Per episode, [world]."""
    eta: np.ndarray
    """[world, decision]; an episode that ended early keeps its last value, as do the next two."""
    spread: np.ndarray
    spent: np.ndarray
    """Cost of the episode so far."""
    alarms: np.ndarray
    """How often the world was found to have changed, [world]."""
    episodes: int
    """Of every world."""

    @property
    def under_budget(self) -> int:
        """Worlds whose mean cost per episode is within the budget."""
        return int(np.sum(self.costs <= self.budget))

    @property
    def worlds(self) -> int:
        """How many."""
        return len(self.costs)

    def ends(self, curve: str) -> tuple[float, float]:
        """First and last value of a curve, mean over the worlds."""
        mean = getattr(self, curve).mean(axis=0)
        return float(mean[0]), float(mean[-1])

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        names = ("spent", "eta", "spread") if self.way.identifies else ("spent",)
        curves = {name: _rounded(getattr(self, name).mean(axis=0)) for name in names}
        return {
            "way": self.way.name,
            "label": self.way.label,
            "mean_return": float(self.returns.mean()),
            "mean_cost": float(self.costs.mean()),
            "budget_per_episode": self.budget,
            "worlds_under_budget": self.under_budget,
            "worlds": self.worlds,
            "return_by_world": _rounded(self.returns),
            "cost_by_world": _rounded(self.costs),
            "mean_over_worlds": curves,
        }


def outcome(planned: Planned, way: Way, by_world: Sequence[Sequence[Moment]]) -> Outcome:
    """Count what a way did.

    Args:
        planned: the show.
        way: one of its ways.
        by_world: every decision, for each world.
    """
    episodes = planned.show.episodes
    table = [[[m for m in moments if m.episode == e] for e in range(episodes)] for moments in by_world]
    longest = max(len(episode) for world in table for episode in world)

    def curve(values: list[float]) -> np.ndarray:
        return np.pad(np.array(values), (0, longest - len(values)), mode="edge")

    def curves(of: Any) -> np.ndarray:
        return np.array([np.concatenate([curve(of(episode)) for episode in world]) for world in table])

    return Outcome(
        way=way,
        budget=planned.manifest.budget.per_episode,
        returns=np.array([sum(m.reward for m in moments) / episodes for moments in by_world]),
        costs=np.array([sum(m.cost for m in moments) / episodes for moments in by_world]),
        eta=curves(lambda episode: [m.result.eta for m in episode]),
        spread=curves(lambda episode: [m.spread for m in episode]),
        spent=curves(lambda episode: np.cumsum([m.cost for m in episode]).tolist()),
        alarms=np.array([sum(m.evidence.changed for m in moments) for moments in by_world]),
        episodes=episodes,
    )


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values]
