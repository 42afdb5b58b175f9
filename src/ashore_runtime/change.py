"""Has the world changed? A CUSUM on how much better recent evidence predicts than all evidence does.

Before a transition is learnt from, the dynamics head predicts it twice: from the posterior of everything seen, and from
one that remembers only the last few transitions (its sums fade by 1 - 1 / memory each time). With y what happened,

    gain = log p(y | s, a, z_recent) - log p(y | s, a, z_all),   sum = max(0, sum + clip(gain) - drift)

and a sum above the calibrated threshold is a change. While the world stays the same all evidence knows z better than
recent evidence, and the gain is below zero on average. After a change the old evidence is wrong and the gain positive.
What surprises both (a contact, a bonus, a model error that lasts) cancels, so that autocorrelated surprise, which lets
a CUSUM on the surprise itself wander, is no evidence here. Clipping makes one odd transition not enough, and the drift
keeps out what a short memory gains by following where the head is wrong in this corner of the world.

Where a CUSUM was last zero is the likeliest moment of the change. Evidence since then, fading like recent evidence, is
what the posterior starts afresh from: a window of fixed length would still hold the old world when a change is found
at once, and all evidence since then much of it when the sum had been above zero for long.

A world changes once. Where alarm follows alarm it is rather the head that is wrong, outside of the worlds that the
threshold was measured in, and each new alarm would throw away what was learnt: every alarm of the last few hundred
transitions doubles the threshold.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite, isnan
from typing import Any

import numpy as np

from ashore_runtime import posterior
from ashore_runtime.posterior import Posterior
from ashore_runtime.schema import ChangeCalibration

DOUBT = 500
"""Transitions over which an alarm is remembered (its weight fades by 1 - 1 / DOUBT with each)."""


@dataclass(frozen=True)
class DetectorState:
    """Everything the detector knows."""

    total: float
    """The CUSUM."""
    recent: Posterior
    """What the last few transitions say."""
    fresh: Posterior
    """What those of them say that came after the sum was last zero."""
    alarms: float = 0.0
    """Alarms so far, fading: how often the detector has cried wolf."""

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; `from_json` gives the same state back bit for bit."""
        posteriors = {"recent": posterior.to_json(self.recent), "fresh": posterior.to_json(self.fresh)}
        return {"total": self.total, **posteriors, "alarms": self.alarms}


def start(found: Posterior, alarms: float = 0.0) -> DetectorState:
    """Where this is all that is known, recent or not: the prior before any transition, `fresh` after an alarm."""
    return DetectorState(0.0, found, posterior.prior(len(found.precision_sum)), alarms)


def from_json(content: Mapping[str, Any], latent: int) -> DetectorState:
    """The inverse of `to_json`; a ValueError, KeyError or TypeError if it is not one."""
    # A journal may be older than the memory of alarms.
    total, alarms = float(content["total"]), float(content.get("alarms", 0.0))
    if not (isfinite(total) and total >= 0.0 and 0.0 <= alarms <= DOUBT):
        raise ValueError("The sum is not one.")
    recent, fresh = (posterior.from_json(content[name], latent) for name in ("recent", "fresh"))
    return DetectorState(total, recent, fresh, alarms)


@dataclass(frozen=True)
class ChangeDetector:
    """Pure functions over a `DetectorState`; a step costs the same whatever was seen before."""

    calibration: ChangeCalibration

    def accumulate(self, total: float, gain: float, alarms: float = 0.0) -> tuple[float, bool]:
        """The CUSUM after one more gain, and whether that is an alarm. A gain that is not a number says nothing.

        Args:
            alarms: how many there were of late; each doubles the threshold.
        """
        if isnan(gain):
            return total, False
        known = self.calibration
        total = max(0.0, total + min(max(gain, -known.clip), known.clip) - known.drift)
        return total, total > known.threshold * 2.0**alarms

    def watch(self, state: DetectorState, gain: float) -> tuple[DetectorState, bool]:
        """The state after a transition was predicted, and whether the world has changed."""
        total, changed = self.accumulate(state.total, gain, state.alarms)
        return replace(state, total=total, alarms=(1.0 - 1.0 / DOUBT) * state.alarms), changed

    def restart(self, state: DetectorState) -> DetectorState:
        """After an alarm: what was seen since the change is all that is known, and the next alarm is believed less."""
        return start(state.fresh, state.alarms + 1.0)

    def learn(self, state: DetectorState, mean: np.ndarray, precision: np.ndarray, tempering: float) -> DetectorState:
        """The state after the transition was learnt from; its factor as for `posterior.add`."""

        def moved(found: Posterior) -> Posterior:
            return posterior.add(posterior.fade(found, self.calibration.memory), mean, precision, tempering)

        fresh = moved(state.fresh) if state.total > 0.0 else posterior.prior(len(state.fresh.precision_sum))
        return replace(state, recent=moved(state.recent), fresh=fresh)
