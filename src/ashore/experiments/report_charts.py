"""Charts as shapes that a template turns into SVG: axes and ticks are chosen here, colours by the style sheet.

Positions are shares of the plot: text, marks and grid in per cent of its sides, curves in thousandths. A chart can so
be stretched to any width while its letters, lines and marks keep their size.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

Number = float | None
Scale = Literal["linear", "whole", "log", "counts"]
Size = Literal["panel", "wide", "strip"]
"""A panel has others beside it; a strip is a wide one that has others above and below on the same axis."""
Look = Literal["line", "thin", "dashed", "dotted", "dots", "specks"]
"""`dots` are marks with names, bars and shapes of their own, `specks` are many small ones."""

TONES = 8
"""Colours of the style sheet; later series begin again, with another mark."""
SHAPES = ("circle", "square", "diamond", "triangle", "cross")
_UNITS = 1000.0
_MOST_POINTS = 1200
"""Points of a curve; of more, the lowest and highest of every stretch are kept."""
_MOST_TICKS = 5
_MOST_COUNT_TICKS = 11
_ROOM = 0.06
"""Share of the range that is left free above and below the data."""
_LABEL_GAP, _LABEL_WIDTH, _FAR = 6.5, 33.0, 60.0
"""In per cent: between two names above each other, as wide as one may be, and where they stand left of their points."""
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_FEW_DECADES = 2.5


class Axis(NamedTuple):
    """What is drawn along one side."""

    label: str
    scale: Scale = "linear"
    """`whole` has no ticks between whole numbers; `counts` is logarithmic with a place for 0: N = 0, 1, 2, 4, ..."""
    zero: bool = False
    """Whether 0 belongs to the range, whatever the data."""
    least: Number = None
    """Lower values are drawn there."""
    reach: tuple[float, ...] = ()
    """What else must be in the range."""


class Series(NamedTuple):
    """One set of points."""

    name: str
    x: Sequence[float]
    y: Sequence[Number]
    tone: int
    """Number of its colour; -1 is that of text."""
    look: Look = "line"
    key: int = 0
    """Number of its box in the legend."""
    stepped: bool = False
    """Whether a value holds until the next one."""
    error: Sequence[Number] | None = None
    """Half the length of a vertical bar at each point."""
    interval: Sequence[tuple[Number, Number]] | None = None
    """Ends of a vertical bar at each point."""
    x_interval: Sequence[tuple[Number, Number]] | None = None
    names: Sequence[str] | None = None
    """Words beside each point."""


class Rule(NamedTuple):
    """A straight line across the plot."""

    value: float
    label: str
    along: Literal["x", "y"] = "y"
    """The axis that the value is on."""


class Mark(NamedTuple):
    """A moment on the x axis."""

    x: float
    kind: Literal["episode", "change"]


class Key(NamedTuple):
    """A line of a legend."""

    key: int
    tone: int
    shape: str
    look: Look
    name: str


class Tick(NamedTuple):
    """A number on an axis."""

    at: float
    text: str


class Curve(NamedTuple):
    """A path through the points of a series."""

    path: str
    look: Look
    tone: int
    key: int
    name: str


class Point(NamedTuple):
    """A mark."""

    x: float
    y: float
    shape: str
    tone: int
    key: int
    words: str
    """Shown when one points at it."""


class Bar(NamedTuple):
    """From one place to another."""

    x1: float
    y1: float
    x2: float
    y2: float
    tone: int
    key: int


class Name(NamedTuple):
    """Words beside a point."""

    x: float
    y: float
    text: str
    left: bool
    """They end at the point instead of beginning there."""
    key: int


class Line(NamedTuple):
    """A rule where it is drawn."""

    at: float
    label: str
    along: str


class Chart(NamedTuple):
    """A chart, ready for the template."""

    title: str
    x_label: str
    y_label: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    curves: list[Curve]
    points: list[Point]
    bars: list[Bar]
    names: list[Name]
    rules: list[Line]
    marks: list[tuple[float, str]]
    size: Size
    words: str
    """What somebody who cannot see it is told."""


def draw(
    title: str,
    x: Axis,
    y: Axis,
    series: Iterable[Series],
    *,
    rules: Sequence[Rule] = (),
    marks: Sequence[Mark] = (),
    size: Size = "panel",
) -> Chart | None:
    """A chart of all points that exist; None if there are none."""
    kept = [one for one in series if _finite(one.y)]
    if not kept:
        return None
    loose = any(one.look == "dots" or one.x_interval for one in kept) and x.scale != "counts"
    across = _Ruler(x, [*_reach(kept, rules, "x"), *x.reach], tight=not loose)
    along = _Ruler(y, [*_reach(kept, rules, "y"), *y.reach], tight=False)
    points, bars, names = _marked(kept, across, along, x.label, y.label)
    return Chart(
        title=title,
        x_label=x.label,
        y_label=y.label,
        x_ticks=across.ticks(),
        y_ticks=[Tick(round(100.0 - at, 2), text) for at, text in along.ticks()],
        curves=[_curve(one, across, along) for one in kept if one.look != "dots"],
        points=points,
        bars=bars,
        names=_apart(names),
        rules=[_line(rule, across, along) for rule in rules],
        marks=[(across.per_cent(mark.x), mark.kind) for mark in marks],
        size=size,
        words=_words(title, kept, rules),
    )


def legend(series: Iterable[Series]) -> list[Key]:
    """The lines of a legend, one for each key, by the first series that has it."""
    first: dict[int, Series] = {}
    for one in series:
        first.setdefault(one.key, one)
    return [Key(one.key, _tone(one), _shape(one), one.look, one.name) for one in first.values()]


class _Ruler:
    """Numbers to places on one axis, from 0 to 1."""

    def __init__(self, axis: Axis, values: list[float], tight: bool) -> None:
        self.axis = axis
        self.values = sorted(set(values))
        if axis.scale == "log":
            values = [value for value in values if value > 0] or [1.0]
        low, high = min(values), max(values)
        if axis.zero and axis.scale in ("linear", "whole"):
            low, high = min(low, 0.0), max(high, 0.0)
        if axis.least is not None:
            low, high = max(low, axis.least), max(high, axis.least)
        self.low, self.high = self._scaled(low), self._scaled(high)
        if axis.zero and low == high == 0:
            self.high = 1.0
        elif self.low == self.high:
            gap = 0.1 * abs(self.low) if axis.scale == "linear" and self.low else 0.5
            self.low, self.high = self.low - gap, self.high + gap
        elif not tight:
            gap = _ROOM * (self.high - self.low)
            # What cannot be negative is not given room below zero.
            self.low, self.high = self.low - (0.0 if axis.zero and low == 0 else gap), self.high + gap

    def _scaled(self, value: float) -> float:
        if self.axis.scale == "log":
            return math.log10(value) if value > 0 else self.low
        if self.axis.scale == "counts":
            return 1.0 + math.log2(value) if value >= 1 else value
        return value

    def place(self, value: float) -> float:
        least = self.axis.least
        scaled = self._scaled(value if least is None else max(value, least))
        return (scaled - self.low) / (self.high - self.low)

    def per_cent(self, value: float) -> float:
        return round(100.0 * self.place(value), 2)

    def ticks(self) -> list[Tick]:
        if self.axis.scale in ("linear", "whole"):
            least = 1.0 if self.axis.scale == "whole" else 0.0
            return [Tick(self.per_cent(value), text) for value, text in _nice(self.low, self.high, least)]
        every = -(-len(self.values) // _MOST_COUNT_TICKS)
        chosen = self._decades() if self.axis.scale == "log" else self.values[::every]
        return [Tick(self.per_cent(value), f"{value:g}") for value in chosen]

    def _decades(self) -> list[float]:
        """Powers of ten, with 2 and 5 times each where there are few."""
        between = (1.0, 2.0, 5.0) if self.high - self.low < _FEW_DECADES else (1.0,)
        powers = range(math.floor(self.low), math.ceil(self.high) + 1)
        found = [part * 10.0**power for power in powers for part in between]
        return [value for value in found if self.low - 1e-9 <= math.log10(value) <= self.high + 1e-9]


def _nice(low: float, high: float, least: float) -> list[tuple[float, str]]:
    """Round numbers in a range, at least so far apart, with as many digits as their distance asks for."""
    rough = max((high - low) / _MOST_TICKS, least)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(part * power for part in _STEPS if part * power >= rough * (1.0 - 1e-9))
    values = [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    largest = max(map(abs, values), default=0.0)
    divisor, suffix = next(
        ((size, name) for size, name in ((1e9, " G"), (1e6, " M"), (1e4, " k")) if largest >= size), (1.0, "")
    )
    divisor = 1e3 if suffix == " k" else divisor
    digits = max(0, -math.floor(math.log10(step / divisor) + 1e-9))
    digits += not math.isclose(step / divisor * 10**digits, round(step / divisor * 10**digits), rel_tol=1e-6)
    return [(value, "0" if value == 0 else f"{value / divisor:.{digits}f}{suffix}") for value in values]


def _reach(series: Sequence[Series], rules: Sequence[Rule], along: str) -> list[float]:
    """Every number on the axis; of lines also where they have no value, so that charts beside each other agree."""
    found: list[Number] = [rule.value for rule in rules if rule.along == along]
    for one in series:
        there = [place for place, value in enumerate(one.y) if _exists(value)]
        if along == "x":
            found += [one.x[place] for place in there] if one.look == "dots" else one.x
        else:
            found += one.y
        ends = one.x_interval if along == "x" else _ends(one)
        found += [end for place in there for end in (ends[place] if ends else ())]
    return _finite(found)


def _ends(one: Series) -> Sequence[tuple[Number, Number]] | None:
    """Ends of the vertical bars."""
    if one.interval is not None or one.error is None:
        return one.interval
    return [
        (y - error, y + error) if y is not None and error is not None and _exists(error) else (None, None)
        for y, error in zip(one.y, one.error, strict=True)
    ]


def _curve(one: Series, across: _Ruler, along: _Ruler) -> Curve:
    parts: list[str] = []
    drawing = False
    for x, y in _thinned(one):
        if y is None:
            drawing = False
            continue
        px, py = f"{_UNITS * across.place(x):.1f}", f"{_UNITS * (1.0 - along.place(y)):.1f}"
        if not drawing or one.look == "specks":
            # A line without length has round ends: a point between two gaps is a dot, which no stretching deforms.
            parts.append(f"M{px} {py}h0")
        else:
            parts.append(f"H{px}V{py}" if one.stepped else f"L{px} {py}")
        drawing = True
    return Curve("".join(parts), one.look, _tone(one), one.key, one.name)


def _thinned(one: Series) -> list[tuple[float, Number]]:
    """All points, or of very many the lowest and the highest of every stretch; gaps remain."""
    points: list[tuple[float, Number]] = [(x, y if _exists(y) else None) for x, y in zip(one.x, one.y, strict=True)]
    if len(points) <= _MOST_POINTS:
        return points
    width = 2 * len(points) / _MOST_POINTS
    kept: list[tuple[float, Number]] = []
    for number in range(_MOST_POINTS // 2):
        part = points[round(number * width) : round((number + 1) * width)]
        there = [(x, y) for x, y in part if y is not None]
        if len(there) < len(part):
            kept.append((part[0][0], None))
        if there:
            kept += sorted({min(there, key=lambda point: point[1]), max(there, key=lambda point: point[1])})
    return kept


def _marked(
    series: Sequence[Series], across: _Ruler, along: _Ruler, x_label: str, y_label: str
) -> tuple[list[Point], list[Bar], list[Name]]:
    """Marks, bars and names of all points of series that have some."""
    points: list[Point] = []
    bars: list[Bar] = []
    names: list[Name] = []
    for one in series:
        ends, tone, key = _ends(one), _tone(one), one.key
        if one.look != "dots" and ends is None:
            continue
        for place, (x, y) in enumerate(zip(one.x, one.y, strict=True)):
            if y is None or not _exists(y):
                continue
            px, py = across.per_cent(x), round(100.0 - along.per_cent(y), 2)
            name = one.names[place] if one.names else ""
            words = f"{', '.join(part for part in (one.name, name) if part)}: {x_label} {x:.4g}, {y_label} {y:.4g}"
            points.append(Point(px, py, _shape(one), tone, key, words))
            if tips := _tips(along, ends, place):
                bars.append(Bar(px, round(100.0 - tips[0], 2), px, round(100.0 - tips[1], 2), tone, key))
            if tips := _tips(across, one.x_interval, place):
                bars.append(Bar(tips[0], py, tips[1], py, tone, key))
            if name:
                names.append(Name(px, py, name, px > _FAR, key))
    return points, bars, names


def _tips(ruler: _Ruler, ends: Sequence[tuple[Number, Number]] | None, place: int) -> tuple[float, float] | None:
    low, high = ends[place] if ends else (None, None)
    if low is None or high is None or not (_exists(low) and _exists(high)):
        return None
    return ruler.per_cent(low), ruler.per_cent(high)


def _apart(names: list[Name]) -> list[Name]:
    """The same names, moved down where two would lie on each other."""
    moved: list[Name] = []
    for name in sorted(names, key=lambda name: name.y):
        y = max([name.y, *(other.y + _LABEL_GAP for other in moved if abs(other.x - name.x) < _LABEL_WIDTH)])
        moved.append(name._replace(y=round(y, 2)))
    return moved


def _line(rule: Rule, across: _Ruler, along: _Ruler) -> Line:
    at = across.per_cent(rule.value) if rule.along == "x" else round(100.0 - along.per_cent(rule.value), 2)
    return Line(at, rule.label, rule.along)


def _tone(one: Series) -> int:
    return one.tone % TONES if one.tone >= 0 else one.tone


def _shape(one: Series) -> str:
    return SHAPES[one.tone % len(SHAPES)] if one.tone >= 0 else SHAPES[0]


def _words(title: str, series: Sequence[Series], rules: Sequence[Rule]) -> str:
    """The last number of every series, and the rules."""
    said = [f"{one.name}: {_finite(one.y)[-1]:.4g}" for one in series if one.look != "dots"]
    said = said or [f"{one.name}: {', '.join(f'{value:.4g}' for value in _finite(one.y))}" for one in series]
    said = [f"{len(said)} series"] if len(said) > 2 * TONES else said
    return f"{title}. Last values: {'; '.join(said)}." + "".join(f" {rule.label}." for rule in rules)


def _exists(value: Number) -> bool:
    return value is not None and math.isfinite(value)


def _finite(values: Iterable[Number]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]
