"""A bundle at work in an environment: decision by decision, or in many worlds at once as plain arrays.

The runtime is the one that travels. It is armed once; every reset begins an episode and keeps what was learnt.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np

from ashore.experiments import deployment_environment
from ashore_runtime import GuardSettings, Limits, Loop, Refused, Runtime
from ashore_runtime import bundle as bundles
from ashore_runtime.posterior import Posterior
from ashore_runtime.results import ActResult, Evidence
from ashore_runtime.schema import Refinement

NO_CAUTION = "none"
"""Caution that is none at all: eta = 0 throughout, whatever the calibration says."""


class Moment(NamedTuple):
    """One decision and what came of it."""

    episode: int
    decision: int
    """Within the episode, from 0."""
    observation: np.ndarray
    result: ActResult
    evidence: Evidence
    reward: float
    cost: float
    spread: float
    """Of the posterior after the transition: standard deviation, mean over the latent."""
    diverged: bool
    ended: bool
    """The episode is over."""
    metrics: dict[str, float]
    """The task's own figures, at the end of an episode."""


class Pilot(Protocol):
    """Whoever acts: a `Runtime`, or a controller that is to be compared with one."""

    @property
    def posterior(self) -> Posterior: ...

    def new_episode(self) -> None: ...

    def act(self, observation: Any) -> ActResult: ...

    def observe(self, next_observation: Any, reward: float | None, cost: float | None) -> Evidence: ...


@dataclass(frozen=True)
class Caution:
    """How a bundle is run, where it is not run as it was calibrated."""

    eta: float | None = None
    """One risk level throughout instead of the schedule."""
    caution: str | None = None
    """`none`, `refinement`, `actor` or `both` instead of the manifest's."""
    deadline: float = 0.6
    """Share of the control period; inf for numbers that do not depend on how busy the machine is."""
    detect_changes: bool = True
    over_budget: float | None = 2.0
    """As in `Limits`."""
    refinement: Refinement | None = None
    """Numbers of Algorithm 1 instead of the manifest's."""
    precision: str = "float32"
    """What the networks compute in, `float32` or `float64`."""

    def __post_init__(self) -> None:
        if self.caution == NO_CAUTION and self.eta:
            raise ValueError(f"Without caution eta is 0, and not {self.eta:g}.")


def load_runtime(bundle: Path, caution: Caution, journal: Path | None = None, freeze: bool = True) -> Runtime:
    """A runtime for a simulated robot, armed; raises `Refused` with one sentence."""
    # A simulator has no sensor noise: a robot that stands still shows the same numbers, and no sensor is stuck.
    limits = Limits(
        deadline=caution.deadline,
        guard=replace(GuardSettings(), stuck_steps=0),
        detect_changes=caution.detect_changes,
        over_budget=caution.over_budget,
    )
    without = caution.caution == NO_CAUTION
    try:
        runtime = Runtime.load(
            bundle,
            limits=limits,
            journal=journal,
            eta=0.0 if without else caution.eta,
            caution=None if without else caution.caution,
            refinement=caution.refinement,
            precision=caution.precision,
            freeze=freeze,
        )
    except Refused:
        # The bundle is not to blame for what somebody else asked of it.
        if caution.caution in ("actor", "both") and not bundles.load(bundle).manifest.network.risk_conditioned:
            raise Refused(
                f"Caution '{caution.caution}' needs an actor that takes a risk level, and that of {bundle} takes none."
            ) from None
        raise
    runtime.arm()
    return runtime


def meet_a_new_world(runtime: Runtime) -> None:
    """Forget everything that was learnt, and be armed again."""
    runtime.reset()
    runtime.restore({}, "reset")
    runtime.arm()


def moments(
    runtime: Pilot,
    env: gymnasium.Env[Any, Any],
    episodes: int,
    seed: int,
    pace: Callable[[], Iterator[int]] | None = None,
) -> Iterator[Moment]:
    """Deploy for a number of episodes.

    Args:
        runtime: armed, if it is a `Runtime`.
        env: checked against the runtime's manifest.
        episodes: how many.
        seed: chooses the scenes.
        pace: gives a new `Loop` for every episode, for decisions in real time; None takes no time in between.
    """
    for episode in range(episodes):
        observation, _ = env.reset(seed=seed if episode == 0 else None)
        runtime.new_episode()
        ticks = None if pace is None else pace()
        yield from _episode(runtime, env, episode, np.asarray(observation), ticks)


def real_time(runtime: Runtime) -> Callable[[], Iterator[int]]:
    """Paces decisions by the manifest's control period."""
    return lambda: iter(Loop(1.0 / runtime.bundle.manifest.task.control_period))


