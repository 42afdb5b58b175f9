"""The real worlds, in C MuJoCo, with sensors that fail now and then: T1 to T6 where the numbers mean something.

The policy is a random one, which drives worse than any trained one: more of the world is seen.
"""

import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest

from ashore.environments import tasks
from ashore.environments.gymnasium_adapter import AshoreEnv
from ashore_runtime import GuardSettings, Limits, Mode, Reason, Runtime
from ashore_runtime.reasons import OBSERVATION_FAULTS
from ashore_runtime.schema import Field
from runtime import small_bundle
from runtime.fake_clock import FakeClock
from volumes import volume

DECISIONS = 150
# A simulator has no sensor noise: what stands still is not stuck.
LIMITS = Limits(guard=GuardSettings(stuck_steps=0), deadline=float("inf"))


def _in(observation: np.ndarray, place: int, value: float) -> np.ndarray:
    changed = observation.copy()
    changed[place % len(changed)] = value
    return changed


FAULTS = {
    "not a number": lambda seen, place: _in(seen, place, np.nan),
    "infinite": lambda seen, place: _in(seen, place, np.inf),
    "far outside": lambda seen, place: _in(seen, place, 1e6),
    "one too many": lambda seen, place: np.append(seen, 0.0),
    "lost": lambda seen, place: None,
}
COSTS = (None, -1.0, np.nan)


@functools.cache
def world(name: str) -> AshoreEnv:
    return AshoreEnv(name, None, {})


@pytest.fixture(scope="module", params=list(tasks.TASKS))
def deployed(request, tmp_path_factory) -> tuple[AshoreEnv, Path]:
    """A world, and a bundle of random weights for its observation and action."""
    env = world(request.param)
    description = env.description
    observation, action = (
        tuple(Field(f.name, f.unit, f.low, f.high) for f in fields)
        for fields in (description.observation, description.action)
    )
    facts = small_bundle.manifest(observation=observation, action=action)
    period = dataclasses.replace(facts.task, control_period=description.control_period)
    facts = dataclasses.replace(facts, task=period)
    return env, small_bundle.write(tmp_path_factory.mktemp("worlds") / "random.bundle", facts)


def test_an_honest_world_is_never_accused(deployed):
    env, folder = deployed
    runtime = Runtime.load(folder, limits=LIMITS, clock=FakeClock(), freeze=False)
    runtime.arm()
    for episode in range(volume(2, 40)):
        observation, _ = env.reset(seed=episode)
        runtime.new_episode()
        for _ in range(DECISIONS):
            result = runtime.act(observation)
            assert not result.reasons & (OBSERVATION_FAULTS | Reason.CLIPPED | Reason.ERROR), result.reasons.words()
            observation, reward, terminated, truncated, info = env.step(result.action)
            assert runtime.observe(observation, float(reward), info["cost"]).used
            if terminated or truncated:
                break


def test_a_world_whose_sensors_fail_now_and_then(deployed):
    env, folder = deployed
    clock = FakeClock()
    runtime = Runtime.load(folder, limits=LIMITS, clock=clock, freeze=False)
    runtime.arm()
    generator = np.random.default_rng(0)
    period = round(env.description.control_period * 1e9)
    injected = 0
    for episode in range(volume(3, 60)):
        observation, _ = env.reset(seed=episode)
        runtime.new_episode()
        for _ in range(DECISIONS):
            clock.time += period
            kind = generator.choice(list(FAULTS)) if generator.random() < 0.1 else None
            stale = generator.random() < 0.03
            shown = observation if kind is None else FAULTS[kind](observation, int(generator.integers(1000)))
            result = runtime.act(shown, t_obs=clock.time - 3 * period * stale)
            bad = kind is not None or stale
            injected += bad
            assert (env.action_space.contains(result.action)) and bool(result.reasons & OBSERVATION_FAULTS) == bad
            assert not (bad and result.source in ("nominal", "refined"))
            observation, reward, terminated, truncated, info = env.step(result.action)
            cost = info["cost"] if generator.random() < 0.9 else COSTS[int(generator.integers(3))]
            before, eta = runtime.posterior.count, runtime.eta
            evidence = runtime.observe(observation, float(reward), cost, t=clock.time + period)
            believed = cost is not None and cost >= 0.0
            assert not (evidence.used and (bad or not believed))
            assert believed or (runtime.posterior.count == before and runtime.eta >= eta)
            if runtime.state is Mode.FALLBACK:
                runtime.reset()
                runtime.arm()
            if terminated or truncated:
                break
    assert injected > 20 and runtime.health()["tallies"]["errors"] == 0


NOISE = 1e-4
"""Of a sensor, in the unit of the observation: no two readings of anything are the same."""
WATCHFUL = Limits(guard=GuardSettings(stuck_steps=5, stuck_element_after=5), deadline=float("inf"))


@pytest.mark.parametrize("what", ["all sensors", "one sensor"])
def test_with_noise_a_frozen_sensor_is_found_and_an_honest_one_is_never_accused(deployed, what):
    env, folder = deployed
    generator = np.random.default_rng(0)
    low, high = env.observation_space.low, env.observation_space.high
    runtime = Runtime.load(folder, limits=WATCHFUL, clock=FakeClock(), freeze=False)
    for episode in range(volume(4, 100)):
        observation, _ = env.reset(seed=episode)
        runtime.reset()
        runtime.arm()
        # Every other episode nothing fails.
        fails_at = DECISIONS if episode % 2 else int(generator.integers(20, 60))
        frozen, failed, ended = observation, np.arange(len(observation)), False
        for decision in range(DECISIONS):
            seen = (observation + NOISE * generator.normal(size=observation.shape)).astype(np.float32)
            if decision == fails_at:
                frozen = seen.copy()
                if what == "one sensor":
                    # Zero and the bounds are where an honest lidar rests too, and where nothing is looked for.
                    elsewhere = (seen > low + 0.01) & (seen < high - 0.01) & (np.abs(seen) > 0.01)
                    failed = generator.choice(np.flatnonzero(elsewhere), 1)
            if decision >= fails_at:
                seen[failed] = frozen[failed]
            result = runtime.act(seen)
            # The first frozen reading is an honest one. The fifth that is the same is one too many.
            if decision == fails_at + 4:
                assert Reason.STUCK in result.reasons and result.source == "held"
                break
            assert not result.reasons & (OBSERVATION_FAULTS | Reason.ERROR), result.reasons.words()
            observation, reward, terminated, truncated, info = env.step(result.action)
            assert runtime.observe(observation, float(reward), info["cost"]).used
            ended = terminated or truncated
            if ended:
                break
        assert not (ended and fails_at < DECISIONS), "the episode was over before anything could be found"
