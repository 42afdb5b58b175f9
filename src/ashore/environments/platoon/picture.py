"""The platoon from the side, drawn with Pillow alone: no display, no GL, a few milliseconds a frame."""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ashore.environments.platoon.scene import CAR_LENGTH, EGO, FOLLOW, LEADER

WIDTH, HEIGHT = 960, 320
PIXELS_PER_METRE = 8.0
EGO_AT = 560
"""Column of the ego's centre: most of the platoon drives behind it."""
HISTORY = 400
"""How many past decisions the speed traces show."""

_GRASS_TOP, _ROAD_TOP, _WHEELS, _ROAD_BOTTOM = 150, 162, 190, 204
_CHART = (58, 252, 940, 310)
_CHART_STEP = 10.0
"""The chart's upper edge is the next multiple of this, m/s."""

_SKY_TOP, _SKY_BOTTOM = (214, 229, 240), (246, 248, 250)
_HILL, _GRASS, _ROAD, _EDGE = (199, 216, 208), (171, 196, 165), (74, 80, 88), (228, 230, 232)
_INK, _FAINT, _PAPER = (33, 43, 54), (108, 119, 130), (255, 255, 255)
_EGO, _LEADER, _HUMAN = (14, 138, 148), (205, 174, 112), (160, 170, 182)
_GOOD, _WARNING, _BAD = (46, 139, 87), (219, 145, 31), (201, 62, 58)
_CLOSE = 5.0
"""Gap in m below which a gap is drawn as a warning; at zero and below it is a collision."""
_COST_WARNING = 0.75
"""Share of the cost limit from which the bar warns."""


class View(NamedTuple):
    """What the picture shows; cars are ordered from the front, lengths in m, speeds in m/s."""

    position: Sequence[float]
    speed: Sequence[float]
    history: Sequence[tuple[float, float]]
    """Speeds of the ego and of the car ahead after each of the last decisions."""
    pedal: float
    """From -1, full braking, to 1, full throttle."""
    time: float
    cost: float
    """Of the episode so far."""
    cost_limit: float


def draw(view: View) -> np.ndarray:
    """The view as an image, HEIGHT x WIDTH x 3, uint8."""
    travelled = view.position[EGO]
    image = _background().copy()
    canvas = ImageDraw.Draw(image)
    _draw_roadside(canvas, travelled)
    columns = [EGO_AT + PIXELS_PER_METRE * (position - travelled) for position in view.position]
    for car, column in enumerate(columns):
        sprite = _car_sprite(_paint(car))
        if abs(column - WIDTH / 2) < (WIDTH + sprite.width) / 2:
            image.paste(sprite, (round(column - sprite.width / 2), _WHEELS - sprite.height), sprite)
            _draw_label(canvas, car, column, view.speed[car])
    _draw_gaps(canvas, view, columns)
    _draw_out_of_sight(canvas, view, columns)
    _draw_panel(canvas, view)
    _draw_cost(canvas, view)
    _draw_traces(canvas, view)
    return np.asarray(image)


def _paint(car: int) -> tuple[int, int, int]:
    return {EGO: _EGO, LEADER: _LEADER}.get(car, _HUMAN)


@functools.cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


@functools.cache
def _background() -> Image.Image:
    rows = np.linspace(0.0, 1.0, _GRASS_TOP)[:, None]
    sky = np.asarray(_SKY_TOP) * (1 - rows) + np.asarray(_SKY_BOTTOM) * rows
    pixels = np.full((HEIGHT, WIDTH, 3), _PAPER, np.uint8)
    pixels[:_GRASS_TOP] = sky[:, None, :].astype(np.uint8)
    return Image.fromarray(pixels)


