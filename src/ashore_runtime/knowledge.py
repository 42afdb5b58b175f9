"""What is known about the world, and how careful that makes the next decision; snapshots give it back bit for bit."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from ashore_runtime import change, posterior, strangeness
from ashore_runtime.bundle import Bundle
from ashore_runtime.change import ChangeDetector
from ashore_runtime.limits import Limits
from ashore_runtime.posterior import Posterior
from ashore_runtime.refusal import Refused
from ashore_runtime.schedule import Schedule, ScheduleState
from ashore_runtime.schema import Calibration
from ashore_runtime.strangeness import Strangeness

_LONGEST_STEP = 1.5
"""Control periods after which an observation no longer shows what one decision did."""


class Pending(NamedTuple):
    """A decision whose outcome has not been observed yet."""

    observation: np.ndarray
    normal: np.ndarray
    """The observation as the networks see it."""
    action: np.ndarray
    taken: int | None
    """Monotonic time in ns at which the observation was measured; None where nobody said."""

    def leads_to(self, t: int | None, period: int) -> bool:
        """Whether what was measured at `t` shows the outcome; without times it does."""
        if t is None or self.taken is None:
            return True
        return 0 < t - self.taken <= _LONGEST_STEP * period


class Learnt(NamedTuple):
    """What one transition told."""

    surprise: float
    """NaN where nothing is predicted."""
    changed: bool
    """The world is another one; everything from before is forgotten."""
    strange: bool
    """The world is unlike all that were simulated."""


class Knowledge:
    """Posterior, change detector and risk level, from one transition to the next."""

    def __init__(self, bundle: Bundle, limits: Limits, eta: float | None) -> None:
        """Args: `eta` is one risk level throughout instead of the bundle's schedule."""
        calibration, networks = bundle.calibration, bundle.networks
        self._networks = networks
        self._latent = bundle.manifest.network.latent
        self._patience = limits.patience
        self._schedule = Schedule(calibration if eta is None else _always(eta), limits.patience)
        self._tempering = 1.0 if calibration is None else calibration.tempering
        known = calibration.change if calibration is not None else None
        watches = limits.detect_changes and networks.predicts and networks.identifies
        self._detector = ChangeDetector(known) if watches and known is not None else None
        self.forget()

    def forget(self) -> None:
        """Back to before the first transition."""
        self._posterior = posterior.prior(self._latent)
        self._level = self._schedule.start()
        self._detector_state, self._strangeness = change.start(self._posterior), Strangeness()

    @property
    def posterior(self) -> Posterior:
        """What is believed."""
        return self._posterior

    @property
    def mean(self) -> np.ndarray:
        """What is believed, as the networks are fed it."""
        return posterior.mean(self._posterior)

    @property
    def spread(self) -> float:
        """Mean standard deviation of what is believed."""
        return float(posterior.deviation(self._posterior).mean()) if self._latent else 0.0

    @property
    def level(self) -> ScheduleState:
        """The risk level of the next decision."""
        return self._level

    @property
    def change_sum(self) -> float:
        """The change detector's CUSUM."""
        return self._detector_state.total

    def learn(self, pending: Pending, next_observation: np.ndarray, reward: float, cost: float) -> Learnt:
        """Judge a good transition, then learn from it; `advance` follows."""
        normalisers = self._networks.normalisers
        target = normalisers.dynamics_target(pending.observation, next_observation, reward, cost)
        surprise, changed = self._judge(pending, target)
        if self._networks.identifies:
            told = self._networks.factor(normalisers.encoder_input(pending.observation, pending.action, target))
            self._posterior = posterior.add(self._posterior, *told, self._tempering)
            if self._detector is not None:
                self._detector_state = self._detector.learn(self._detector_state, *told, self._tempering)
        if changed and self._detector is not None:
            # Believe what was seen since the world changed, and nothing from before that.
            self._posterior = self._detector_state.fresh
            self._detector_state, self._strangeness = self._detector.restart(self._detector_state), Strangeness()
        strange = self._detector is not None and self._strangeness.above(self._detector.calibration.ood_level)
        return Learnt(surprise, changed, strange)

    def _judge(self, pending: Pending, target: np.ndarray) -> tuple[float, bool]:
        """How surprising a transition is that was not learnt from yet, and whether it shows that the world changed."""
        if not self._networks.predicts:
            return math.nan, False

        def predicted(found: Posterior) -> np.ndarray:
            return self._networks.prediction(pending.normal, pending.action, posterior.mean(found))

        by_all = predicted(self._posterior)
        surprise = self._networks.surprise(by_all, target)
        if self._detector is None:
            return surprise, False
        judge = self._networks.log_likelihood
        gain = judge(predicted(self._detector_state.recent), target) - judge(by_all, target)
        self._detector_state, changed = self._detector.watch(self._detector_state, gain)
        self._strangeness = strangeness.after(self._strangeness, surprise)
        return surprise, changed

    def advance(self, clean: bool, alarm: bool) -> None:
        """The risk level after one more transition or decision; arguments as for `Schedule.after`."""
        self._level = self._schedule.after(self._level, self._posterior.count, self.spread, clean, alarm, self.mean)

    def snapshot(self) -> dict[str, Any]:
        """Everything, as JSON; `restore` takes it back."""
        return {
            **posterior.to_json(self._posterior),
            "schedule": asdict(self._level),
            "detector": self._detector_state.to_json(),
            "strangeness": self._strangeness.to_json(),
        }

    def restore(self, snapshot: Mapping[str, Any], rule: str) -> None:
        """Continue from a snapshot: `trust` it, or `discount` it by half."""
        try:
            found = posterior.from_json(snapshot, self._latent)
            level = ScheduleState(**snapshot["schedule"])
            detector = change.from_json(snapshot["detector"], self._latent)
            strange = strangeness.from_json(snapshot["strangeness"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise Refused("The snapshot is not one of this runtime and bundle.") from error
        if not (isinstance(level.eta, float) and 0.0 <= level.eta < 1.0):
            raise Refused("The snapshot does not have a risk level.")
        if rule == "trust":
            self._posterior, self._level = found, level
            self._detector_state, self._strangeness = detector, strange
            return
        self._posterior = posterior.discount(found, 0.5)
        eta, infeasible = self._schedule.table(self._posterior.count, self.spread, self.mean)
        self._level = ScheduleState(eta, infeasible, self._patience)
        self._detector_state, self._strangeness = change.start(posterior.prior(self._latent)), Strangeness()


def _always(eta: float) -> Calibration:
    return Calibration(counts=(0,), eta=(eta,), infeasible=(False,))
