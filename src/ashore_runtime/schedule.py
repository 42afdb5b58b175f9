"""How careful to be: eta from the calibrated table, relaxed on evidence, tightened at once.

The table gives eta for the number of transitions seen; between its counts the earlier, more careful entry holds. An
alarm (a sensor fault, too much cost, a world unlike the simulated ones) puts eta back to its first entry, and only
after a stretch of transitions without one does the table speak again.
"""

from bisect import bisect_right
from dataclasses import dataclass

from ashore_runtime.schema import Calibration


@dataclass(frozen=True)
class ScheduleState:
    """What the schedule remembers."""

    eta: float
    infeasible: bool
    """The calibration found no eta that is enough where the table was read."""
    clean: int
    """Transitions without an alarm since the last one."""


class Schedule:
    """eta(N) with memory; `calibration` None is a policy without caution: eta = 0 throughout."""

    def __init__(self, calibration: Calibration | None, patience: int = 50) -> None:
        """Args: the table, and the clean transitions after an alarm before eta may fall again."""
        self._calibration = calibration
        self._patience = patience

    def start(self) -> ScheduleState:
        """Before any transition: as careful as it gets."""
        eta, infeasible = self.table(0, 1.0)
        return ScheduleState(eta, infeasible, self._patience)

    def table(self, count: int, spread: float) -> tuple[float, bool]:
        """eta and `infeasible` for evidence of `count` transitions that left a posterior of this spread.

        Where the calibration says how narrow the posterior was at each count, a posterior that is wider has seen
        less than its count says, and is read at the count that it resembles.
        """
        if self._calibration is None:
            return 0.0, False
        place = bisect_right(self._calibration.counts, count) - 1
        if self._calibration.spread is not None:
            while place > 0 and spread > self._calibration.spread[place]:
                place -= 1
        return self._calibration.eta[place], self._calibration.infeasible[place]

    def after(self, state: ScheduleState, count: int, spread: float, clean: bool, alarm: bool) -> ScheduleState:
        """The state after one more transition or decision.

        Args:
            state: before it.
            count: transitions behind the posterior.
            spread: the posterior's mean standard deviation.
            clean: it was used as evidence, so that it counts towards relaxing.
            alarm: something happened that calls for the careful start.
        """
        if alarm:
            careful, infeasible = self.table(0, 1.0)
            return ScheduleState(max(careful, state.eta), infeasible, 0)
        cleaned = min(state.clean + 1, self._patience) if clean else 0
        eta, infeasible = self.table(count, spread)
        if eta < state.eta and cleaned < self._patience:
            return ScheduleState(state.eta, state.infeasible, cleaned)
        return ScheduleState(eta, infeasible, cleaned)
