"""`ashore suite videos NAME`: one video per method of a suite, all in the same unseen world."""

from dataclasses import dataclass
from pathlib import Path

from ashore import names
from ashore.cli.options import UsageError
from ashore.cli.suite_book import BookOptions
from ashore.compilation_cache import keep_compiled_programs
from ashore.experiments import suite_cells, suite_videos
from ashore.experiments.suite_cells import Request
from ashore.experiments.suite_videos import Video, VideoConfig
from ashore.experiments.suites import SUITES


@dataclass(frozen=True, kw_only=True)
class Options(BookOptions, VideoConfig):
    """Film every method of a suite in the same unseen world, from its recorded policies; one video each."""

    only: str | None = None
    """Some of the cells, such as task=Platoon,method=nominal; a key given twice means either."""
    to: Path | None = None
    """Folder for the videos; OUT/PRESET/reports/NAME/videos if left out."""


def run(options: Options) -> int:
    """Film who can be filmed, and say where it is, what it came to and who is left out."""
    keep_compiled_programs()
    preset = options.preset or names.lookup("suite", options.name, SUITES).preset
    folder = options.to or suite_cells.reports(options.out, preset, options.name) / "videos"
    try:
        plans = suite_cells.plans(Request(options.name, options.out, preset, only=options.only))
        videos, left_out = suite_videos.film_cells(plans, folder, options, _say)
    except ValueError as mistake:
        raise UsageError(str(mistake)) from mistake
    for sentence in left_out:
        print(sentence)
    if not videos:
        print("nothing to film yet")
    return 0


def _say(video: Video) -> None:
    spent = f"return {video.returned:.1f}, cost {video.cost:.1f} of {video.budget:g}"
    print(f"video: {video.path} ({video.title}: {spent})", flush=True)
