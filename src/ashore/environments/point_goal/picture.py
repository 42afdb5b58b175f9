"""PointGoal2 from above, drawn without a display: robot, goal, hazards, vases and what the lidars read."""

from collections.abc import Mapping

import numpy as np
from PIL import Image, ImageDraw

from ashore.environments.point_goal import scene

SIZE = 480
_OVERSAMPLING = 2  # drawn larger and shrunk: smooth edges
_HALF_VIEW = 2.3  # metres from the centre of the picture to its edge
_BACKGROUND = (247, 246, 242)
_GRID = (226, 224, 216)
_COLOURS = {
    "goal": (46, 160, 67),
    "hazards": (66, 92, 214),
    "vases": (20, 160, 176),
    "obstacles": (60, 120, 195),
    "robot": (214, 64, 52),
    "nose": (140, 28, 24),
}
_RINGS = {"goal": 0.26, "hazards": 0.34, "vases": 0.42, "obstacles": 0.34}  # radius of a lidar's ring, metres


def paint(
    robot: np.ndarray,
    goal: np.ndarray,
    hazards: np.ndarray,
    vases: np.ndarray,
    vase_turns: np.ndarray,
    rings: Mapping[str, np.ndarray],
) -> np.ndarray:
    """A picture of one moment.

    Args:
        robot: x, y, yaw.
        goal: [2].
        hazards: [hazards, 2].
        vases: [vases, 2].
        vase_turns: [vases], radians.
        rings: lidar readings by what they look for; empty ones are left out.

    Returns:
        [480, 480, 3], uint8.
    """
    view = _View(robot[:2])
    image = Image.new("RGB", (SIZE * _OVERSAMPLING, SIZE * _OVERSAMPLING), _BACKGROUND)
    draw = ImageDraw.Draw(image, "RGBA")
    _floor(draw, view)
    for position in hazards:
        _disc(draw, view, position, scene.HAZARD_RADIUS, (*_COLOURS["hazards"], 70), (*_COLOURS["hazards"], 190))
    _disc(draw, view, goal, 0.3, (*_COLOURS["goal"], 90), (*_COLOURS["goal"], 230))
    for position, turn in zip(vases, vase_turns, strict=True):
        _square(draw, view, position, scene.VASE_HALF, turn, (*_COLOURS["vases"], 230))
    for kind, reading in rings.items():
        _ring(draw, view, robot, _RINGS[kind], reading, _COLOURS[kind])
    heading = np.array([np.cos(robot[2]), np.sin(robot[2])])
    nose = robot[:2] + scene.ARROW_CENTRE * heading
    _square(draw, view, nose, scene.ARROW_HALF, robot[2], (*_COLOURS["nose"], 255))
    _disc(draw, view, robot[:2], scene.ROBOT_RADIUS, (*_COLOURS["robot"], 255), (*_COLOURS["nose"], 255))
    return np.asarray(image.resize((SIZE, SIZE), Image.Resampling.BOX))


class _View:
    """From metres to pixels; follows a robot that leaves the floor (there are no walls)."""

    def __init__(self, robot: np.ndarray) -> None:
        slack = _HALF_VIEW - 0.4
        self._centre = np.clip(robot, -1e6, 1e6) - np.clip(robot, -slack, slack)
        self.scale = SIZE * _OVERSAMPLING / (2 * _HALF_VIEW)

    def pixel(self, position: np.ndarray) -> tuple[float, float]:
        x, y = (np.asarray(position) - self._centre) * self.scale
        middle = SIZE * _OVERSAMPLING / 2
        return float(middle + x), float(middle - y)


def _floor(draw: ImageDraw.ImageDraw, view: _View) -> None:
    for line in np.arange(-scene.EXTENT, scene.EXTENT + 0.01, 0.5):
        draw.line([view.pixel(np.array([line, -scene.EXTENT])), view.pixel(np.array([line, scene.EXTENT]))], _GRID, 2)
        draw.line([view.pixel(np.array([-scene.EXTENT, line])), view.pixel(np.array([scene.EXTENT, line]))], _GRID, 2)


def _disc(draw: ImageDraw.ImageDraw, view: _View, centre: np.ndarray, radius: float, fill: tuple, edge: tuple) -> None:
    x, y = view.pixel(centre)
    reach = radius * view.scale
    draw.ellipse([x - reach, y - reach, x + reach, y + reach], fill=fill, outline=edge, width=3)


def _square(draw: ImageDraw.ImageDraw, view: _View, centre: np.ndarray, half: float, turn: float, fill: tuple) -> None:
    corners = half * np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]])
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    draw.polygon([view.pixel(corner) for corner in centre + corners @ rotation.T], fill=fill)


def _ring(
    draw: ImageDraw.ImageDraw, view: _View, robot: np.ndarray, radius: float, reading: np.ndarray, colour: tuple
) -> None:
    bins = len(reading)
    for index, value in enumerate(reading):
        angle = robot[2] + (index + 0.5) * 2.0 * np.pi / bins
        x, y = view.pixel(robot[:2] + radius * np.array([np.cos(angle), np.sin(angle)]))
        size = 3.0 + 9.0 * float(value)
        draw.ellipse([x - size, y - size, x + size, y + size], fill=(*colour, int(25 + 230 * float(value))))
