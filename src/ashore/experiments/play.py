"""Play a world with its scripted controller and film it."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from ashore import names
from ashore.environments import randomisation, tasks
from ashore.environments.base import CWorld, TaskDescription
from ashore.environments.task_family import Controller
from ashore.environments.video import write_video


@dataclass(frozen=True)
class PlayConfig:
    """Roll a scripted controller through a world, in C MuJoCo, and write a video."""

    task: str
    """Name of the task; `ashore list` shows them."""
    preset: str | None = None
    """Preset of the task; its default one if left out."""
    shift: str = "nominal"
    """Range that the physical parameters are drawn from, anew for every episode."""
    seed: int = 0
    """Chooses the scenes and the physical parameters."""
    episodes: int = 1
    """Episodes to play, one after the other in one video."""
    out: Path = Path("runs/play")
    """Folder for the video."""

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise ValueError(f"There must be at least one episode to play, not {self.episodes}.")
        if self.seed < 0:
            raise ValueError(f"A seed must not be negative, as {self.seed} is.")


class Episode(NamedTuple):
    """What happened in one episode."""

    rewards: np.ndarray
    """Per decision."""
    costs: np.ndarray
    """Per decision."""
    metrics: dict[str, float]
    diverged: bool
    """The world left the finite numbers and the episode ended there; it has no metrics then."""


class Played(NamedTuple):
    """Episodes that were played, and where to see them."""

    description: TaskDescription
    episodes: tuple[Episode, ...]
    video: Path


def play(config: PlayConfig) -> Played:
    """Play and film the episodes that the configuration asks for."""
    family = tasks.lookup(config.task)
    preset = family.default_preset if config.preset is None else config.preset
    settings = names.lookup("preset", preset, family.presets)
    description = family.describe(settings)
    rows = names.lookup("shift", config.shift, description.shifts)
    drawn = randomisation.sample(rows, family.parameters_type, jax.random.key(config.seed), config.episodes)
    generator = np.random.default_rng(config.seed)
    episodes: list[Episode] = []

    def pictures() -> Iterator[np.ndarray]:
        for physics in zip(*(np.asarray(field) for field in drawn), strict=True):
            world = family.make_c_world(settings, family.parameters_type(*physics))
            episodes.append((yield from film(world, family.scripted(description), generator)))

    path = config.out / f"{config.task}-{preset}-{config.shift}-{config.seed}.mp4"
    write_video(path, pictures(), 1.0 / description.control_period)
    return Played(description, tuple(episodes), path)


def film(world: CWorld, controller: Controller, generator: np.random.Generator) -> Generator[np.ndarray, None, Episode]:
    """Play one episode, yield a picture of every moment, and return the `Episode`."""
    description = world.description
    low, high = description.action_bounds
    observation = world.reset(generator)
    yield world.picture()
    rewards, costs = [], []
    for _ in range(description.decisions_per_episode):
        result = world.step(np.clip(controller(observation), low, high))
        if result.diverged:
            return Episode(np.array([*rewards, 0.0]), np.array([*costs, description.max_cost]), {}, True)
        observation = np.asarray(result.observation)
        rewards.append(float(result.reward))
        costs.append(float(result.cost))
        yield world.picture()
        if result.terminated:
            break
    return Episode(np.array(rewards), np.array(costs), world.episode_metrics(), False)
