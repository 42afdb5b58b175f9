"""A bundle at work: act, observe, learn what world this is, relax as far as the calibration allows.

    runtime = Runtime.load("policy.bundle", fallback="ramp_to_zero", journal="run.jnl")
    runtime.arm()
    observation, t = robot.look()
    for _ in Loop(hz=1 / runtime.bundle.manifest.task.control_period):
        result = runtime.act(observation, t_obs=t)
        observation, t, reward, cost = robot.step(result.action)
        runtime.observe(observation, reward, cost, t=t)

Loading may refuse; acting never raises and never returns an action that is not finite or outside the box. Everything
happens in the caller's thread. `act` and `observe` are not for two threads at once.
"""

import math
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ashore_runtime import bundle as bundles
from ashore_runtime import fallback as fallbacks
from ashore_runtime import journal as journals
from ashore_runtime import modes, posterior, process
from ashore_runtime.bundle import Bundle
from ashore_runtime.careful_policy import NO_DEADLINE, CarefulPolicy
from ashore_runtime.clock import Clock
from ashore_runtime.fallback import Fallback
from ashore_runtime.guard import Guard
from ashore_runtime.journal import Journal
from ashore_runtime.knowledge import Knowledge, Pending
from ashore_runtime.limits import Limits, usual_unless
from ashore_runtime.modes import ACTING, Event, Mode, ModeState
from ashore_runtime.posterior import Posterior
from ashore_runtime.reasons import OBSERVATION_FAULTS, Reason
from ashore_runtime.refinement import Refined
from ashore_runtime.refusal import Refused
from ashore_runtime.results import FALLBACK, HELD, NOMINAL, REFINED, ActResult, Evidence
from ashore_runtime.schema import Refinement
from ashore_runtime.setting_checks import is_number
from ashore_runtime.signature import TrustedKey
from ashore_runtime.tallies import Tallies

RESUME_RULES = ("trust", "discount", "reset")
_ERROR = "error"
_SLEEP_NOTICED = 500_000_000
"""ns of sleep that disarm; clocks drift by less."""


