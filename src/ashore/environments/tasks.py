"""The registry of worlds: to add one, add an entry (see docs/add_a_task.md)."""

import contextlib
import importlib
import sys
from collections.abc import Generator
from pathlib import Path

from ashore import names
from ashore.environments.platoon.c_world import PlatoonCWorld
from ashore.environments.platoon.config import PRESETS as PLATOON_PRESETS
from ashore.environments.platoon.config import describe as describe_platoon
from ashore.environments.platoon.parameters import PlatoonParameters
from ashore.environments.platoon.scripted import HumanDriver
from ashore.environments.platoon.task import Platoon
from ashore.environments.point_goal.c_world import PointGoalCWorld
from ashore.environments.point_goal.config import PRESETS as POINT_GOAL_PRESETS
from ashore.environments.point_goal.parameters import PointGoalParameters
from ashore.environments.point_goal.scripted import ScriptedDriver
from ashore.environments.point_goal.task import PointGoal
from ashore.environments.point_goal.task import describe as describe_point_goal
from ashore.environments.task_family import TaskFamily

TASKS: dict[str, TaskFamily] = {
    "PointGoal2": TaskFamily(
        summary="A point robot drives to goal after goal between hazards and vases.",
        presets=POINT_GOAL_PRESETS,
        parameters_type=PointGoalParameters,
        describe=describe_point_goal,
        make=PointGoal,
        make_c_world=PointGoalCWorld,
        scripted=ScriptedDriver,
    ),
    "Platoon": TaskFamily(
        summary="A car among human drivers damps the speed oscillations of traffic.",
        presets=PLATOON_PRESETS,
        parameters_type=PlatoonParameters,
        describe=describe_platoon,
        make=Platoon,
        make_c_world=PlatoonCWorld,
        scripted=HumanDriver,
    ),
}


def lookup(name: str) -> TaskFamily:
    """The task family called `name`, or `module:NAME` for one that lives elsewhere.

    An unknown name is an error with the nearest match.
    """
    return _imported(name) if ":" in name else names.lookup("task", name, TASKS)


def _imported(name: str) -> TaskFamily:
    module, _, attribute = name.partition(":")
    try:
        with importing_from_here():
            found = getattr(importlib.import_module(module), attribute, None)
    except ImportError as problem:
        raise ValueError(f"There is no task '{name}': {problem}.") from problem
    if not isinstance(found, TaskFamily):
        raise ValueError(f"There is no task '{name}': {module} has no TaskFamily of that name.")
    return found


@contextlib.contextmanager
def importing_from_here() -> Generator[None, None, None]:
    """Also from the current folder, where an installed command does not look for modules by itself."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
