"""`ashore bench change BUNDLE`: how soon a change of the dynamics is noticed, and what that is worth."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from ashore.cli.options import UsageError
from ashore.compilation_cache import keep_compiled_programs
from ashore.experiments import change_benchmark, change_report
from ashore.experiments.change_benchmark import ChangeBenchmark
from ashore_runtime import Refused, bundle


@dataclass(frozen=True, kw_only=True)
class Options(ChangeBenchmark):
    """Change the dynamics in the middle of deployments; measure delay, false alarms, and cost with and without it."""

    bundle: Annotated[Path, tyro.conf.arg(metavar="BUNDLE"), tyro.conf.Positional]
    """A folder or a stored zip, as `ashore export` writes it."""


def run(options: Options) -> int:
    """Measure, show a table, and say where the numbers are."""
    keep_compiled_programs()
    console = Console()
    try:
        with console.status("deploying"):
            checksum = bundle.load(options.bundle).checksum
            outcome = change_benchmark.experiment(options.bundle, options)
    except (ValueError, Refused) as mistake:
        raise UsageError(str(mistake)) from mistake
    title = "cost per episode after the change, without and with detection"
    head = ("what changes", "noticed", "delay, median / 90 %", "and again", "without", "with", "saved")
    table = Table(*head, title=title)
    for name, case in outcome.cases.items():
        delay = "" if case.delay_median is None else f"{case.delay_median:.0f} / {case.delay_90:.0f}"
        costs = (f"{case.cost_without:.2f}", f"{case.cost_with:.2f}", f"{case.saved:.2f} +- {case.saved_error:.2f}")
        table.add_row(name, f"{case.detected:.0%}", delay, f"{case.again:.0%}", *costs)
    console.print(table)
    print(
        f"{outcome.false_alarms} false alarm(s) in {outcome.quiet_decisions} decisions: "
        f"{change_benchmark.per_million(outcome):.1f} per million"
    )
    numbers, figure = change_report.write(options.out, options, outcome, {"bundle": checksum})
    print(f"numbers: {numbers}")
    print(f"figure: {figure}")
    return 0
