"""`ashore evaluate RUN`: a trained run in worlds it has never seen."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from ashore.cli.options import UsageError
from ashore.compilation_cache import keep_compiled_programs
from ashore.experiments import provenance, training
from ashore.experiments.evaluation import EvaluationConfig, evaluate_run, write_results
from ashore.experiments.statistics import Estimate


@dataclass(frozen=True, kw_only=True)
class Options(EvaluationConfig):
    """Deploy a trained run in unseen worlds and report return and cost by shift."""

    run: Annotated[Path, tyro.conf.arg(metavar="RUN"), tyro.conf.Positional]
    """Folder of the run."""
    shifts: Annotated[tuple[str, ...], tyro.conf.arg(aliases=["--shift"])] = ()
    """Names of the shifts; all the task declares if left out. `train` means held-out draws of the training ranges."""


def run(options: Options) -> int:
    """Evaluate, show a table, and say where the numbers are."""
    keep_compiled_programs()
    console = Console()
    try:
        budget = training.task_of(training.load(options.run)).description.budget.per_episode
        with console.status("deploying"):
            results = evaluate_run(options.run, options)
    except ValueError as mistake:
        raise UsageError(str(mistake)) from mistake
    title = f"{options.environments} worlds x {options.episodes} episodes; budget {budget:g} per episode"
    table = Table("shift", "return", "episode cost", "cost of the first episode", title=title, title_justify="left")
    for result in results:
        table.add_row(result.shift, *map(_cell, (result.episode_return, result.episode_cost, result.first_cost)))
    console.print(table)
    provenance.note(options.run)
    print(f"numbers: {write_results(options.run, options, results)}")
    return 0


def _cell(value: Estimate) -> str:
    return f"{value.mean:.2f} +- {value.deviation:.2f} [{value.low:.2f}, {value.high:.2f}]"
