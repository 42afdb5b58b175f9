"""The policy with its caution: from a good observation to an action, refined as far as eta asks and time allows."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ashore_runtime.bundle import Bundle
from ashore_runtime.clock import Clock
from ashore_runtime.golden import conditioning_eta
from ashore_runtime.limits import Limits, action_box
from ashore_runtime.refinement import Box, Refined, refine
from ashore_runtime.step_timer import StepTimer

NO_DEADLINE = (1 << 63) - 1
_WARM_UP_STEPS = 20


class Choice(NamedTuple):
    """The policy's action and how it came about."""

    normal: np.ndarray
    """The observation as the networks see it."""
    refined: Refined
    moved: bool
    """The action is not the nominal one."""
    over_threshold: bool
    """Its cost was evaluated and does not fit the budget."""


class CarefulPolicy:
    """Actor, critics and refinement of a bundle; what it remembers is how long refinement steps take."""

    def __init__(self, bundle: Bundle, limits: Limits, clock: Clock) -> None:
        self._manifest, self._networks, self._limits = bundle.manifest, bundle.networks, limits
        self.box = action_box(bundle.manifest, limits)
        """The actions that may be sent."""
        self._threshold = bundle.manifest.refinement.threshold_scale * bundle.manifest.budget.discounted
        self._timer = StepTimer(clock)

    def act(
        self, observation: np.ndarray, latent: np.ndarray, eta: float, last: np.ndarray | None, deadline: int
    ) -> Choice:
        """The action to send; a FloatingPointError if it is not finite.

        Args:
            observation: one that the guard let through.
            latent: what is believed about the world.
            eta: risk level.
            last: the action before this one, for the rate limit; None where there is none.
            deadline: monotonic time in ns after which no refinement step is begun.
        """
        normal = self._networks.normalisers.see(observation)
        context = self._networks.context(latent, conditioning_eta(self._manifest, eta))
        box = self._reachable(last)
        nominal = box.project(self._networks.action(normal, context))
        refined = self._careful(normal, context, nominal, eta, box, deadline)
        if not np.isfinite(refined.action).all():
            raise FloatingPointError("The policy gave an action that is not finite.")
        return Choice(normal, refined, refined.action is not nominal, refined.cost > self._threshold)

    def refines(self, eta: float) -> bool:
        """Whether actions are refined at this risk level."""
        return self._manifest.caution != "actor" and eta > 0.0

    def _careful(
        self, normal: np.ndarray, context: np.ndarray, nominal: np.ndarray, eta: float, box: Box, deadline: int
    ) -> Refined:
        critics = self._networks.critics
        if critics is None or not (self.refines(eta) or self._limits.evaluate_always):
            return Refined(nominal, math.nan, math.nan, 0)
        critics.prepare(normal, context, eta)
        if not self.refines(eta):
            value = critics.cost(nominal)
            return Refined(nominal, value, value, 0)
        self._timer.deadline = deadline
        refined = refine(critics, nominal, eta, self._threshold, box, self._manifest.refinement, self._timer)
        self._timer.finish(refined.steps)
        return refined

    def _reachable(self, last: np.ndarray | None) -> Box:
        """The box, as far as the rate limit lets an action go from the last one."""
        rate = self._limits.rate
        if rate is None or last is None:
            return self.box
        reach = np.float32(rate)
        low = np.maximum(self.box.low, last - reach)
        return Box(low, np.maximum(low, np.minimum(self.box.high, last + reach)))

    def warm_up(self, observation: np.ndarray, latent: np.ndarray) -> None:
        """Learn how long a refinement step takes before the first one is needed; the replay has warmed the rest up."""
        critics = self._networks.critics
        if critics is None or self._manifest.caution == "actor" or not self._manifest.refinement.steps:
            return
        normal = self._networks.normalisers.see(observation)
        context = self._networks.context(latent, 0.0)
        critics.prepare(normal, context, 0.5)
        self._timer.deadline = NO_DEADLINE
        settings = replace(self._manifest.refinement, steps=_WARM_UP_STEPS, keep="last", weight="full")
        nominal = self.box.project(np.zeros_like(self.box.low))
        refined = refine(critics, nominal, 0.5, -math.inf, self.box, settings, self._timer)
        self._timer.finish(refined.steps)