def _draw_roadside(canvas: ImageDraw.ImageDraw, travelled: float) -> None:
    """Hills that move slowly, posts every 20 m and lane marks every 8 m that move with the road."""
    spacing, width = 260, 330
    shift = (travelled * PIXELS_PER_METRE * 0.15) % spacing
    for column in range(-spacing, WIDTH + spacing, spacing):
        left = column - shift
        canvas.ellipse((left, _GRASS_TOP - 34, left + width, _ROAD_TOP + 40), fill=_HILL)
    canvas.rectangle((0, _GRASS_TOP, WIDTH, _ROAD_TOP - 1), fill=_GRASS)
    canvas.rectangle((0, _ROAD_TOP, WIDTH, _ROAD_BOTTOM), fill=_ROAD)
    canvas.rectangle((0, _ROAD_TOP, WIDTH, _ROAD_TOP + 1), fill=_EDGE)
    canvas.rectangle((0, _ROAD_BOTTOM + 1, WIDTH, HEIGHT), fill=_PAPER)
    for mark in _roadside_columns(travelled, 8.0):
        canvas.rectangle((mark, _WHEELS + 6, mark + 24, _WHEELS + 7), fill=_EDGE)
    for post in _roadside_columns(travelled, 20.0):
        canvas.rectangle((post, _GRASS_TOP - 6, post + 2, _ROAD_TOP - 1), fill=_PAPER)
        canvas.rectangle((post, _GRASS_TOP - 6, post + 2, _GRASS_TOP - 3), fill=_BAD)


def _roadside_columns(travelled: float, every: float) -> np.ndarray:
    spacing = every * PIXELS_PER_METRE
    first = -(travelled * PIXELS_PER_METRE) % spacing - spacing
    return np.arange(first, WIDTH + spacing, spacing)


@functools.cache
def _car_sprite(paint: tuple[int, int, int]) -> Image.Image:
    """A car that drives to the right, as long as a car is and a little taller, with smooth edges."""
    fine = 6
    width, height = round(CAR_LENGTH * PIXELS_PER_METRE), 24
    image = Image.new("RGBA", (width * fine, height * fine), (*paint, 0))
    canvas = ImageDraw.Draw(image)

    def scaled(*points: float) -> list[float]:
        """Points given as shares of the width and height, in turn."""
        size = (fine * width, fine * height)
        return [point * size[index % 2] for index, point in enumerate(points)]

    canvas.polygon(scaled(0.15, 0.40, 0.29, 0.05, 0.63, 0.05, 0.80, 0.43), fill=(*paint, 255))
    canvas.rounded_rectangle(scaled(0.0, 0.35, 0.99, 0.83), radius=4 * fine, fill=(*paint, 255))
    glass = (226, 237, 244, 255)
    canvas.polygon(scaled(0.23, 0.38, 0.32, 0.13, 0.45, 0.13, 0.45, 0.38), fill=glass)
    canvas.polygon(scaled(0.49, 0.38, 0.49, 0.13, 0.61, 0.13, 0.72, 0.38), fill=glass)
    canvas.rectangle(scaled(0.0, 0.46, 0.04, 0.58), fill=(*_BAD, 255))
    canvas.rectangle(scaled(0.95, 0.46, 0.99, 0.58), fill=(255, 221, 120, 255))
    for axle in (0.21, 0.78):
        canvas.ellipse(scaled(axle - 0.115, 0.61, axle + 0.115, 0.99), fill=(*_INK, 255))
        canvas.ellipse(scaled(axle - 0.055, 0.71, axle + 0.055, 0.89), fill=(*_EDGE, 255))
    return image.resize((width, height), Image.Resampling.BOX)


def _draw_label(canvas: ImageDraw.ImageDraw, car: int, column: float, speed: float) -> None:
    names = {LEADER: "cycle", EGO: "EGO"}
    ink, note = (_EGO, _EGO) if car == EGO else (_INK, _FAINT)
    canvas.text((column, _ROAD_BOTTOM + 14), f"{speed:.1f}", ink, _font(15), anchor="mm")
    canvas.text((column, _ROAD_BOTTOM + 30), names.get(car, "human"), note, _font(11), anchor="mm")
    if car == EGO:
        tip = _WHEELS - 30
        canvas.polygon((column, tip, column - 6, tip - 9, column + 6, tip - 9), fill=_EGO)


def _draw_gaps(canvas: ImageDraw.ImageDraw, view: View, columns: list[float]) -> None:
    half = CAR_LENGTH * PIXELS_PER_METRE / 2
    height = _WHEELS - 62
    for behind in range(1, len(columns)):
        gap = view.position[behind - 1] - view.position[behind] - CAR_LENGTH
        left, right = columns[behind] + half, columns[behind - 1] - half
        if left < 0 or right > WIDTH:
            continue
        beside_ego = behind in (EGO, FOLLOW)
        colour = (_INK if beside_ego else _FAINT) if gap > _CLOSE else _WARNING if gap > 0 else _BAD
        canvas.line((left, height, right, height), fill=colour, width=2 if beside_ego else 1)
        for end in (left, right):
            canvas.line((end, height - 4, end, height + 4), fill=colour, width=1)
        text = f"{gap:.1f} m" if gap > 0 else "collision"
        canvas.text(((left + right) / 2, height - 11), text, colour, _font(13), anchor="mm")


