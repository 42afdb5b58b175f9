"""The first thing to run: the shipped bundles in worlds they never saw, with their caution, without it, and a baseline.

A task without a bundle is played by its scripted controller, so that there is something to see at any time.
"""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ashore.experiments import demo_drive, demo_figure, deployment_report, provenance, report
from ashore.experiments.demo_crew import Crew, crew, tell
from ashore.experiments.demo_drive import News, World
from ashore.experiments.demo_film import Take, film
from ashore.experiments.demo_outcome import Outcome, outcome
from ashore.experiments.demo_plan import BUNDLES, Plan, Planned, Show, Way
from ashore.experiments.demo_verdict import verdict
from ashore.experiments.deployment import Moment
from ashore.experiments.deployment_report import Tally
from ashore.experiments.play import PlayConfig, Played, play
from ashore.experiments.report_sources import COMPARISON

FIGURE, SCRIPTED = "caution.png", "scripted.png"


@dataclass(frozen=True)
class DemoConfig:
    """Deploy the shipped bundles in worlds they never saw, beside the same policy without caution and a baseline."""

    out: Path = Path("demo")
    """Folder for the results."""
    bundles: Path = BUNDLES
    """Folder with the bundles point_goal2 and platoon and their baselines point_goal2_nominal and platoon_nominal;
    a task without a bundle is played by its scripted controller."""
    seed: int = 0
    """Chooses the worlds and their scenes."""
    worlds: int | None = None
    """Worlds of each task, instead of as many as take about a minute."""
    processes: int = 2
    """Deployments at a time."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"A seed must not be negative, as {self.seed} is.")
        for name, number in (("world", self.worlds), ("process", self.processes)):
            if number is not None and number < 1:
                raise ValueError(f"There must be at least one {name}, not {number}.")


class Shown(NamedTuple):
    """One show that was deployed."""

    planned: Planned
    outcomes: list[Outcome]
    sentences: list[str]
    video: Path


class Demo(NamedTuple):
    """What was shown, and where to see it."""

    deployed: list[Shown]
    scripted: dict[str, Played]
    """By task."""
    figures: list[Path]
    report: Path


class _Running(NamedTuple):
    """A show on its way; moments of a world are None until they are there."""

    planned: Planned
    worlds: list[World]
    done: list[list[list[Moment] | None]]
    """[way][world]."""
    video: Path


def demo(config: DemoConfig, planned: Plan, watch: Callable[[News], None]) -> Demo:
    """Show everything that was planned.

    Args:
        config: where to and how much.
        planned: from `demo_plan.plan`.
        watch: is told how the deployments stand.
    """
    config.out.mkdir(parents=True, exist_ok=True)
    _clear(config.out, [*(one.show for one in planned.deployed), *planned.scripted])
    running = [_begin(config, one) for one in planned.deployed]
    with crew(config.processes) as workers:
        scripted = _deploy(workers, config, planned.scripted, running, watch)
    deployed = [_conclude(config.out, show) for show in running]
    figures = []
    if deployed:
        found = {one.planned.show.task: (one.planned, one.outcomes) for one in deployed}
        figures.append(demo_figure.draw(config.out / FIGURE, found))
    if scripted:
        figures.append(demo_figure.draw_scripted(config.out / SCRIPTED, scripted))
    content = {"remarks": planned.remarks, "shows": [_side_by_side(one) for one in deployed]}
    (config.out / COMPARISON).write_text(json.dumps(content) + "\n")
    return Demo(deployed, scripted, figures, report.write_report(config.out).path)


def _begin(config: DemoConfig, planned: Planned) -> _Running:
    worlds = demo_drive.draw_worlds(planned.show, config.seed)
    empty: list[list[list[Moment] | None]] = [[None] * len(worlds) for _ in planned.ways]
    return _Running(planned, worlds, empty, _video(config.out, planned.show))


def _deploy(
    workers: Crew,
    config: DemoConfig,
    scripted: Sequence[Show],
    running: Sequence[_Running],
    watch: Callable[[News], None],
) -> dict[str, Played]:
    """Drive every way through every world, and film each show as soon as its first world was met in all ways."""
    plays: dict[Future[Any], Show] = {}
    drives: dict[Future[Any], tuple[_Running, int, int]] = {}
    for show in scripted:
        played = PlayConfig(show.task, seed=config.seed, out=config.out)
        plays[workers.submit(_play, played, _video(config.out, show))] = show
    # Shows take turns, so that all of them are under way from the beginning and end at about the same time.
    turns = [(world.number / len(show.worlds), show, world) for show in running for world in show.worlds]
    for _, show, world in sorted(turns, key=lambda turn: turn[0]):
        for place, way in enumerate(show.planned.ways):
            future = workers.submit(_drive, show.planned.show, way, world)
            drives[future] = (show, place, world.number)
    found: dict[str, Played] = {}
    for future in workers.finished(watch):
        result = future.result()
        if future in plays:
            found[plays[future].task] = result
        elif future in drives:
            show, place, number = drives[future]
            show.done[place][number] = result
            takes = _takes(show) if number == 0 else []
            if takes:
                shown = show.planned.show
                limit = show.planned.manifest.budget.per_episode
                workers.submit(film, show.video, shown.task, show.worlds[0], takes, limit, shown.film_every)
    return found


def _takes(running: _Running) -> list[Take]:
    """What all ways did in the first world; nothing as long as one of them is on its way."""
    firsts = [done[0] for done in running.done]
    return [
        Take(way.label, moments, way.identifies)
        for way, moments in zip(running.planned.ways, firsts, strict=True)
        if moments is not None and None not in firsts
    ]


def _drive(show: Show, way: Way, world: World) -> list[Moment]:
    return demo_drive.drive(show, way, world, tell)


def _play(config: PlayConfig, video: Path) -> Played:
    played = play(config)
    return played._replace(video=played.video.replace(video))


def _conclude(out: Path, running: _Running) -> Shown:
    """Count, and leave every way's decisions as a deployment that a report can be about."""
    planned = running.planned
    outcomes = []
    for way, done in zip(planned.ways, running.done, strict=True):
        by_world = [moments for moments in done if moments is not None]
        _write(out / planned.show.name / way.name, planned, way, running.worlds, by_world)
        outcomes.append(outcome(planned, way, by_world))
    return Shown(planned, outcomes, verdict(planned.show.task, outcomes), running.video)


