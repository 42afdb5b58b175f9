"""Looking on while a run trains: a live panel on a terminal, one line per chunk elsewhere."""

import time
from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table

from ashore.environments import tasks
from ashore.experiments.records import Row
from ashore.experiments.training import TrainingRun, Watcher


@contextmanager
def watcher() -> Generator[Watcher]:
    """The watcher that suits where the output goes."""
    console = Console()
    if not console.is_terminal:
        yield _Lines()
        return
    with Live(console=console, refresh_per_second=2, transient=False) as live:
        yield _Panel(live)


def _budget(run: TrainingRun) -> float:
    family = tasks.lookup(run.task)
    return family.describe(family.presets[run.task_preset]).budget.per_episode


def _per_seed(values: list[float | None], digits: int = 1) -> str:
    return " ".join("-" if value is None else f"{value:.{digits}f}" for value in values)


class _Pace:
    """How long the rest will take, judged by what this session has done."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._first: int | None = None

    def left(self, row: Row, run: TrainingRun) -> str:
        if self._first is None:
            self._first = row["decisions"] - run.train.chunk
        share = (run.train.decisions - row["decisions"]) / (row["decisions"] - self._first)
        minutes, seconds = divmod((time.perf_counter() - self._begun) * share, 60.0)
        return f"{minutes:.0f} min {seconds:.0f} s left"


class _Lines:
    """Plain lines, for files and pipes."""

    def __init__(self) -> None:
        self._pace = _Pace()

    def compiling(self, run: TrainingRun, replay_bytes: int) -> None:
        print(f"replay: {replay_bytes / 2**30:.2f} GiB for {run.seeds} seed(s); compiling", flush=True)

    def compiled(self, seconds: float) -> None:
        self._pace = _Pace()
        print(f"compiled in {seconds:.0f} s", flush=True)

    def progress(self, row: Row, run: TrainingRun) -> None:
        left = self._pace.left(row, run)
        print(
            f"{row['decisions']}/{run.train.decisions} decisions, {row['env_steps'] / 1e6:.2f} M env steps, "
            f"{row['env_steps_per_second']:,.0f}/s: return {_per_seed(row['episode_return'])}, "
            f"cost {_per_seed(row['episode_cost'])} of {_budget(run):g}, multiplier {_per_seed(row['multiplier'], 2)}, "
            f"KL {_per_seed(row['kl'])}; {left}",
            flush=True,
        )

    def note(self, sentence: str) -> None:
        print(sentence, flush=True)


class _Panel:
    """A table that is drawn over itself."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._pace = _Pace()

    def compiling(self, run: TrainingRun, replay_bytes: int) -> None:
        self._live.update(f"{run.task} / {run.method}: replay {replay_bytes / 2**30:.2f} GiB; compiling ...")

    def compiled(self, seconds: float) -> None:
        self._pace = _Pace()
        self._live.update(f"compiled in {seconds:.0f} s; first chunk ...")

    def progress(self, row: Row, run: TrainingRun) -> None:
        left = self._pace.left(row, run)
        table = Table(title=f"{run.task} / {run.method}", title_justify="left", show_header=False)
        table.add_row("decisions", f"{row['decisions']:,} of {run.train.decisions:,}, {left}")
        table.add_row(
            "env steps", f"{row['env_steps']:,} per seed, {row['env_steps_per_second']:,.0f}/s over all seeds"
        )
        table.add_row("return", _per_seed(row["episode_return"]))
        table.add_row("cost", f"{_per_seed(row['episode_cost'])}   (budget {_budget(run):g} per episode)")
        table.add_row("multiplier", _per_seed(row["multiplier"], 2))
        table.add_row("KL", _per_seed(row["kl"]))
        for name in sorted(name for name in row if name.startswith("probe_")):
            table.add_row(f"R^2 {name.removeprefix('probe_')}", _per_seed(row[name], 2))
        self._live.update(table)

    def note(self, sentence: str) -> None:
        self._live.console.print(sentence)
