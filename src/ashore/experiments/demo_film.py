"""What was done in a world, done once more before a camera: one way, or as many as were tried next to each other."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ashore.environments.gymnasium_adapter import AshoreEnv
from ashore.environments.video import write_video
from ashore.experiments.demo_drive import World
from ashore.experiments.deployment import Moment

_STRIP = 76
"""Height in pixels of the words above a picture."""
_EDGE = 6
_GAP = 6
_WIDE = 1.5
"""Pictures that are wider than so many heights stand above each other."""
_OVER, _WITHIN, _RETURN = (190, 30, 30), (60, 120, 195), (70, 70, 70)


class Take(NamedTuple):
    """One way through a world."""

    title: str
    """Who acted."""
    moments: Sequence[Moment]
    identifies: bool
    """Whether it finds out which world it is in: there is a risk level and a belief to write down then."""


def film(path: Path, task: str, world: World, takes: Sequence[Take], budget: float, every: int) -> Path:
    """Film the first episode of a world.

    Args:
        path: the video.
        task: whose world.
        world: the one that was met.
        takes: what every way did there.
        budget: cost per episode that is to be kept.
        every: of so many decisions one is filmed; the video is as much faster than the world.
    """
    stages = [AshoreEnv(task, None, world.parameters, render_mode="rgb_array") for _ in takes]
    replays = [_replay(stage, world, take, budget, every) for stage, take in zip(stages, takes, strict=True)]
    return write_video(path, _together(replays), 1.0 / stages[0].description.control_period)


def _together(replays: Sequence[Iterator[np.ndarray]]) -> Iterator[np.ndarray]:
    # An episode that is over stays as it ended.
    last: list[np.ndarray] = []
    for parts in zip_longest(*replays):
        last = [part if part is not None else last[place] for place, part in enumerate(parts)]
        yield _beside(last)


def _replay(stage: AshoreEnv, world: World, take: Take, budget: float, every: int) -> Iterator[np.ndarray]:
    stage.reset(seed=world.scenes[0])
    cost = returned = 0.0
    for moment in take.moments:
        if moment.episode:
            break
        stage.step(moment.result.action)
        cost, returned = cost + moment.cost, returned + moment.reward
        # The last moment is always there: what an episode cost in the end must be seen.
        if moment.decision % every == 0 or moment.ended:
            yield _captioned(stage.world.picture(), take, moment, cost, budget, returned)


def _captioned(
    picture: np.ndarray, take: Take, moment: Moment, cost: float, budget: float, returned: float
) -> np.ndarray:
    """A picture with who acts, what it spends and what it knows above it."""
    height, width, _ = picture.shape
    canvas = Image.new("RGB", (width, height + _STRIP), (255, 255, 255))
    canvas.paste(Image.fromarray(picture), (0, _STRIP))
    pen, large, small = ImageDraw.Draw(canvas), ImageFont.load_default(18), ImageFont.load_default(15)
    colour = _OVER if cost > budget else _WITHIN
    right = width - _EDGE
    pen.text((_EDGE, 3), take.title, "black", large)
    if take.identifies:
        known = f"eta {moment.result.eta:.2f}   spread {moment.spread:.2f}"
        pen.text((right, 5), known, "black", small, anchor="ra")
    pen.text((_EDGE, 31), f"cost {cost:.1f} of {budget:g}", colour, large)
    pen.text((right, 33), f"return {returned:.1f}", _RETURN, small, anchor="ra")
    pen.rectangle((_EDGE, 59, right, 69), outline="black")
    pen.rectangle((_EDGE, 59, _EDGE + min(cost / budget, 1.0) * (right - _EDGE), 69), fill=colour)
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
