"""`ashore bench act`: how long a decision takes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from ashore.cli.options import UsageError
from ashore.experiments import act_benchmark
from ashore.experiments.act_benchmark import PAPER_MS, ActBenchmark
from ashore_runtime import Refused


@dataclass(frozen=True)
class Options(ActBenchmark):
    """Measure the latency of a decision: NumPy on one thread, ONNX Runtime, and JAX on whatever devices there are."""

    bundle: Annotated[Path | None, tyro.conf.arg(metavar="BUNDLE"), tyro.conf.Positional] = None
    """A bundle; random weights in three sizes if left out."""


def run(options: Options) -> int:
    """Measure, show a table, and say where the numbers are."""
    console = Console()
    table = Table("implementation", "size", "what", title="milliseconds", title_justify="left")
    for heading in ("p50", "p99", "p99.9"):
        table.add_column(heading, justify="right")
    rows = []
    try:
        with console.status("measuring") as status:
            for row in act_benchmark.measure(options, options.bundle):
                rows.append(row)
                # After every row: most of the time goes into compiling, and nothing of it should be lost.
                act_benchmark.write(options.out, rows)
                table.add_row(row.backend, row.size, row.what, *(f"{ms:.3f}" for ms in (row.p50, row.p99, row.p99_9)))
                status.update(f"measuring, {len(rows)} row(s) done")
    except (ValueError, Refused) as mistake:
        raise UsageError(str(mistake)) from mistake
    for steps, ms in PAPER_MS.items():
        table.add_row("the paper, RTX 3090", "paper", f"act K={steps}", f"{ms:.2f}", "", "")
    console.print(table)
    print(f"numbers: {options.out}")
    return 0