def _draw_out_of_sight(canvas: ImageDraw.ImageDraw, view: View, columns: list[float]) -> None:
    """Cars beyond the picture's edges, as one line per edge."""
    for beyond, column, anchor, words in (
        ([car for car, at in enumerate(columns) if at >= WIDTH], WIDTH - 10, "rm", "{} more from {:.0f} m on >"),
        ([car for car, at in enumerate(columns) if at <= 0], 10, "lm", "< {} more from {:.0f} m on"),
    ):
        if beyond:
            nearest = min(abs(view.position[car] - view.position[EGO]) for car in beyond)
            canvas.text((column, _ROAD_TOP - 58), words.format(len(beyond), nearest), _FAINT, _font(12), anchor=anchor)


def _draw_panel(canvas: ImageDraw.ImageDraw, view: View) -> None:
    """Time, ego speed and pedal, along the top."""
    for column, name, value in ((24, "time", f"{view.time:.1f} s"), (150, "ego speed", f"{view.speed[EGO]:.1f} m/s")):
        canvas.text((column, 20), name, _FAINT, _font(13), anchor="lm")
        canvas.text((column, 44), value, _INK, _font(24), anchor="lm")
    left, middle, right = 310, 400, 490
    canvas.text((left, 20), "brake", _FAINT, _font(13), anchor="lm")
    canvas.text((right, 20), "throttle", _FAINT, _font(13), anchor="rm")
    canvas.rounded_rectangle((left, 36, right, 52), radius=4, fill=_PAPER, outline=_FAINT)
    end = middle + (right - middle - 2) * max(-1.0, min(1.0, view.pedal))
    canvas.rectangle((min(middle, end), 39, max(middle, end), 49), fill=_GOOD if view.pedal > 0 else _BAD)
    canvas.line((middle, 34, middle, 54), fill=_INK)


def _draw_cost(canvas: ImageDraw.ImageDraw, view: View) -> None:
    """The cost so far against its limit, along the top."""
    share = view.cost / view.cost_limit
    colour = _GOOD if share < _COST_WARNING else _WARNING if share <= 1 else _BAD
    left, right = 640, 936
    canvas.text((540, 20), "cost so far", _FAINT, _font(13), anchor="lm")
    canvas.text((right, 20), f"limit {view.cost_limit:g}", _FAINT, _font(13), anchor="rm")
    canvas.text((540, 44), f"{view.cost:.1f}", _INK, _font(24), anchor="lm")
    canvas.rounded_rectangle((left, 36, right, 52), radius=4, fill=_PAPER, outline=_FAINT)
    if view.cost > 0:
        canvas.rectangle((left + 2, 39, left + 2 + (right - left - 4) * min(share, 1.0), 49), fill=colour)


def _draw_traces(canvas: ImageDraw.ImageDraw, view: View) -> None:
    """Speeds of the ego and of the car ahead over the last decisions: a flatter line damps."""
    left, top, right, bottom = _CHART
    # Every second decision from the latest back: a point per two pixels is all the eye can use.
    speeds = np.asarray(view.history[-HISTORY:], float).reshape(-1, 2)[::-2]
    high = _CHART_STEP * max(1, math.ceil(speeds.max(initial=0.0) / _CHART_STEP))
    for share in (0.0, 0.5, 1.0):
        row = bottom + (top - bottom) * share
        canvas.line((left, row, right, row), fill=_EDGE)
        canvas.text((left - 6, row), f"{share * high:.0f} m/s", _FAINT, _font(10), anchor="rm")
    if len(speeds) > 1:
        columns = right - (right - left) * 2 * np.arange(len(speeds)) / HISTORY
        rows = bottom + (top - bottom) * np.clip(speeds / high, 0.0, 1.0)
        for index, colour in ((1, _HUMAN), (0, _EGO)):
            canvas.line(np.column_stack([columns, rows[:, index]]).ravel().tolist(), fill=colour, width=2)
    canvas.text((right, top - 7), "car ahead", _HUMAN, _font(11), anchor="rm")
    canvas.text((right - 62, top - 7), "ego", _EGO, _font(11), anchor="rm")
