"""Charts as shapes that a template turns into SVG: what lies where is chosen here, colours by the style sheet.

Positions are shares of the plot: text, marks and grid in per cent of its sides, curves in thousandths. A chart can so
be stretched to any width while its letters, lines and marks keep their size.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from ashore.experiments.report_axes import Axis, Number, Ruler, Tick

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
_LABEL_GAP, _LABEL_WIDTH, _FAR = 6.5, 33.0, 60.0
"""In per cent: between two names above each other, as wide as one may be, and where they stand left of their points."""


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
    across = Ruler(x, [*_reach(kept, rules, "x"), *x.reach], tight=not loose)
    along = Ruler(y, [*_reach(kept, rules, "y"), *y.reach], tight=False)
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


def _curve(one: Series, across: Ruler, along: Ruler) -> Curve:
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
    series: Sequence[Series], across: Ruler, along: Ruler, x_label: str, y_label: str
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


def _tips(ruler: Ruler, ends: Sequence[tuple[Number, Number]] | None, place: int) -> tuple[float, float] | None:
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


def _line(rule: Rule, across: Ruler, along: Ruler) -> Line:
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
