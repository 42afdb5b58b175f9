"""What a runtime may do, and how patient it is."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ashore_runtime import setting_checks
from ashore_runtime.guard import GuardSettings
from ashore_runtime.modes import ModeSettings
from ashore_runtime.refinement import Box
from ashore_runtime.refusal import Refused
from ashore_runtime.schema import Manifest


@dataclass(frozen=True)
class Limits:
    """What the runtime may do, beyond what the manifest says."""

    deadline: float = 0.6
    """Share of the control period after which `act` has answered, if the caller names no deadline; inf is none."""
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    """A box inside the manifest's."""
    rate: float | None = None
    """Largest change of an action between two decisions of the policy; fallbacks are free."""
    over_threshold: str = "send_best"
    """When no action fits the budget: `send_best`, or `fallback` for this decision."""
    over_budget: float | None = 2.0
    """Tighten when the cost of the last episode's length exceeds this times the budget. The budget bounds a mean,
    around which single episodes scatter; None never tightens."""
    patience: int = 50
    """Clean transitions after an alarm before eta may fall again."""
    guard: GuardSettings = GuardSettings()
    modes: ModeSettings = ModeSettings()
    detect_changes: bool = True
    """Start careful again, from recent evidence, when the dynamics change (if the calibration has a threshold)."""
    evaluate_always: bool = False
    """Report Q_c of the sent action also where no decision rests on it (eta = 0, caution from the actor alone)."""

    def __post_init__(self) -> None:
        if self.over_threshold not in ("send_best", "fallback"):
            raise Refused(f"over_threshold must be send_best or fallback, not {self.over_threshold!r}.")
        setting_checks.positive("deadline", self.deadline)
        setting_checks.count("patience", self.patience)
        for name, number in (("rate", self.rate), ("over_budget", self.over_budget)):
            if number is not None:
                setting_checks.positive(name, number)
        for name, edge in (("low", self.low), ("high", self.high)):
            if edge is not None and not _are_numbers(edge):
                raise Refused(f"The limit '{name}' must be a number for every action, not {edge!r:.64}.")
        for name, part, kind in (("guard", self.guard, GuardSettings), ("modes", self.modes, ModeSettings)):
            if not isinstance(part, kind):
                raise Refused(f"The limit '{name}' must be a {kind.__name__}, not {part!r:.64}.")


def _are_numbers(edge: Any) -> bool:
    return isinstance(edge, tuple | list | np.ndarray) and all(setting_checks.is_number(number) for number in edge)


def usual_unless(limits: Limits | None) -> Limits:
    """These limits, or the usual ones where nobody gave any."""
    if limits is None:
        return Limits()
    if not isinstance(limits, Limits):
        raise Refused(f"Limits are given as Limits(...), not as {limits!r:.64}.")
    return limits


def action_box(manifest: Manifest, limits: Limits) -> Box:
    """The actions that may be sent: what the manifest and the limits both allow."""
    low, high = manifest.action_low, manifest.action_high
    for name, edge in (("low", limits.low), ("high", limits.high)):
        if edge is not None and len(edge) != len(low):
            raise Refused(f"The limit '{name}' has {len(edge)} entries for {len(low)} actions.")
    if limits.low is not None:
        low = np.maximum(low, np.array(limits.low, np.float32))
    if limits.high is not None:
        high = np.minimum(high, np.array(limits.high, np.float32))
    if not (low <= high).all():
        raise Refused("The limits leave no action to send.")
    return Box(low, high)
