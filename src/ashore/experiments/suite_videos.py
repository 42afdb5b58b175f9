"""A video of every method of a suite: its recorded policy in the same unseen world, from the same start.

A policy is exported and acts in the NumPy runtime as the suite evaluates it: ours by its schedule, everybody else at
eta = 0, a controller told the true physics. There is no deadline, and nothing watches for changes.
"""

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from ashore import names
from ashore.environments import randomisation, tasks
from ashore.environments.gymnasium_adapter import AshoreEnv
from ashore.experiments import deployment, deployment_environment
from ashore.experiments.demo_drive import World
from ashore.experiments.demo_film import Take, film
from ashore.experiments.demo_plan import SHOWS
from ashore.experiments.deployment import NO_CAUTION, Caution, Pilot
from ashore.experiments.exporting import export_run, load_trained, read_calibration
from ashore.experiments.scripted_pilot import ScriptedPilot
from ashore.experiments.suite_cells import CALIBRATED, DECISION_WORK, Plan
from ashore.experiments.suite_results import method_name
from ashore.experiments.suites import FIXED_LEVELS
from ashore.methods import registry
from ashore.methods.base import Method
from ashore_runtime import Refused
from ashore_runtime.bundle import Bundle

_LONGEST = 300
"""Pictures of a video, about: a longer episode is shown faster."""
_SHIFTS = {show.task: show.shift for show in SHOWS}
"""Where nobody names one: the demo's."""
_BY_SCHEDULE = Caution(deadline=math.inf, detect_changes=False, over_budget=None)
_NEUTRAL = Caution(caution=NO_CAUTION, deadline=math.inf, detect_changes=False, over_budget=None)


@dataclass(frozen=True)
class VideoConfig:
    """Which seed of every method is filmed, and where."""

    shift: str | None = None
    """Where the world comes from; medium for PointGoal2 and deploy for Platoon if left out."""
    seed: int = 0
    """Chooses the world and its scene."""
    seed_index: int = 0
    """Which training seed of every method."""

    def __post_init__(self) -> None:
        if min(self.seed, self.seed_index) < 0:
            raise ValueError("Seeds must not be negative.")


class Video(NamedTuple):
    """One method, filmed, and what its episode came to."""

    title: str
    path: Path
    returned: float
    cost: float
    budget: float


def film_cells(
    plans: Sequence[Plan], folder: Path, config: VideoConfig, tell: Callable[[Video], None]
) -> tuple[list[Video], list[str]]:
    """Film the methods among some cells.

    Args:
        plans: from `suite_cells.plans`.
        folder: for the videos, TASK-SHIFT-METHOD.mp4.
        config: which seed, and where.
        tell: is told of every video as it is there.

    Returns:
        The videos, and a sentence about every cell that is left out.
    """
    methods = [plan for plan in plans if plan.cell.method != DECISION_WORK]
    worlds = {task: _draw(task, config) for task in dict.fromkeys(plan.cell.task for plan in methods)}
    videos: list[Video] = []
    left_out: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        crew = _Crew(Path(scratch), config.seed_index)
        for plan in methods:
            shift, world = worlds[plan.cell.task]
            try:
                aboard = crew.board(plan, world)
            except (ValueError, Refused) as why:
                left_out.append(f"{plan.title} is left out: {why}")
                continue
            path = folder / f"{plan.cell.task}-{shift}-{plan.cell.method}.mp4"
            videos.append(_film(path, plan, world, aboard))
            tell(videos[-1])
    return videos, left_out


def _draw(task: str, config: VideoConfig) -> tuple[str, World]:
    """The shift of a task and the world that everybody meets."""
    family = tasks.lookup(task)
    shifts = family.describe(family.presets[family.default_preset]).shifts
    shift = config.shift or _SHIFTS.get(task, list(shifts)[-1])
    names.lookup("shift", shift, shifts)
    (parameters,) = deployment_environment.draw_parameters(task, None, shift, config.seed, 1)
    return shift, World(0, parameters, (config.seed,))


class _Aboard(NamedTuple):
    """Who acts, and in what."""

    pilot: Pilot
    env: AshoreEnv
    identifies: bool


class _Crew:
    """Makes pilots of cells; a run that stands behind two of them is exported once."""

    def __init__(self, scratch: Path, seed_index: int) -> None:
        self._scratch, self._seed_index = scratch, seed_index
        self._bundles: dict[Path, Bundle] = {}

    def board(self, plan: Plan, world: World) -> _Aboard:
        """A pilot in the world; a ValueError in one sentence where there is none."""
        if plan.cell.method in FIXED_LEVELS:
            raise ValueError("a fixed risk level is measured and not filmed.")
        task, method = plan.cell.task, registry.lookup(plan.cell.method)
        if plan.run is None:
            env = AshoreEnv(task, None, world.parameters)
            return _Aboard(_controller(task, method, world.parameters, env), env, identifies=False)
        bundle = self._exported(plan.run)
        careful = plan.cell.method in CALIBRATED
        if careful and bundle.calibration is None:
            raise ValueError(f"seed {self._seed_index} of {plan.run} is not calibrated.")
        runtime = deployment.load_runtime(bundle.path, _BY_SCHEDULE if careful else _NEUTRAL, freeze=False)
        env = deployment_environment.world(bundle.manifest, task, None, world.parameters)
        return _Aboard(runtime, env, bundle.networks.identifies)

    def _exported(self, run: Path) -> Bundle:
        if run not in self._bundles:
            trained = load_trained(run, self._seed_index)
            place = self._scratch / str(len(self._bundles))
            self._bundles[run] = export_run(trained, place, read_calibration(trained))
        return self._bundles[run]


def _controller(task: str, method: Method, parameters: Mapping[str, float], env: AshoreEnv) -> ScriptedPilot:
    if method.controller is None:
        raise ValueError(method.instead)
    family = tasks.lookup(task)
    believed = randomisation.from_names(env.description.shifts["nominal"], family.parameters_type, parameters)
    policy = jax.jit(method.controller(family.make(family.presets[family.default_preset]), believed))
    # One key for all time, as in the suite's evaluation.
    key = jax.random.key(0)
    return ScriptedPilot(lambda observation: np.asarray(policy(observation, key)), env.description)


def _film(path: Path, plan: Plan, world: World, aboard: _Aboard) -> Video:
    pilot, env, identifies = aboard
    moments = list(deployment.moments(pilot, env, 1, world.scenes[0]))
    title, description = method_name(plan.cell.method), env.description
    every = math.ceil(description.decisions_per_episode / _LONGEST)
    film(path, plan.cell.task, world, [Take(title, moments, identifies)], description.budget.per_episode, every)
    returned, cost = sum(moment.reward for moment in moments), sum(moment.cost for moment in moments)
    return Video(title, path, returned, cost, description.budget.per_episode)
