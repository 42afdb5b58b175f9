"""The demo while it runs: a row for every way to act; without a terminal, a line for every world."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ashore.experiments.demo_drive import News
from ashore.experiments.demo_plan import Plan, Planned, Show, Way

_REFRESH = 0.1
"""Seconds between two looks of the table."""
_WIDTH = 8
"""Letters of a bar or a curve."""
_LABEL = 21
"""Letters of a way's name."""
_AFTERWARDS = "Videos, figure and page are being made."
_LEVELS = " ▁▂▃▄▅▆▇█"


@contextmanager
def watching(console: Console, plan: Plan) -> Generator[Callable[[News], None]]:
    """Gives whom to tell the news."""
    if not console.is_terminal:
        yield _Lines(console, plan).hear
        return
    table = _Rows(plan)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        last = 0.0

        def hear(news: News) -> None:
            nonlocal last
            table.hear(news)
            now = time.monotonic()
            if news.world_ended or now - last > _REFRESH:
                live.update(table.draw(), refresh=True)
                last = now

        yield hear


class _Row:
    """One way of one show: the world it was heard from last, and how many it has been through."""

    def __init__(self, planned: Planned, way: Way) -> None:
        self.show, self.way, self.budget = planned.show, way, planned.manifest.budget.per_episode
        self.last: News | None = None
        self.etas: list[float] = []
        """Of the world that is shown."""
        self.worlds = 0

    def hear(self, news: News) -> None:
        # Two worlds may be under way at once: the one that began later is shown.
        if self.last is None or news.world >= self.last.world:
            if self.last is None or news.world > self.last.world:
                self.etas = []
            self.etas.append(news.eta)
            self.last = news
        self.worlds += news.world_ended


class _Rows:
    """The table."""

    def __init__(self, plan: Plan) -> None:
        self._rows = _rows(plan)

    def hear(self, news: News) -> None:
        self._rows[news.task, news.way].hear(news)

    def draw(self) -> Table:
        # Narrow enough for a terminal of 80 columns.
        title = "worlds that were never seen, each met for the first time"
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("", no_wrap=True, min_width=_LABEL, max_width=_LABEL)
        for name in ("world", "eta", "over time", "spread", "cost", "so far"):
            table.add_column(name, no_wrap=True)
        for task, rows in groupby(self._rows.values(), key=lambda row: row.show.task):
            table.add_row(Text(task, "bold"))
            for row in rows:
                table.add_row(*self._cells(row))
        if _all_done(self._rows):
            table.caption = _AFTERWARDS
        return table

    def _cells(self, row: _Row) -> list[str | Text]:
        words: list[str | Text] = [f"  {escape(row.way.label)}"]
        news = row.last
        if news is None:
            return [*words, "waits"]
        place = "done" if row.worlds == row.show.worlds else f"{news.world + 1} of {row.show.worlds}"
        curve = sparkline(row.etas, _WIDTH)
        known: list[str | Text] = [f"{news.eta:.2f}", Text(curve, "blue"), f"{news.spread:.2f}"]
        knows = known if row.way.identifies else ["", "", ""]
        return [*words, place, *knows, _bar(news.cost / row.budget), f"{news.cost:.1f} of {row.budget:g}"]


class _Lines:
    """For pipes and logs."""

    def __init__(self, console: Console, plan: Plan) -> None:
        self._console, self._rows = console, _rows(plan)

    def hear(self, news: News) -> None:
        row = self._rows[news.task, news.way]
        row.hear(news)
        if news.world_ended:
            caution = f", eta {news.eta:.2f}, spread {news.spread:.2f}" if row.way.identifies else ""
            where = f"world {news.world + 1} of {row.show.worlds}"
            self._console.print(
                f"{news.task}, {escape(row.way.label)}, {where}: {_last(row.show)} return {news.returned:.1f}, cost "
                f"{news.cost:.1f} of {row.budget:g}{caution}",
                soft_wrap=True,
            )
        if _all_done(self._rows):
            self._console.print(_AFTERWARDS)


def sparkline(values: list[float], width: int) -> str:
    """Values in [0, 1] over time as letters of different heights, the whole of it however long it is."""
    places = values if len(values) <= width else [values[i * (len(values) - 1) // (width - 1)] for i in range(width)]
    return "".join(_LEVELS[min(len(_LEVELS) - 1, round(value * (len(_LEVELS) - 1)))] for value in places)


def _bar(share: float) -> Text:
    filled = min(_WIDTH, round(share * _WIDTH))
    return Text("━" * filled, "red" if share > 1 else "green") + Text("━" * (_WIDTH - filled), "bright_black")


def _last(show: Show) -> str:
    return "last episode" if show.episodes > 1 else "its episode"


def _all_done(rows: dict[tuple[str, str], _Row]) -> bool:
    return all(row.worlds == row.show.worlds for row in rows.values())


def _rows(plan: Plan) -> dict[tuple[str, str], _Row]:
    return {(planned.show.task, way.name): _Row(planned, way) for planned in plan.deployed for way in planned.ways}
