"""How careful to be: eta from the calibrated table, relaxed on evidence, tightened at once.

The table gives eta for the number of transitions seen and, where caution follows the identified world, for what is
believed about it (`world_levels`); between its counts the earlier, more careful entry holds. An alarm (a sensor fault,
too much cost, a world unlike the simulated ones) puts eta back to the careful start, and only after a stretch of
transitions without one does the table speak again. Where eta rises without an alarm, because more is known, half of
that stretch passes before it may fall: a belief on the border between two levels would otherwise change the level, and
a policy that takes it as an input its action, with every decision.
"""

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from ashore_runtime.schema import Calibration
from ashore_runtime.world_levels import WorldLevels


@dataclass(frozen=True)
class ScheduleState:
    """What the schedule remembers."""

    eta: float
    infeasible: bool
    """The calibration found no eta that is enough where the table was read."""
    clean: int
    """Transitions without an alarm since the last one."""


class Schedule:
    """eta(N), or eta(N, z), with memory; `calibration` None is a policy without caution: eta = 0 throughout."""

    def __init__(self, calibration: Calibration | None, patience: int = 50) -> None:
        """Args: the table, and the clean transitions after an alarm before eta may fall again; half after a rise."""
        self._calibration = calibration
        self._world = None if calibration is None or calibration.world is None else WorldLevels(calibration.world)
        self._patience = patience

    def start(self) -> ScheduleState:
        """Before any transition: as careful as it gets."""
        eta, infeasible = self.table(0, 1.0)
        return ScheduleState(eta, infeasible, self._patience)

    def table(self, count: int, spread: float, latent: np.ndarray | None = None) -> tuple[float, bool]:
        """eta and `infeasible` for evidence of `count` transitions that left a posterior of this spread and mean.

        Where the calibration says how narrow the posterior was at each count, a posterior that is wider has seen
        less than its count says, and is read at the count that it resembles. No latent is the careful start's.
        """
        if self._calibration is None:
            return 0.0, False
        place = bisect_right(self._calibration.counts, count) - 1
        if self._calibration.spread is not None:
            while place > 0 and spread > self._calibration.spread[place]:
                place -= 1
        if self._world is not None:
            return self._world.start if latent is None else self._world.read(place, latent)
        return self._calibration.eta[place], self._calibration.infeasible[place]

    def after(
        self,
        state: ScheduleState,
        count: int,
        spread: float,
        clean: bool,
        alarm: bool,
        latent: np.ndarray | None = None,
    ) -> ScheduleState:
        """The state after one more transition or decision.

        Args:
            state: before it.
            count: transitions behind the posterior.
            spread: the posterior's mean standard deviation.
            clean: it was used as evidence, so that it counts towards relaxing.
            alarm: something happened that calls for the careful start.
            latent: the posterior's mean; needed where caution follows the world.
        """
        eta, infeasible = self.table(count, spread, latent)
        if alarm:
            # A dear world may ask for more than the start did.
            careful, marked = max(self.table(0, 1.0), (eta, infeasible), key=lambda found: found[0])
            return ScheduleState(max(careful, state.eta), marked, 0)
        cleaned = min(state.clean + 1, self._patience) if clean else 0
        # Also where no patience is asked for, only evidence relaxes.
        if eta < state.eta and not (clean and cleaned >= self._patience):
            return ScheduleState(state.eta, state.infeasible, cleaned)
        if eta > state.eta:
            cleaned = min(cleaned, self._patience - self._patience // 2)
        return ScheduleState(eta, infeasible, cleaned)
