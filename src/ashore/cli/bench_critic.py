"""`ashore bench critic RUN`: is the cost critic right? What it expects against what is then paid."""

import json
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import jax
import tyro
from rich.console import Console
from rich.table import Table

from ashore import names
from ashore.cli.options import UsageError
from ashore.environments import randomisation
from ashore.experiments import training
from ashore.experiments.evaluation import load_policies
from ashore.experiments.machine import this_machine
from ashore.learning import critic_check
from ashore.learning.train_config import architecture, budget
from ashore.methods import registry


@dataclass(frozen=True, kw_only=True)
class Options:
    """Deploy the policies of a run without caution, and compare what their cost critics expect with what is paid."""

    run: Annotated[Path, tyro.conf.arg(metavar="RUN"), tyro.conf.Positional]
    """Folder of the run."""
    shift: tuple[str, ...] = ()
    """Where the worlds come from; the training ranges and the last shift that the task declares if left out."""
    environments: int = 64
    """Worlds, one episode each."""
    seed: int = 0
    """Chooses worlds and scenes."""
    out: Path = Path("runs/bench_critic.json")
    """File for the results, with the machine."""

    def __post_init__(self) -> None:
        if self.environments < 1:
            raise ValueError("There must be at least one world.")


def run(options: Options) -> int:
    """Measure every seed in every shift, show a table, and say where the numbers are."""
    try:
        found = training.load(options.run)
        if "encoder" in registry.lookup(found.method).untrained:
            raise ValueError(f"The critics of {found.method} know no latent; only those that do are asked here.")
        task = training.task_of(found)
        declared = task.description.shifts
        shifts = options.shift or ("train", list(declared)[-1])
        ranges = {name: names.lookup("shift", name, declared) for name in shifts}
        policies = load_policies(options.run)
    except ValueError as mistake:
        raise UsageError(str(mistake)) from mistake
    nets, discount = architecture(task, found.train), budget(task, found.train).discount
    physics_key, scene_key = jax.random.split(jax.random.key(options.seed))
    watch = jax.jit(partial(critic_check.watch, task, nets))
    rows: list[dict[str, Any]] = []
    for name, chosen in ranges.items():
        worlds = randomisation.sample(chosen, task.parameters_type, physics_key, options.environments)
        for index, (params, normalisers) in enumerate(policies):
            judged = critic_check.judge(watch(params, normalisers, worlds, scene_key), discount)
            # JSON knows no NaN: nothing is correlated with what never changes.
            known = {key: value if math.isfinite(value) else None for key, value in judged._asdict().items()}
            rows.append({"shift": name, "seed_index": index, **known})
    machine = this_machine().as_dict()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": machine, "environments": options.environments, "seed": options.seed, "rows": rows}
    options.out.write_text(json.dumps(content, indent=2) + "\n")
    table = Table(
        "shift", "seed", "expected", "paid", "correlation", title="discounted cost, by the critic and realised"
    )
    for row in rows:
        numbers = ("-" if row[key] is None else f"{row[key]:.3f}" for key in ("predicted", "realised", "correlation"))
        table.add_row(row["shift"], str(row["seed_index"]), *numbers)
    Console().print(table)
    print(f"numbers: {options.out}")
    return 0
