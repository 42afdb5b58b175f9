"""One run, decision by decision: what is sent and why, and what is learnt from where it led.

Whatever fails in `decide` or `learn` is raised; `runtime` answers for it, with `answer_error` or with no evidence.
"""

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from ashore_runtime import fallback as fallbacks
from ashore_runtime import modes, posterior
from ashore_runtime.bundle import Bundle
from ashore_runtime.careful_policy import NO_DEADLINE, CarefulPolicy
from ashore_runtime.clock import Clock
from ashore_runtime.fallback import Fallback
from ashore_runtime.guard import Guard
from ashore_runtime.knowledge import Knowledge, Pending
from ashore_runtime.limits import Limits
from ashore_runtime.logbook import CHANGED, ERROR, MODE, Logbook
from ashore_runtime.modes import ACTING, Event, Mode, ModeState
from ashore_runtime.reasons import OBSERVATION_FAULTS, Reason
from ashore_runtime.refinement import Refined
from ashore_runtime.results import FALLBACK, HELD, NOMINAL, REFINED, ActResult, Evidence
from ashore_runtime.tallies import Tallies

_SLEEP_NOTICED = 500_000_000
"""ns of sleep that disarm; clocks drift by less."""


class DecisionCycle:
    """Decide, learn, decide: everything that one decision leaves behind for the next."""

    def __init__(
        self,
        bundle: Bundle,
        limits: Limits,
        fallback: str | Mapping[str, Any] | Fallback,
        clock: Clock,
        eta: float | None,
        logbook: Logbook,
        tallies: Tallies,
    ) -> None:
        """Args: as for `Runtime.load`, and where what happens is written and counted."""
        manifest = bundle.manifest
        self._manifest = manifest
        self._networks = bundle.networks
        self._limits = limits
        self._clock = clock
        self._logbook, self._tallies = logbook, tallies
        self._policy = CarefulPolicy(bundle, limits, clock)
        self._box = self._policy.box
        self._fallback = fallbacks.build(fallback, manifest, self._box)
        self.guard = Guard(manifest, bundle.networks.normalisers.observation.deviation, limits.guard)
        self.knowledge = Knowledge(bundle, limits, eta)
        self._period = round(manifest.task.control_period * 1e9)
        self._mode = ModeState()
        self._costs: deque[float] = deque(maxlen=max(manifest.budget.decisions_per_episode, 1))
        self.pending: Pending | None = None
        """The decision whose outcome is still to be observed."""
        self._last_action: np.ndarray | None = None
        self.last_good = np.array(
            [0.0 if f.low is None or f.high is None else 0.5 * (f.low + f.high) for f in manifest.observation],
            np.float32,
        )
        """The last observation that could be used; before the first, the middle of the declared range."""
        self._news = Reason.NONE
        """What the next decision has to say, besides its own reasons."""
        self._slept = clock.slept()

    @property
    def mode(self) -> Mode:
        """What the run is doing."""
        return self._mode.mode

    @property
    def eta(self) -> float:
        """The risk level of the next decision."""
        return self.knowledge.level.eta

    @property
    def recent_cost(self) -> float:
        """Of the last transitions, as many as an episode has."""
        return float(sum(self._costs))

    def warm_up(self) -> None:
        """Make the first decision as quick as any other."""
        self._policy.warm_up(self.last_good, self.knowledge.mean)

    def new_episode(self) -> None:
        """The next observation does not follow from the last action. What was learnt is kept."""
        self.guard.forget()
        self.pending = None
        self._last_action = None

    def restore(self, snapshot: Mapping[str, Any], rule: str) -> None:
        """Continue from what was known elsewhere; arguments as for `Runtime.restore`."""
        if rule == "reset" or not snapshot:
            self.knowledge.forget()
            self._costs.clear()
        else:
            self.knowledge.restore(snapshot, rule)
        self.pending = None

    # Acting

    def due(self, deadline: int | None, begun: int) -> int:
        """When the answer is needed; what is not a time in ns is said, and the usual time is kept."""
        if isinstance(deadline, int | np.integer):
            return int(deadline)
        if deadline is not None:
            self._news |= Reason.DEADLINE_FAULT
        span = self._limits.deadline * self._period
        return begun + round(span) if math.isfinite(span) else NO_DEADLINE

    def decide(self, observation: Any, taken: int | None, begun: int, deadline: int) -> ActResult:
        """The action for an observation; arguments as for `Runtime.act`, with the instants in ns known."""
        reasons = self._wake() | self._news
        self._news = Reason.NONE
        verdict = self.guard.check(observation, begun, taken)
        reasons |= verdict.reasons
        lost = self._logbook.lost
        if lost:
            reasons |= Reason.JOURNAL_LOST
        self.pending = None
        if verdict.values is None:
            self.move(Event.BAD)
            if verdict.reasons & OBSERVATION_FAULTS:
                self.knowledge.advance(clean=False, alarm=True)
            if self._mode.may_hold and self._last_action is not None:
                return self._result(self._last_action, HELD, reasons | Reason.HELD, begun, deadline)
            return self._fall_back(reasons, begun, deadline)
        self.last_good = verdict.values
        self.move(Event.IMPAIRED if lost else Event.GOOD)
        if self.mode not in ACTING:
            return self._fall_back(reasons, begun, deadline, taken)
        return self._by_policy(verdict.values, taken, reasons, begun, deadline)

    def answer_error(self, error: Exception, begun: int, deadline: int) -> ActResult:
        """The fallback, which stays: something in `decide` failed."""
        self.pending = None
        self._logbook.note(ERROR, f"{type(error).__name__}: {error}")
        self.move(Event.FAULT)
        return self._fall_back(Reason.ERROR, begun, deadline)

    def _by_policy(
        self, values: np.ndarray, taken: int | None, reasons: Reason, begun: int, deadline: int
    ) -> ActResult:
        choice = self._policy.act(values, self.knowledge.mean, self.eta, self._last_action, deadline)
        if choice.over_threshold:
            reasons |= Reason.OVER_THRESHOLD
            if self._limits.over_threshold == "fallback" and self._policy.refines(self.eta):
                return self._fall_back(reasons, begun, deadline, taken)
        # What leads to the next observation, and is learnt from, is what is sent: float32 in every precision.
        sent = np.asarray(choice.refined.action, np.float32)
        self.pending = Pending(values, choice.normal, sent, taken)
        source = REFINED if choice.moved else NOMINAL
        return self._result(sent, source, reasons, begun, deadline, choice.refined)

    def _fall_back(self, reasons: Reason, begun: int, deadline: int, taken: int | None = None) -> ActResult:
        """The fallback's action, or the action nearest to zero if even that fails."""
        still = self._box.project(np.zeros_like(self._box.low))
        last = still if self._last_action is None else self._last_action
        try:
            action = np.asarray(self._fallback(self.last_good.copy(), last.copy())).astype(np.float32)
            if action.shape != still.shape or not np.isfinite(action).all():
                raise ValueError(f"The fallback gave {action}.")
            action = self._box.project(action)
        except Exception as error:
            self._logbook.note(ERROR, f"The fallback failed ({type(error).__name__}: {error})")
            action, reasons = still, reasons | Reason.FALLBACK_FAULT
        if self.mode is Mode.FALLBACK:
            reasons |= Reason.LATCHED
        elif self.mode not in ACTING:
            reasons |= Reason.NOT_ARMED
        trusted = self.mode is Mode.FALLBACK or self.mode in ACTING
        if trusted and not reasons & (OBSERVATION_FAULTS | Reason.ERROR):
            # A transition under the fallback is evidence like any other. Unarmed, who knows what was really done.
            normal = self._networks.normalisers.see(self.last_good)
            self.pending = Pending(self.last_good, normal, action, taken)
        return self._result(action, FALLBACK, reasons, begun, deadline)

    def _result(
        self,
        action: np.ndarray,
        source: str,
        reasons: Reason,
        begun: int,
        deadline: int,
        refined: Refined | None = None,
    ) -> ActResult:
        # Whatever came before, this is the last step: nothing outside the box leaves here.
        action = self._box.project(np.asarray(action, np.float32))
        self._last_action = action
        if self.knowledge.level.infeasible:
            reasons |= Reason.NOT_CALIBRATED
        ended = self._clock.now()
        if ended > deadline:
            reasons |= Reason.DEADLINE_MISSED
        return ActResult(
            action=action.copy(),
            source=source,
            reasons=reasons,
            q_c=math.nan if refined is None else refined.cost,
            q_c_nominal=math.nan if refined is None else refined.nominal_cost,
            eta=self.eta,
            z_mean=self.knowledge.mean,
            z_std=posterior.deviation(self.knowledge.posterior),
            n_real=self.knowledge.posterior.count,
            k_used=0 if refined is None else refined.steps,
            k_max=self._manifest.refinement.steps,
            t_total_ns=ended - begun,
            deadline_ns=deadline,
            mode=self.mode,
        )

    # Learning

    def learn(self, next_observation: Any, reward: float | None, cost: float | None, t: int | None) -> Evidence:
        """What the last action led to; arguments as for `Runtime.observe`."""
        pending = self.pending
        reasons = Reason.NONE
        if t is None and pending is not None and pending.taken is not None:
            # Who says when observations are measured lives by this clock. Simulators do not, and never say.
            t = self._clock.now()
        if pending is None or not pending.leads_to(t, self._period):
            reasons |= Reason.GAP
        verdict = self.guard.values(next_observation)
        reasons |= verdict.reasons & OBSERVATION_FAULTS
        spent = _number(cost)
        if spent is None or spent < 0.0:
            reasons |= Reason.COST_FAULT
        else:
            self._costs.append(spent)
        gained = _number(reward)
        if gained is None:
            reasons |= Reason.REWARD_FAULT
        alarm = self._over_budget()
        if reasons or pending is None or verdict.values is None or gained is None or spent is None:
            self.knowledge.advance(clean=False, alarm=alarm)
            return self.evidence(False, reasons)
        learnt = self.knowledge.learn(pending, verdict.values, gained, spent)
        if learnt.changed:
            self._news |= Reason.CHANGED
            self._tallies.changed()
            self._logbook.note(CHANGED, "The dynamics changed; what was learnt before that is forgotten.")
        if learnt.strange:
            self._news |= Reason.OUT_OF_DISTRIBUTION
        self.knowledge.advance(clean=True, alarm=alarm or learnt.changed or learnt.strange)
        return self.evidence(True, reasons, learnt.changed, learnt.surprise)

    def _over_budget(self) -> bool:
        factor = self._limits.over_budget
        if factor is None or sum(self._costs) <= factor * self._manifest.budget.per_episode:
            return False
        self._news |= Reason.OVER_BUDGET
        return True

    def evidence(self, used: bool, reasons: Reason, changed: bool = False, surprise: float = math.nan) -> Evidence:
        """What became of a transition, with what is known now."""
        return Evidence(used, reasons, changed, surprise, self.knowledge.posterior.count, self.eta)

    # Modes

    def move(self, event: Event) -> Mode:
        """The mode after an event; a change of it is noted."""
        before = self.mode
        self._mode = modes.step(self._mode, event, self._clock.now(), self._limits.modes)
        if self.mode is not before:
            self._logbook.note(MODE, f"{before.value} -> {self.mode.value} ({event.value})")
        return self.mode

    def _wake(self) -> Reason:
        slept = self._clock.slept()
        woke = slept - self._slept > _SLEEP_NOTICED
        self._slept = slept
        if not woke:
            return Reason.NONE
        self.new_episode()
        self.move(Event.SLEPT)
        return Reason.SUSPENDED


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
