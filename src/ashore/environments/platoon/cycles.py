"""Speed traces that the first car replays: the shipped drive cycles, a user's own, and the windows cut from them."""

import math
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np

SHIPPED = ("udds", "ftp75", "nycc", "hwfet", "us06")
HEADER = "time_s,speed_mps"
FASTEST = 45.0
"""Highest speed in m/s that the task can observe; a faster trace is most likely in km/h."""
LEAST_MEAN, LEAST_DEVIATION = 2.0, 0.3
"""A training window moves (mean speed, m/s) and changes its speed (standard deviation, m/s)."""
_FEWEST_LINES = 3
"""The header and two samples, which are what gives a time step."""
_STEP_TOLERANCE = 1e-6
"""Relative; decimal times such as 0.1 are not exact in binary."""


class Cycle(NamedTuple):
    """A speed trace with a constant time step, starting at zero seconds."""

    name: str
    step: float
    """Seconds between two speeds."""
    speed: np.ndarray
    """m/s, float64."""

    @property
    def duration(self) -> float:
        """Seconds from the first to the last speed."""
        return self.step * (len(self.speed) - 1)

    def at(self, time: np.ndarray) -> np.ndarray:
        """Speed at times in s, linear between the samples."""
        return np.interp(time, self.step * np.arange(len(self.speed)), self.speed)


class Window(NamedTuple):
    """A stretch of a cycle, one episode long."""

    cycle: int
    """Position of the cycle in the list that the window was cut from."""
    start: int
    """Whole seconds after the cycle's beginning."""


class Traces(NamedTuple):
    """The cycles of a task and every window that an episode may replay."""

    cycles: tuple[Cycle, ...]
    windows: tuple[Window, ...]

    def speeds(self, window: int, times: np.ndarray) -> np.ndarray:
        """Speed of the first car at times in s after the window's start."""
        cycle, start = self.windows[window]
        return self.cycles[cycle].at(start + times)


def load(name: str) -> Cycle:
    """A shipped cycle by name, or a CSV file by path."""
    if name in SHIPPED:
        text = (
            resources.files("ashore.environments.platoon")
            .joinpath("drive_cycles", f"{name}.csv")
            .read_text(encoding="utf-8")
        )
        return parse(name, text)
    path = Path(name)
    if not path.is_file():
        raise ValueError(f"Unknown drive cycle '{name}': give one of {', '.join(SHIPPED)}, or the path of a CSV file.")
    try:
        # Spreadsheets like to begin a file with a byte-order mark.
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not a text file: byte {error.start} is not UTF-8.") from error
    return parse(name, text)


def parse(name: str, text: str) -> Cycle:
    """A cycle from CSV text; whatever is wrong is said in one sentence that names the file and the line."""
    lines = text.rstrip().splitlines()
    header = lines[0].strip() if lines else ""
    if header != HEADER:
        raise ValueError(f"{name}, line 1: the header must be '{HEADER}', not '{header}'.")
    if len(lines) < _FEWEST_LINES:
        raise ValueError(f"{name}, line {len(lines)}: the file ends here, but a trace needs two samples or more.")
    rows = [_row(name, number, line) for number, line in enumerate(lines[1:], start=2)]
    step = rows[1][0] - rows[0][0]
    if not step > 0:
        raise ValueError(f"{name}, line 3: time must increase, but {rows[1][0]:g} s follows {rows[0][0]:g} s.")
    for index in range(1, len(rows)):
        expected = rows[0][0] + index * step
        if abs(rows[index][0] - expected) > _STEP_TOLERANCE * step * len(rows):
            raise ValueError(
                f"{name}, line {index + 2}: time must increase by a constant {step:g} s, "
                f"but {rows[index][0]:g} s stands where {expected:g} s should."
            )
    return Cycle(name, step, np.array([speed for _, speed in rows]))


def _row(name: str, number: int, line: str) -> tuple[float, float]:
    cells = line.split(",")
    if len(cells) != len(HEADER.split(",")):
        raise ValueError(f"{name}, line {number}: expected two numbers separated by a comma, not '{line.strip()}'.")
    values: list[float] = []
    for cell in cells:
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ValueError(f"{name}, line {number}: '{cell.strip()}' is not a finite number.")
        values.append(value)
    if values[1] < 0:
        raise ValueError(f"{name}, line {number}: the speed {values[1]:g} m/s is negative.")
    if values[1] > FASTEST:
        raise ValueError(f"{name}, line {number}: the speed {values[1]:g} exceeds {FASTEST:g} m/s; speeds are in m/s.")
    return values[0], values[1]


def training_traces(names: tuple[str, ...], duration: float) -> Traces:
    """Every window of `duration` s that starts at a whole second, moves, and changes its speed."""
    cycles = tuple(load(name) for name in names)
    windows = []
    for index, cycle in enumerate(cycles):
        _require_length(cycle, 0, duration)
        for start in range(math.floor(cycle.duration - duration + _STEP_TOLERANCE) + 1):
            # Ten looks per second are enough to judge a window; every shipped cycle is linear between its seconds.
            speed = cycle.at(start + np.arange(0.0, duration, 0.1))
            if speed.mean() > LEAST_MEAN and speed.std() > LEAST_DEVIATION:
                windows.append(Window(index, start))
    if not windows:
        raise ValueError(
            f"No {duration:g} s window of {', '.join(names)} has a mean speed above {LEAST_MEAN:g} m/s "
            f"and a standard deviation above {LEAST_DEVIATION:g} m/s."
        )
    return Traces(cycles, tuple(windows))


def fixed_trace(name: str, start: int, duration: float) -> Traces:
    """One window alone, for reports that compare drivers on the same trace."""
    cycle = load(name)
    if start < 0:
        raise ValueError(f"A window of {name} cannot start at {start} s, before the cycle does.")
    _require_length(cycle, start, duration)
    return Traces((cycle,), (Window(0, start),))


def _require_length(cycle: Cycle, start: int, duration: float) -> None:
    if start + duration > cycle.duration + _STEP_TOLERANCE:
        last_line = len(cycle.speed) + 1
        raise ValueError(
            f"{cycle.name}, line {last_line}: the trace ends here after {cycle.duration:g} s, too short for an episode "
            f"of {duration:g} s that starts at {start} s."
        )
