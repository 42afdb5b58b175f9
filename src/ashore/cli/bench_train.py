"""`ashore bench train`: experience and updates per second of training."""

from rich.console import Console
from rich.table import Table

from ashore.experiments.train_benchmark import TrainBenchmark, measure_training, write_speeds

Options = TrainBenchmark


def run(options: TrainBenchmark) -> int:
    """Measure, show a table, and say where the numbers are. Compile time is real: no cache is used here."""
    console = Console()
    table = Table("task", "method", "size")
    for heading in ("seeds", "env steps/s", "updates/s", "matrix share", "memory GiB", "compile s"):
        table.add_column(heading, justify="right")
    speeds = []
    with console.status("compiling and measuring") as status:
        for speed in measure_training(options):
            speeds.append(speed)
            table.add_row(
                speed.task,
                speed.method,
                speed.size,
                str(speed.seeds),
                f"{speed.env_steps_per_second:,.0f}",
                f"{speed.updates_per_second:,.1f}",
                f"{speed.matrix_share:.1%}",
                f"{speed.memory_bytes / 2**30:.2f}",
                f"{speed.compile_seconds:.0f}",
            )
            status.update(f"compiling and measuring, {len(speeds)} row(s) done")
    console.print(table)
    print(f"numbers: {write_speeds(options.out, speeds)}")
    return 0
