"""How careful to be in the world that was identified: eta(N, z) from a table that predicts its cost.

    bound(eta, N, z) = intercept(eta, N) + slope(eta, N) . z + margin(eta, N)
    eta(N, z) = the smallest level with bound <= budget

Where no level is enough, the one with the lowest bound is used and said to be infeasible. The prediction is worth
something only among the worlds it was fitted to: a belief outside their box gets at least the careful start, eta(0, 0),
or, if the table has one, at least the level for strangers. That is infeasible where it was measured and is not enough
for them; where nobody measured it, where the careful start is.
"""

import numpy as np

from ashore_runtime.schema import WorldCalibration


class WorldLevels:
    """The table, ready to be read; reading costs one product of [eta, latent] numbers."""

    def __init__(self, found: WorldCalibration) -> None:
        self.etas = found.etas
        self.slope = np.array(found.slope, np.float64).reshape(len(found.margin), len(found.etas), len(found.low))
        """[count, eta, latent]."""
        self.room = found.budget - np.array(found.intercept) - np.array(found.margin)
        """What slope . z may reach, [count, eta]."""
        self.low, self.high = np.array(found.low, np.float64), np.array(found.high, np.float64)
        prior = np.zeros(len(found.low))
        bound = self._by_bound(0, prior)
        asked = bound[0] if found.strangers is None else found.strangers
        mark = bound[1] if found.strangers_enough is None else not found.strangers_enough
        self.outside = (max(bound[0], asked), mark)
        """The least that a belief outside the box gets, and whether that is not enough."""
        self.start = self.read(0, prior)
        """eta and `infeasible` before any transition. The prior's mean may be a stranger itself."""

    def read(self, place: int, latent: np.ndarray) -> tuple[float, bool]:
        """eta and `infeasible` at a count of the table, given the posterior's mean."""
        own = self._by_bound(place, latent)
        inside = bool(((latent >= self.low) & (latent <= self.high)).all())
        return own if inside or own[0] >= self.outside[0] else (self.outside[0], own[1] or self.outside[1])

    def _by_bound(self, place: int, latent: np.ndarray) -> tuple[float, bool]:
        over = self.slope[place] @ latent - self.room[place]
        enough = over <= 0.0
        infeasible = not enough.any()
        return self.etas[int(over.argmin() if infeasible else enough.argmax())], infeasible
