"""The cost limit and its three units: per episode, per decision, discounted."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """One cost limit, said in every unit that somebody needs.

    The canonical unit is cost per decision, averaged over an episode; the others follow from it. With the limit
    of 25 per 1000 env steps, action repeat 4 and discount 0.99 this gives 0.1 per decision and 10 discounted, the
    paper's PointGoal2 threshold.
    """

    per_episode: float
    """Highest mean total cost of an episode."""
    decisions_per_episode: int
    """Decisions (not env steps) in an episode."""
    discount: float = 0.99
    """Discount per decision of the cost critic."""

    def __post_init__(self) -> None:
        if not self.per_episode > 0:
            raise ValueError(f"A cost budget must be positive, not {self.per_episode}.")
        if self.decisions_per_episode < 1:
            raise ValueError(f"An episode needs at least one decision, not {self.decisions_per_episode}.")
        if not 0 <= self.discount < 1:
            raise ValueError(f"The cost discount must be in [0, 1), not {self.discount}.")

    @property
    def per_decision(self) -> float:
        """Mean cost per decision that uses the budget up exactly."""
        return self.per_episode / self.decisions_per_episode

    @property
    def discounted(self) -> float:
        """Discounted cost of spending at the budget's rate for ever: the unit of a cost critic."""
        return self.per_decision / (1.0 - self.discount)
