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

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ashore_runtime import bundle as bundles
from ashore_runtime import journal as journals
from ashore_runtime import process
from ashore_runtime.bundle import Bundle
from ashore_runtime.careful_policy import NO_DEADLINE
from ashore_runtime.clock import Clock
from ashore_runtime.decision_cycle import DecisionCycle
from ashore_runtime.fallback import Fallback
from ashore_runtime.limits import Limits, usual_unless
from ashore_runtime.logbook import ERROR, Logbook
from ashore_runtime.modes import Event, Mode
from ashore_runtime.posterior import Posterior
from ashore_runtime.reasons import Reason
from ashore_runtime.refusal import Refused
from ashore_runtime.results import ActResult, Evidence
from ashore_runtime.schema import Refinement
from ashore_runtime.setting_checks import is_number
from ashore_runtime.signature import TrustedKey
from ashore_runtime.tallies import Tallies

RESUME_RULES = ("trust", "discount", "reset")


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
        self.bundle = bundle
        self._clock = clock
        self._logbook = Logbook(bundle, clock)
        self._tallies = Tallies()
        self._cycle = DecisionCycle(bundle, limits, fallback, clock, eta, self._logbook, self._tallies)
        self._blas_told = False

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
        runtime._cycle.warm_up()
        if journal is not None:
            runtime._logbook.open(Path(journal), sync, runtime._cycle.knowledge)
        runtime._cycle.move(Event.LOADED)
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
        runtime._logbook.open(Path(journal), options.get("sync", True), runtime._cycle.knowledge)
        return runtime

    @property
    def state(self) -> Mode:
        """INIT, READY, ACTIVE, DEGRADED, FALLBACK or STOPPED."""
        return self._cycle.mode

    @property
    def eta(self) -> float:
        """The risk level of the next decision."""
        return self._cycle.eta

    @property
    def posterior(self) -> Posterior:
        """What is known about the world."""
        return self._cycle.knowledge.posterior

    def arm(self) -> Mode:
        """Let the policy act: READY becomes ACTIVE. Without it `act` answers with the fallback."""
        return self._cycle.move(Event.ARM)

    def reset(self) -> Mode:
        """Leave FALLBACK (or any acting mode) for READY; what was learnt is kept."""
        self.new_episode()
        return self._cycle.move(Event.RESET)

    def new_episode(self) -> None:
        """The next observation does not follow from the last action. What was learnt is kept."""
        self._cycle.new_episode()

    def close(self) -> None:
        """STOPPED for good; the journal is complete on disk."""
        self._cycle.move(Event.CLOSE)
        self._logbook.close()

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
                due = self._cycle.due(deadline, begun)
                result = self._cycle.decide(observation, t_obs, begun, due)
            except Exception as error:
                self._tallies.failed()
                result = self._cycle.answer_error(error, begun, due)
            self._tallies.decided(result)
            self._logbook.write_decision(result, begun, self._cycle.last_good)
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
            evidence = self._cycle.learn(next_observation, reward, cost, t)
        except Exception as error:
            self._tallies.failed()
            self._logbook.note(ERROR, f"{type(error).__name__}: {error}")
            evidence = self._cycle.evidence(False, Reason.ERROR)
        self._cycle.pending = None
        self._tallies.observed(evidence)
        self._logbook.write_transition(evidence, self._cycle.knowledge)
        return evidence

    def health(self) -> dict[str, Any]:
        """Everything worth watching, as plain numbers and words."""
        knowledge = self._cycle.knowledge
        return {
            "mode": self.state.value,
            "eta": self.eta,
            "infeasible": knowledge.level.infeasible,
            "transitions": self.posterior.count,
            "posterior_spread": knowledge.spread,
            "change": knowledge.change_sum,
            "tallies": self._tallies.counts(),
            "latency_ms": self._tallies.latency_ms(),
            "journal": self._logbook.condition,
            "last_fault": self._cycle.guard.last_fault,
            "recent_cost": self._cycle.recent_cost,
            "one_blas_thread": self._blas_told,
            "bundle": self.bundle.checksum,
        }

    def snapshot(self) -> dict[str, Any]:
        """What has been learnt, as JSON; `restore` takes it back."""
        return self._cycle.knowledge.snapshot()

    def restore(self, snapshot: Mapping[str, Any], rule: str = "trust") -> None:
        """Continue from a snapshot: `trust` it, `discount` it by half, or `reset`."""
        self._cycle.restore(snapshot, rule)