def _episode(
    runtime: Pilot, env: gymnasium.Env[Any, Any], episode: int, observation: np.ndarray, ticks: Iterator[int] | None
) -> Iterator[Moment]:
    decision, ended = 0, False
    while not ended:
        if ticks is not None:
            next(ticks)
        result = runtime.act(observation)
        following, reward, terminated, truncated, info = env.step(result.action)
        cost = cost_of(info, decision)
        diverged, ended = bool(info.get("diverged", False)), bool(terminated or truncated)
        following = np.asarray(following)
        # A world that left the finite numbers has a cost and teaches nothing.
        evidence = runtime.observe(following, None if diverged else float(reward), cost)
        known = runtime.posterior.precision_sum
        yield Moment(
            episode=episode,
            decision=decision,
            observation=observation,
            result=result,
            evidence=evidence,
            reward=float(reward),
            cost=cost,
            spread=float(np.mean(1.0 / np.sqrt(1.0 + known))) if len(known) else 0.0,
            diverged=diverged,
            ended=ended,
            metrics={name[len("metric_") :]: float(v) for name, v in info.items() if name.startswith("metric_")},
        )
        observation, decision = following, decision + 1


def cost_of(info: Mapping[str, Any], decision: int) -> float:
    """What a step cost; a budget that is kept with a cost nobody knows is not kept, so anything doubtful is refused."""
    if "cost" not in info:
        raise ValueError("The environment reports no cost: every step needs info['cost'].")
    found = np.asarray(info["cost"])
    # float() would also read a text.
    cost = float(found.item()) if found.size == 1 and found.dtype.kind in "biuf" else math.nan
    if not (math.isfinite(cost) and cost >= 0.0):
        raise ValueError(
            f"The environment reported a cost of {info['cost']} at decision {decision + 1}; every step needs a finite "
            "cost of at least 0."
        )
    return cost


class Records(NamedTuple):
    """Deployments in many worlds; a decision that an episode did not reach is NaN."""

    parameters: dict[str, np.ndarray]
    """Physical parameters, [world]."""
    episode_return: np.ndarray
    """[world, episode], as are the next three."""
    episode_cost: np.ndarray
    decisions: np.ndarray
    """Length of each episode."""
    diverged: np.ndarray
    reward: np.ndarray
    """[world, episode, decision], as are all below."""
    cost: np.ndarray
    eta: np.ndarray
    spread: np.ndarray
    steps: np.ndarray
    """Refinement steps."""
    latency: np.ndarray
    """Seconds from observation to action."""
    surprise: np.ndarray
    changed: np.ndarray
    """1 where the runtime found that the world has changed."""
    policy: np.ndarray
    """1 where the policy acted, 0 where a held action or the fallback was sent."""


def deploy_in_worlds(
    bundle: Path, caution: Caution, task: str, preset: str | None, shift: str, worlds: int, episodes: int, seed: int
) -> Records:
    """The same bundle in many worlds of a shift, each met for the first time.

    Args:
        bundle: folder or zip.
        caution: how to run it; give it a deadline of inf where the numbers must not depend on the machine.
        task, preset, shift: where the worlds come from.
        worlds: how many, with physical parameters of their own.
        episodes: in each world; what is learnt is kept from one to the next, and forgotten between worlds.
        seed: chooses worlds and scenes.
    """
    runtime = load_runtime(bundle, caution, freeze=False)
    manifest = runtime.bundle.manifest
    drawn = deployment_environment.draw_parameters(task, preset, shift, seed, worlds)
    rows: list[list[list[Moment]]] = []
    for index, parameters in enumerate(drawn):
        env = deployment_environment.world(manifest, task, preset, parameters)
        meet_a_new_world(runtime)
        by_episode: list[list[Moment]] = [[] for _ in range(episodes)]
        for moment in moments(runtime, env, episodes, seed + index):
            by_episode[moment.episode].append(moment)
        rows.append(by_episode)
    runtime.close()
    longest = max(len(episode) for world in rows for episode in world)

    def table(number: Callable[[Moment], float]) -> np.ndarray:
        found = np.full((worlds, episodes, longest), np.nan)
        for i, world in enumerate(rows):
            for j, episode in enumerate(world):
                found[i, j, : len(episode)] = [number(moment) for moment in episode]
        return found

    reward, cost = table(lambda m: m.reward), table(lambda m: m.cost)
    return Records(
        parameters={name: np.array([row[name] for row in drawn]) for name in drawn[0]},
        episode_return=np.nansum(reward, axis=2),
        episode_cost=np.nansum(cost, axis=2),
        decisions=np.sum(~np.isnan(reward), axis=2),
        diverged=np.nansum(table(lambda m: m.diverged), axis=2) > 0,
        reward=reward,
        cost=cost,
        eta=table(lambda m: m.result.eta),
        spread=table(lambda m: m.spread),
        steps=table(lambda m: m.result.k_used),
        latency=table(lambda m: m.result.t_total_ns * 1e-9),
        surprise=table(lambda m: m.evidence.surprise),
        changed=table(lambda m: m.evidence.changed),
        policy=table(lambda m: m.result.source in ("nominal", "refined")),
    )
