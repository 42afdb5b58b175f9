"""The same scene in as many ways as were tried, next to each other in one video: what was done is done once more."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ashore.environments.gymnasium_adapter import AshoreEnv
from ashore.environments.video import write_video
from ashore.experiments.demo_drive import World
from ashore.experiments.demo_plan import Planned
from ashore.experiments.deployment import Moment
from ashore.experiments.deployment_report import Tally, caption

_TITLE = 26
"""Height in pixels of a way's name."""
_GAP = 6
_WIDE = 1.5
"""Pictures that are wider than so many heights stand above each other."""


def film(planned: Planned, world: World, done: Sequence[Sequence[Moment]], path: Path) -> Path:
    """Film the first episode of a world.

    Args:
        planned: the show.
        world: the one that was met.
        done: what every way did there, in the order of `planned.ways`.
        path: the video.
    """
    period = planned.manifest.task.control_period
    return write_video(path, _pictures(planned, world, done), 1.0 / period)


def _pictures(planned: Planned, world: World, done: Sequence[Sequence[Moment]]) -> Iterator[np.ndarray]:
    replays = [
        _replay(planned, world, [m for m in moments if m.episode == 0], way.label)
        for way, moments in zip(planned.ways, done, strict=True)
    ]
    # An episode that is over stays as it ended.
    last: list[np.ndarray] = []
    for parts in zip_longest(*replays):
        last = [part if part is not None else last[place] for place, part in enumerate(parts)]
        yield _beside(last)


def _replay(planned: Planned, world: World, moments: Sequence[Moment], title: str) -> Iterator[np.ndarray]:
    env = AshoreEnv(planned.show.task, None, world.parameters, render_mode="rgb_array")
    env.reset(seed=world.scenes[0])
    tally = Tally(planned.manifest)
    for moment in moments:
        env.step(moment.result.action)
        tally.add(moment)
        if moment.decision % planned.show.film_every == 0:
            yield _titled(caption(env.world.picture(), moment, tally), title)


def _titled(picture: np.ndarray, title: str) -> np.ndarray:
    height, width, _ = picture.shape
    canvas = Image.new("RGB", (width, height + _TITLE), (255, 255, 255))
    canvas.paste(Image.fromarray(picture), (0, _TITLE))
    ImageDraw.Draw(canvas).text((6, 3), title, "black", ImageFont.load_default(17))
    return np.asarray(canvas)


def _beside(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Tall pictures side by side, wide ones above each other."""
    height, width, _ = parts[0].shape
    axis = 0 if width > _WIDE * height else 1
    gap = np.full((_GAP, width, 3) if axis == 0 else (height, _GAP, 3), 190, np.uint8)
    row = [parts[0]]
    for part in parts[1:]:
        row += [gap, part]
    return np.concatenate(row, axis=axis)