def _write(
    folder: Path, planned: Planned, way: Way, worlds: Sequence[World], by_world: Sequence[Sequence[Moment]]
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tally, show = Tally(planned.manifest), planned.show
    with (folder / deployment_report.LOG).open("w") as log:
        for world, moments in zip(worlds, by_world, strict=True):
            for moment in moments:
                numbered = moment._replace(episode=world.number * show.episodes + moment.episode)
                tally.add(numbered)
                log.write(json.dumps({"world": world.number, **deployment_report.line(numbered)}) + "\n")
    facts = {
        "task": show.task,
        "shift": show.shift,
        "way": way.label,
        "bundle": None if way.bundle is None else str(way.bundle),
        "episodes_per_world": show.episodes,
        "control_period": planned.manifest.task.control_period,
        "worlds": [{"parameters": dict(world.parameters), "scenes": world.scenes} for world in worlds],
    }
    (folder / deployment_report.SUMMARY).write_text(json.dumps({**facts, **tally.summary()}, indent=2) + "\n")
    provenance.note(folder)


def _side_by_side(shown: Shown) -> dict[str, Any]:
    show = shown.planned.show
    return {
        "task": show.task,
        "shift": show.shift,
        "worlds": show.worlds,
        "episodes": show.episodes,
        "budget_per_episode": shown.planned.manifest.budget.per_episode,
        "sentences": shown.sentences,
        "ways": [one.as_dict() for one in shown.outcomes],
    }


def _video(out: Path, show: Show) -> Path:
    return out / f"{show.name}.mp4"


def _clear(out: Path, shows: Sequence[Show]) -> None:
    """Take away what an earlier demo left and this one may not write, so that the page is about this one alone."""
    for show in shows:
        _video(out, show).unlink(missing_ok=True)
        for log in (out / show.name).glob(f"*/{deployment_report.LOG}"):
            for name in (deployment_report.LOG, deployment_report.SUMMARY, provenance.FILE):
                log.with_name(name).unlink(missing_ok=True)
    for name in (FIGURE, SCRIPTED, COMPARISON):
        (out / name).unlink(missing_ok=True)