class Runtime:
    """A loaded bundle and everything that has happened since. Make one with `load` or `resume`."""

    def __init__(
        self,
        bundle: Bundle,
        limits: Limits,
        fallback: str | Mapping[str, Any] | Fallback,
        clock: Clock,
        eta: float | None,
    ) -> None:
        """Use `load`: it reads the bundle, prepares the process and opens the journal."""
        manifest = bundle.manifest
        self.bundle = bundle
        self._manifest = manifest
        self._networks = bundle.networks
        self._limits = limits
        self._clock = clock
        self._policy = CarefulPolicy(bundle, limits, clock)
        self._box = self._policy.box
        self._fallback = fallbacks.build(fallback, manifest, self._box)
        self._guard = Guard(manifest, bundle.networks.normalisers.observation.deviation, limits.guard)
        self._knowledge = Knowledge(bundle, limits, eta)
        self._period = round(manifest.task.control_period * 1e9)
        self._mode = ModeState()
        self._costs: deque[float] = deque(maxlen=max(manifest.budget.decisions_per_episode, 1))
        self._pending: Pending | None = None
        self._last_action: np.ndarray | None = None
        self._last_good = np.array(
            [0.0 if f.low is None or f.high is None else 0.5 * (f.low + f.high) for f in manifest.observation],
            np.float32,
        )
        self._news = Reason.NONE
        self._slept = clock.slept()
        self._journal: Journal | None = None
        self._blas_told = False
        self._tallies = Tallies()

    @classmethod
    def load(
        cls,
        bundle: str | Path,
        *,
        fallback: str | Mapping[str, Any] | Fallback = "ramp_to_zero",
        limits: Limits | None = None,
        journal: str | Path | None = None,
        sync: bool = True,
        trusted_keys: tuple[TrustedKey, ...] = (),
        eta: float | None = None,
        caution: str | None = None,
        refinement: Refinement | None = None,
        precision: str = "float32",
        clock: Clock | None = None,
        freeze: bool = True,
    ) -> "Runtime":
        """A runtime in READY; raises `Refused` with one sentence if anything is wrong.

        Args:
            bundle: a folder or a stored zip.
            fallback: a name, a table or a function; see `fallback`.
            limits: what may be done and how patiently.
            journal: where to write what happens; None writes nothing. One that holds evidence is refused: only
                `resume` continues it.
            sync: whether every transition is on the disk before `observe` returns.
            trusted_keys: when there are any, the bundle must be signed with one of them.
            eta: one risk level throughout instead of the calibrated schedule, for experiments.
            caution, refinement: in the place of the manifest's, for experiments.
            precision: what the networks compute in. `float64` takes twice as long and is for replays elsewhere, where
                `float32` may give another action: next to the kink of a ReLU the last bit decides. Observations,
                beliefs and what is sent are float32 in both.
            clock: where time comes from.
            freeze: whether to take everything loaded so far out of garbage collection.
        """
        limits = usual_unless(limits)
        if journal is not None and journals.holds_evidence(Path(journal)):
            raise Refused(
                f"The journal {journal} holds what an earlier run has learnt: continue it with Runtime.resume, or "
                "choose another file."
            )
        told = process.one_blas_thread()
        loaded = bundles.with_caution(bundles.load(bundle, trusted_keys, precision), caution, refinement)
        if eta is not None and not (is_number(eta) and 0.0 <= eta < 1.0):
            raise Refused(f"A risk level is in [0, 1), not {eta!r}.")
        if eta and loaded.manifest.caution != "actor" and loaded.networks.critics is None:
            raise Refused(f"A risk level of {eta:g} needs critics, and the bundle has none.")
        runtime = cls(loaded, limits, fallback, clock or Clock(), eta)
        runtime._blas_told = told
        runtime._policy.warm_up(runtime._last_good, runtime._knowledge.mean)
        if journal is not None:
            runtime._journal = Journal(Path(journal), sync)
            runtime._journal.append_json(journals.BEGIN, runtime._begin(), durable=True)
        runtime._move(Event.LOADED)
        if freeze:
            process.keep_what_was_loaded()
        return runtime

    @classmethod
    def resume(
        cls, journal: str | Path, bundle: str | Path | None = None, *, rule: str = "discount", **options: Any
    ) -> "Runtime":
        """A runtime that continues what a journal tells of; READY, never ACTIVE.

        Args:
            journal: left behind by a runtime that was closed or killed; it is continued.
            bundle: where the bundle is now; None looks where it was.
            rule: `trust` keeps all evidence; `discount` keeps half of it, because the world may have changed while
                nobody looked; `reset` keeps none.
            options: as for `load`.
        """
        if rule not in RESUME_RULES:
            raise Refused(f"A resume rule is one of {', '.join(RESUME_RULES)}, not {rule!r}.")
        begin, state = journals.last_state(Path(journal))
        place = begin.get("path") if bundle is None else bundle
        if not isinstance(place, str | Path):
            raise Refused(f"The journal {journal} does not say where its bundle is.")
        runtime = cls.load(place, **options)
        if runtime.bundle.checksum != begin.get("checksum"):
            raise Refused(f"The journal {journal} belongs to another bundle than {place}.")
        runtime.restore(state, rule)
        runtime._journal = Journal(Path(journal), options.get("sync", True))
        runtime._journal.append_json(journals.BEGIN, runtime._begin(), durable=True)
        return runtime

    @property
    def state(self) -> Mode:
        """INIT, READY, ACTIVE, DEGRADED, FALLBACK or STOPPED."""
        return self._mode.mode

    @property
    def eta(self) -> float:
        """The risk level of the next decision."""
        return self._knowledge.level.eta

    @property
    def posterior(self) -> Posterior:
        """What is known about the world."""
        return self._knowledge.posterior

    def arm(self) -> Mode:
        """Let the policy act: READY becomes ACTIVE. Without it `act` answers with the fallback."""
        return self._move(Event.ARM)

    def reset(self) -> Mode:
        """Leave FALLBACK (or any acting mode) for READY; what was learnt is kept."""
        self.new_episode()
        return self._move(Event.RESET)

    def new_episode(self) -> None:
        """The next observation does not follow from the last action. What was learnt is kept."""
        self._guard.forget()
        self._pending = None
        self._last_action = None

    def close(self) -> None:
        """STOPPED for good; the journal is complete on disk."""
        self._move(Event.CLOSE)
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def act(self, observation: Any, t_obs: int | None = None, deadline: int | None = None) -> ActResult:
        """The action for an observation. Never raises; never late by more than one refinement step.

        Args:
            observation: in the manifest's order and units.
            t_obs: monotonic time in ns at which it was measured; None says it is fresh.
            deadline: monotonic time in ns by which the answer is needed; None is the configured share of a period.
        """
        begun, due = self._clock.now(), NO_DEADLINE
        with process.no_collection():
            try:
                due = self._due(deadline, begun)
                result = self._decide(observation, t_obs, begun, due)
            except Exception as error:
                self._tallies.failed()
                self._pending = None
                self._note(_ERROR, f"{type(error).__name__}: {error}")
                self._move(Event.FAULT)
                result = self._fall_back(Reason.ERROR, begun, due)
            self._tallies.decided(result)
            self._write_decision(result, begun)
        return result

    def observe(
        self, next_observation: Any, reward: float | None, cost: float | None, t: int | None = None
    ) -> Evidence:
        """What the last action led to. Never raises.

        Args:
            next_observation: the observation that followed, before any reset.
            reward, cost: of the decision; None where a sensor has nothing to say.
            t: monotonic time in ns at which it was measured. None is now, if `act` was told `t_obs`; without any time
                the caller is trusted to come one period after the last.
        """
        try:
            evidence = self._learn(next_observation, reward, cost, t)
        except Exception as error:
            self._tallies.failed()
            self._note(_ERROR, f"{type(error).__name__}: {error}")
            evidence = self._evidence(False, Reason.ERROR)
        self._pending = None
        self._tallies.observed(evidence)
        self._write_transition(evidence)
        return evidence

    def health(self) -> dict[str, Any]:
        """Everything worth watching, as plain numbers and words."""
        return {
            "mode": self.state.value,
            "eta": self.eta,
            "infeasible": self._knowledge.level.infeasible,
            "transitions": self.posterior.count,
            "posterior_spread": self._knowledge.spread,
            "change": self._knowledge.change_sum,
            "tallies": self._tallies.counts(),
            "latency_ms": self._tallies.latency_ms(),
            "journal": "none" if self._journal is None else "lost" if self._journal.lost else "ok",
            "last_fault": self._guard.last_fault,
            "recent_cost": float(sum(self._costs)),
            "one_blas_thread": self._blas_told,
            "bundle": self.bundle.checksum,
        }

    def snapshot(self) -> dict[str, Any]:
        """What has been learnt, as JSON; `restore` takes it back."""
        return self._knowledge.snapshot()

    def restore(self, snapshot: Mapping[str, Any], rule: str = "trust") -> None:
        """Continue from a snapshot: `trust` it, `discount` it by half, or `reset`."""
        if rule == "reset" or not snapshot:
            self._knowledge.forget()
            self._costs.clear()
        else:
            self._knowledge.restore(snapshot, rule)
        self._pending = None

    # Acting

    def _due(self, deadline: int | None, begun: int) -> int:
        """When the answer is needed; what is not a time in ns is said, and the usual time is kept."""
        if isinstance(deadline, int | np.integer):
            return int(deadline)
        if deadline is not None:
            self._news |= Reason.DEADLINE_FAULT
        span = self._limits.deadline * self._period
        return begun + round(span) if math.isfinite(span) else NO_DEADLINE

    def _decide(self, observation: Any, taken: int | None, begun: int, deadline: int) -> ActResult:
        reasons = self._wake() | self._news
        self._news = Reason.NONE
        verdict = self._guard.check(observation, begun, taken)
        reasons |= verdict.reasons
        lost = self._journal is not None and self._journal.lost
        if lost:
            reasons |= Reason.JOURNAL_LOST
        self._pending = None
        if verdict.values is None:
            self._move(Event.BAD)
            if verdict.reasons & OBSERVATION_FAULTS:
                self._knowledge.advance(clean=False, alarm=True)
            if self._mode.may_hold and self._last_action is not None:
                return self._result(self._last_action, HELD, reasons | Reason.HELD, begun, deadline)
            return self._fall_back(reasons, begun, deadline)
        self._last_good = verdict.values
        self._move(Event.IMPAIRED if lost else Event.GOOD)
        if self._mode.mode not in ACTING:
            return self._fall_back(reasons, begun, deadline, taken)
        return self._by_policy(verdict.values, taken, reasons, begun, deadline)

    def _by_policy(
        self, values: np.ndarray, taken: int | None, reasons: Reason, begun: int, deadline: int
    ) -> ActResult:
        choice = self._policy.act(values, self._knowledge.mean, self.eta, self._last_action, deadline)
        if choice.over_threshold:
            reasons |= Reason.OVER_THRESHOLD
            if self._limits.over_threshold == "fallback" and self._policy.refines(self.eta):
                return self._fall_back(reasons, begun, deadline, taken)
        # What leads to the next observation, and is learnt from, is what is sent: float32 in every precision.
        sent = np.asarray(choice.refined.action, np.float32)
        self._pending = Pending(values, choice.normal, sent, taken)
        source = REFINED if choice.moved else NOMINAL
        return self._result(sent, source, reasons, begun, deadline, choice.refined)

    def _fall_back(self, reasons: Reason, begun: int, deadline: int, taken: int | None = None) -> ActResult:
        """The fallback's action, or the action nearest to zero if even that fails."""
        still = self._box.project(np.zeros_like(self._box.low))
        last = still if self._last_action is None else self._last_action
        try:
            action = np.asarray(self._fallback(self._last_good.copy(), last.copy())).astype(np.float32)
            if action.shape != still.shape or not np.isfinite(action).all():
                raise ValueError(f"The fallback gave {action}.")
            action = self._box.project(action)
        except Exception as error:
            self._note(_ERROR, f"The fallback failed ({type(error).__name__}: {error})")
            action, reasons = still, reasons | Reason.FALLBACK_FAULT
        if self.state is Mode.FALLBACK:
            reasons |= Reason.LATCHED
        elif self.state not in ACTING:
            reasons |= Reason.NOT_ARMED
        trusted = self.state is Mode.FALLBACK or self.state in ACTING
        if trusted and not reasons & (OBSERVATION_FAULTS | Reason.ERROR):
            # A transition under the fallback is evidence like any other. Unarmed, who knows what was really done.
            normal = self._networks.normalisers.see(self._last_good)
            self._pending = Pending(self._last_good, normal, action, taken)
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
        if self._knowledge.level.infeasible:
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
            z_mean=self._knowledge.mean,
            z_std=posterior.deviation(self.posterior),
            n_real=self.posterior.count,
            k_used=0 if refined is None else refined.steps,
            k_max=self._manifest.refinement.steps,
            t_total_ns=ended - begun,
            deadline_ns=deadline,
            mode=self.state,
        )

    # Learning

    def _learn(self, next_observation: Any, reward: float | None, cost: float | None, t: int | None) -> Evidence:
        pending = self._pending
        reasons = Reason.NONE
        if t is None and pending is not None and pending.taken is not None:
            # Who says when observations are measured lives by this clock. Simulators do not, and never say.
            t = self._clock.now()
        if pending is None or not pending.leads_to(t, self._period):
            reasons |= Reason.GAP
        verdict = self._guard.values(next_observation)
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
            self._knowledge.advance(clean=False, alarm=alarm)
            return self._evidence(False, reasons)
        learnt = self._knowledge.learn(pending, verdict.values, gained, spent)
        if learnt.changed:
            self._news |= Reason.CHANGED
            self._tallies.changed()
            self._note("changed", "The dynamics changed; what was learnt before that is forgotten.")
        if learnt.strange:
            self._news |= Reason.OUT_OF_DISTRIBUTION
        self._knowledge.advance(clean=True, alarm=alarm or learnt.changed or learnt.strange)
        return self._evidence(True, reasons, learnt.changed, learnt.surprise)

    def _over_budget(self) -> bool:
        factor = self._limits.over_budget
        if factor is None or sum(self._costs) <= factor * self._manifest.budget.per_episode:
            return False
        self._news |= Reason.OVER_BUDGET
        return True

    def _evidence(self, used: bool, reasons: Reason, changed: bool = False, surprise: float = math.nan) -> Evidence:
        return Evidence(used, reasons, changed, surprise, self.posterior.count, self.eta)

    # Modes, journal, start

    def _move(self, event: Event) -> Mode:
        before = self._mode.mode
        self._mode = modes.step(self._mode, event, self._clock.now(), self._limits.modes)
        if self._mode.mode is not before:
            self._note("mode", f"{before.value} -> {self._mode.mode.value} ({event.value})")
        return self._mode.mode

    def _wake(self) -> Reason:
        slept = self._clock.slept()
        woke = slept - self._slept > _SLEEP_NOTICED
        self._slept = slept
        if not woke:
            return Reason.NONE
        self.new_episode()
        self._move(Event.SLEPT)
        return Reason.SUSPENDED

    def _note(self, what: str, words: str) -> None:
        if self._journal is not None:
            self._journal.append_json(journals.EVENT, {"what": what, "words": words, "t": self._clock.now()})

    def _write_decision(self, result: ActResult, begun: int) -> None:
        if self._journal is None:
            return
        self._journal.append(journals.DECISION, result.pack(begun, self._last_good))

    def _write_transition(self, evidence: Evidence) -> None:
        if self._journal is None:
            return
        content = self.snapshot() | {"used": evidence.used, "reasons": int(evidence.reasons)}
        self._journal.append_json(journals.TRANSITION, content, durable=True)
        if self._journal.full:
            self._journal.rotate(self._begin(), self.snapshot())

    def _begin(self) -> dict[str, Any]:
        return {"path": str(self.bundle.path.resolve()), "checksum": self.bundle.checksum, "state": self.snapshot()}


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
