"""What a report's page is made of: sections of charts, tables, facts, sentences, films and folded parts.

Numbers are kept beside the words they are shown in, so that a page can be read by people and checked by programs.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ashore.experiments.report_charts import Chart, Key, Series, legend

MISSING, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
_LARGE, _MIDDLE, _SMALL = 1000.0, 100.0, 1.0
_MOST_DIGITS = 8


class Cell(NamedTuple):
    """A place in a table or a fact: words, or numbers as they are and as they are shown."""

    words: str = ""
    number: tuple[str, str] | None = None
    """Exact and shown, as are deviation and interval."""
    deviation: tuple[str, str] | None = None
    interval: tuple[tuple[str, str], tuple[str, str]] | None = None
    """Shown below the number, as the deviation is behind it."""
    note: str = ""
    """A short word behind, such as "over"."""
    exact: bool = False
    """Words that are shown letter by letter: a hash, a command."""


class Column(NamedTuple):
    """The head of a column."""

    title: str
    unit: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class Table:
    """Rows under heads; numbers of one column have the same digits."""

    caption: str
    columns: list[Column]
    rows: list[list[Cell]]
    kind: ClassVar[str] = "table"


@dataclass(frozen=True)
class Facts:
    """Names and what goes with them."""

    rows: list[tuple[str, Cell]]
    large: bool = False
    kind: ClassVar[str] = "facts"


@dataclass(frozen=True)
class Charts:
    """Charts that share a legend."""

    charts: list[Chart]
    keys: list[Key]
    kind: ClassVar[str] = "charts"


@dataclass(frozen=True)
class Sentences:
    """What must be said in words."""

    sentences: list[str]
    listed: bool = False
    kind: ClassVar[str] = "sentences"


@dataclass(frozen=True)
class Text:
    """Something that is shown as it is."""

    text: str
    kind: ClassVar[str] = "text"


@dataclass(frozen=True)
class Film:
    """A video inside the page."""

    name: str
    base64: str
    mebibytes: float
    kind: ClassVar[str] = "film"


@dataclass(frozen=True)
class Heading:
    """The name of what follows."""

    text: str
    kind: ClassVar[str] = "heading"


@dataclass(frozen=True)
class Folded:
    """What is there for whoever opens it."""

    title: str
    blocks: "list[Block]"
    kind: ClassVar[str] = "folded"


Block = Table | Facts | Charts | Sentences | Text | Film | Heading | Folded


class Section(NamedTuple):
    """One entry of the table of contents."""

    anchor: str
    title: str
    blocks: list[Block]


def charts(drawn: Iterable[tuple[Chart | None, Sequence[Series]]]) -> list[Block]:
    """The charts that there are, under the legend of all their series; nothing if there are none."""
    there = [(chart, series) for chart, series in drawn if chart is not None]
    keys = legend(one for _, series in there for one in series if any(value is not None for value in one.y))
    return [Charts([chart for chart, _ in there], keys)] if there else []


def table(caption: str, columns: Sequence[Column], rows: Iterable[Sequence[Any]], by_row: bool = False) -> list[Block]:
    """A table without the columns that say nothing; nothing at all if there are no rows.

    Args:
        caption: what it shows.
        columns: the heads.
        rows: words, cells, numbers, estimates, or None where there is none.
        by_row: whether the numbers of a row, and not those of a column, are of one kind and get the same digits.
    """
    kept = [list(row) for row in rows]
    places = [place for place in range(len(columns)) if any(not _absent(row[place]) for row in kept)]
    if not places:
        return []
    of_column = {place: _digits(row[place] for row in kept) for place in places}
    cells = [[cell(row[place], _digits(row) if by_row else of_column[place]) for place in places] for row in kept]
    return [Table(caption, [columns[place] for place in places], cells)]


class Noted(NamedTuple):
    """A number with a word behind it."""

    value: float
    note: str


class Estimated(NamedTuple):
    """A mean with its deviation and interval."""

    mean: float
    deviation: float | None
    low: float | None
    high: float | None
    note: str = ""


def cell(value: Any, digits: int | None = None, note: str = "") -> Cell:
    """Whatever a table may hold, as a cell; without digits a number gets those that suit it."""
    if isinstance(value, Cell):
        return value
    if isinstance(value, Noted):
        return cell(value.value, digits, value.note)
    if isinstance(value, Estimated):
        digits = _digits([value]) if digits is None else digits
        mean, deviation, low, high = (_pair(number, digits) for number in value[:4])
        return Cell("", mean, deviation, (low, high) if low and high else None, value.note)
    if _absent(value):
        return Cell(MISSING)
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    if isinstance(value, str):
        return Cell(value)
    if digits is None:
        digits = 0 if float(value).is_integer() else _digits([value])
    return Cell(number=_pair(value, digits), note=note)


def exact(words: str) -> Cell:
    """Words that are shown letter by letter."""
    return Cell(words, exact=True)


def real(value: Any) -> float | None:
    """A number from a file, where files may lack it or hold what is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value


def reals(values: Iterable[Any]) -> list[float | None]:
    """The same for a list."""
    return [real(value) for value in values]


def interval(estimate: Mapping[str, Any]) -> tuple[float, float] | None:
    """The bootstrap interval of an estimate."""
    low, high = real(estimate.get("low")), real(estimate.get("high"))
    return None if low is None or high is None else (low, high)


def estimated(estimate: Mapping[str, Any], note: str = "") -> Estimated | None:
    """An estimate from a file."""
    mean = real(estimate.get("mean"))
    if mean is None:
        return None
    low, high = interval(estimate) or (None, None)
    return Estimated(mean, real(estimate.get("deviation")), low, high, note)


def spelt(name: str) -> str:
    """A name from a file in words."""
    return name.replace("_", " ")


def _absent(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and not math.isfinite(value))


def _numbers(value: Any) -> list[float]:
    """The numbers with a point that a cell will show."""
    parts = value[:4] if isinstance(value, Estimated) else value[:1] if isinstance(value, Noted) else (value,)
    return [abs(part) for part in parts if isinstance(part, float) and math.isfinite(part)]


def _digits(values: Iterable[Any]) -> int:
    """Digits behind the point that suit these together: about three that matter in the largest."""
    largest = max((number for value in values for number in _numbers(value)), default=0.0)
    if largest >= _LARGE:
        return 0
    if largest >= _MIDDLE:
        return 1
    if largest >= _SMALL or largest == 0.0:
        return 2
    return min(_MOST_DIGITS, 2 - math.floor(math.log10(largest)))


def _pair(number: float | None, digits: int) -> tuple[str, str] | None:
    """A number as it is and as it is shown."""
    if number is None:
        return None
    if isinstance(number, int):
        shown = f"{number:,}"
    elif number != 0 and abs(number) < 0.5 * 10.0**-digits:
        # It would be shown as zero and is none.
        shown = f"{number:.1e}"
    else:
        shown = f"{number:,.{digits}f}"
    return repr(number), shown.replace("-", MINUS)
