"""One way to act in one world of the demo, step by step in the NumPy runtime behind Gymnasium.

All ways meet the same worlds and, in every episode, the same scene: each episode has a seed of its own, because what a
policy does in one would otherwise change what the next one is drawn from.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ashore.environments import tasks
from ashore.environments.gymnasium_adapter import AshoreEnv
from ashore.experiments import deployment, deployment_environment
from ashore.experiments.demo_plan import Show, Way
from ashore.experiments.deployment import Caution, Moment, Pilot
from ashore.experiments.scripted_pilot import ScriptedPilot
from ashore_runtime import Runtime

_EVERY = 0.1
"""Seconds between two pieces of news."""


class World(NamedTuple):
    """One world of a show."""

    number: int
    """From 0."""
    parameters: Mapping[str, float]
    scenes: tuple[int, ...]
    """A seed for every episode."""


class News(NamedTuple):
    """How a deployment stands."""

    task: str
    way: str
    world: int
    episode: int
    eta: float
    spread: float
    cost: float
    """Of the episode so far."""
    returned: float
    """As is this."""
    world_ended: bool


def draw_worlds(show: Show, seed: int) -> list[World]:
    """The worlds of a show; they depend on the seed alone."""
    drawn = deployment_environment.draw_parameters(show.task, None, show.shift, seed, show.worlds)
    return [
        World(number, parameters, tuple(_scene(seed, number, episode) for episode in range(show.episodes)))
        for number, parameters in enumerate(drawn)
    ]


def drive(show: Show, way: Way, world: World, tell: Callable[[News], None]) -> list[Moment]:
    """Meet a world for the first time, for all its episodes."""
    pilot, env = _board(show, way, world)
    kept: list[Moment] = []
    cost = returned = last = 0.0
    for moment in _episodes(pilot, env, world):
        first = moment.decision == 0
        cost, returned = (0.0 if first else cost) + moment.cost, (0.0 if first else returned) + moment.reward
        kept.append(moment)
        world_ended = moment.ended and moment.episode == show.episodes - 1
        if world_ended or time.monotonic() - last > _EVERY:
            last = time.monotonic()
            where = (show.task, way.name, world.number, moment.episode)
            tell(News(*where, moment.result.eta, moment.spread, cost, returned, world_ended))
    env.close()
    return kept


def _board(show: Show, way: Way, world: World) -> tuple[Pilot, AshoreEnv]:
    if way.bundle is None:
        env = AshoreEnv(show.task, None, world.parameters)
        return ScriptedPilot(tasks.lookup(show.task).scripted(env.description), env.description), env
    runtime = _runtime(way.bundle, way.caution)
    deployment.meet_a_new_world(runtime)
    return runtime, deployment_environment.world(runtime.bundle.manifest, show.task, None, world.parameters)


@lru_cache(maxsize=8)
def _runtime(path: Path, caution: Caution) -> Runtime:
    """Loading verifies every byte, which takes as long as a hundred decisions: once for all worlds."""
    return deployment.load_runtime(path, caution, freeze=False)


def _episodes(pilot: Pilot, env: AshoreEnv, world: World) -> Iterator[Moment]:
    for episode, scene in enumerate(world.scenes):
        for moment in deployment.moments(pilot, env, 1, scene):
            yield moment._replace(episode=episode)


def _scene(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
