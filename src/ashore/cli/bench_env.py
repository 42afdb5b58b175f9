"""`ashore bench env`: steps per second of the worlds."""

from rich.console import Console
from rich.table import Table

from ashore.experiments.benchmark import EnvBenchmark, measure_environments, write_speeds

Options = EnvBenchmark


def run(options: EnvBenchmark) -> int:
    """Measure, show a table, and say where the numbers are. Compile time is real: no cache is used here."""
    console = Console()
    table = Table("task", "preset", "engine")
    for heading in ("batch", "env steps/s", "decisions/s", "compile s"):
        table.add_column(heading, justify="right")
    speeds = []
    with console.status("measuring") as status:
        for speed in measure_environments(options):
            speeds.append(speed)
            table.add_row(
                speed.task,
                speed.preset,
                speed.engine,
                f"{speed.batch:,}",
                f"{speed.env_steps_per_second:,.0f}",
                f"{speed.decisions_per_second:,.0f}",
                f"{speed.compile_seconds:.1f}",
            )
            status.update(f"measuring, {len(speeds)} row(s) done")
    console.print(table)
    print(f"numbers: {write_speeds(options.out, speeds)}")
    return 0
