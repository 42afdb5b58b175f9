"""What the demo shows: which worlds, which bundle in them, and beside whom.

The volumes are chosen so that all of it takes well under two minutes on two cores: a careful decision of a `standard`
policy takes about 9 ms, and everything else is cheap beside that.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import ashore
from ashore.experiments.deployment import NO_CAUTION, Caution
from ashore_runtime import Refused, bundle
from ashore_runtime.schema import Manifest

BUNDLES = Path(ashore.__file__).resolve().parents[2] / "bundles"
"""Where the bundles are that come with the repository."""
CALIBRATED, NEUTRAL, BASELINE = "calibrated", "eta_0", "baseline"
_ENDINGS = ("", ".bundle", ".zip")
_TIMELESS = Caution(deadline=math.inf)
"""Everybody shall see the same, however busy the machine is."""
_NEUTRAL = Caution(caution=NO_CAUTION, deadline=math.inf)


@dataclass(frozen=True)
class Show:
    """One task of the demo."""

    task: str
    name: str
    """Of its bundle, and of what is written about it."""
    shift: str
    worlds: int
    episodes: int
    """In each world; what is learnt is kept from one to the next."""
    baseline: str
    """Method of the baseline: its bundle is called `<name>_<baseline>`."""
    controller: str | None
    """What its scripted controller is called where that may stand in for a baseline, None where it may not."""
    film_every: int
    """Of so many decisions one is filmed, and the video is as much faster than the world."""


SHOWS: tuple[Show, ...] = (
    Show("PointGoal2", "point_goal2", "medium", 10, episodes=2, baseline="nominal", controller=None, film_every=1),
    Show("Platoon", "platoon", "deploy", 5, episodes=1, baseline="nominal", controller="FVD", film_every=4),
)


class Way(NamedTuple):
    """One way to act, in all worlds of a show."""

    name: str
    """Of its folder: `calibrated`, `eta_0` or `baseline`."""
    label: str
    bundle: Path | None
    """None where the task's scripted controller acts."""
    caution: Caution
    identifies: bool
    """Whether it finds out which world it is in: it has a risk level and a belief to show then."""


class Planned(NamedTuple):
    """A show whose bundle is there."""

    show: Show
    manifest: Manifest
    ways: tuple[Way, ...]
    remarks: tuple[str, ...]
    """What is missing, a sentence each."""


class Plan(NamedTuple):
    """Everything that will be shown."""

    deployed: list[Planned]
    scripted: list[Show]
    """Those without a bundle: their scripted controllers play."""
    remarks: list[str]


def plan(folder: Path, worlds: int | None = None) -> Plan:
    """Look for every show's bundle.

    Args:
        folder: where the bundles are.
        worlds: how many of each show; its own number if left out.

    Raises:
        ValueError: one sentence about a bundle that is damaged or of another task.
    """
    made = Plan([], [], [])
    for declared in SHOWS:
        show = declared if worlds is None else replace(declared, worlds=worlds)
        path = _find(folder, show.name)
        if path is None:
            made.scripted.append(show)
            made.remarks.append(
                f"There is no bundle {folder / show.name}: {show.task} is played by its scripted controller instead."
            )
            continue
        planned = _planned(show, path, _find(folder, f"{show.name}_{show.baseline}"))
        made.deployed.append(planned)
        made.remarks.extend(planned.remarks)
    return made


def _planned(show: Show, path: Path, baseline: Path | None) -> Planned:
    found = _load(show, path)
    ways, remarks = [], []
    identifies = found.networks.identifies
    if found.calibration is not None:
        ways.append(Way(CALIBRATED, "calibrated schedule", path, _TIMELESS, identifies))
        ways.append(Way(NEUTRAL, "same at eta = 0", path, _NEUTRAL, identifies))
    else:
        ways.append(Way(NEUTRAL, "policy at eta = 0", path, _NEUTRAL, identifies))
        remarks.append(f"The bundle of {show.task} has no calibration: it runs at eta = 0, with no schedule beside it.")
    if baseline is not None:
        other = _load(show, baseline)
        method = (other.manifest.method or show.baseline).replace("_", " ")
        ways.append(Way(BASELINE, f"baseline: {method}", baseline, _NEUTRAL, other.networks.identifies))
    elif show.controller is not None:
        ways.append(Way(BASELINE, f"baseline: {show.controller}", None, _NEUTRAL, identifies=False))
    else:
        missing = path.parent / f"{show.name}_{show.baseline}"
        remarks.append(f"{show.task} has no baseline here: there is no bundle {missing}.")
    return Planned(show, found.manifest, tuple(ways), tuple(remarks))


def _load(show: Show, path: Path) -> bundle.Bundle:
    """Verified to the last byte, so that nothing begins with a bundle that is damaged."""
    try:
        found = bundle.load(path)
    except Refused as refusal:
        raise ValueError(f"The bundle {path} is refused: {refusal}") from refusal
    if found.manifest.task.name != show.task:
        raise ValueError(f"{path} is a bundle of {found.manifest.task.name}, and the demo needs one of {show.task}.")
    return found


def _find(folder: Path, name: str) -> Path | None:
    """A folder or a zip, as `ashore export` writes them."""
    return next((path for ending in _ENDINGS if (path := folder / f"{name}{ending}").exists()), None)
