"""`ashore bench parity BUNDLE`: does the runtime do what was trained, and does caution do what it is for."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from ashore import names
from ashore.calibration.careful_policy import CAUTIONS
from ashore.cli.options import UsageError
from ashore.environments import tasks
from ashore.experiments import parity, predicted_caution
from ashore.experiments.deployment import NO_CAUTION
from ashore.experiments.machine import this_machine
from ashore_runtime import Refused, bundle
from ashore_runtime.bundle import Bundle


@dataclass(frozen=True, kw_only=True)
class Options:
    """Compare a bundle's actions in the runtime with those of JAX, and show what its critics expect of them."""

    bundle: Annotated[Path, tyro.conf.arg(metavar="BUNDLE"), tyro.conf.Positional]
    """A folder or a stored zip, as `ashore export` writes it."""
    cautions: tuple[str, ...] = ()
    """Ways to be careful (refinement, actor, both); all that the bundle is able to if left out."""
    etas: tuple[float, ...] = (0.0, 0.4, 0.8, 0.95)
    """Risk levels, each in a world of its own."""
    decisions: int = 2500
    """States at each level."""
    task: str | None = None
    """Name of the task, or `module:NAME`; the bundle's own if left out."""
    shift: str | None = None
    """Where the worlds come from; the last shift that the task declares if left out."""
    seed: int = 0
    """Chooses worlds and scenes."""
    out: Path = Path("runs/bench_parity.json")
    """File for the results, with the machine and the bundle's checksum."""

    def __post_init__(self) -> None:
        if self.decisions < 1 or not self.etas or not all(0.0 <= eta < 1.0 for eta in self.etas):
            raise ValueError("There must be states to compare, at risk levels from 0 to below 1.")
        for caution in self.cautions:
            names.lookup("way to be careful", caution, dict.fromkeys(CAUTIONS))


def run(options: Options) -> int:
    """Measure, show two tables, and say where the numbers are."""
    console = Console()
    try:
        found = bundle.load(options.bundle)
        task = options.task or found.manifest.task.name
        family = tasks.lookup(task)
        shifts = list(family.describe(family.presets[family.default_preset]).shifts)
        shift = options.shift or shifts[-1]
        content: dict[str, Any] = {
            "machine": this_machine().as_dict(),
            "bundle": found.checksum,
            "shift": shift,
            "etas": list(options.etas),
            "tolerance": parity.TOLERANCE,
            "parity": {},
            "parity_float64": {},
            "predicted": {"judged_at": predicted_caution.JUDGED_AT},
        }
        able = _ways(found)
        if not set(options.cautions) <= set(able):
            ways = "in no way" if able == [NO_CAUTION] else f"by {', '.join(able)} and in no other way"
            raise ValueError(f"This bundle is able to be careful {ways}.")
        for caution in options.cautions or able:
            etas = (0.0,) if caution == NO_CAUTION else options.etas
            asked = caution, None, etas, options.decisions, shift, task, options.seed
            with console.status(f"careful by {caution}, in float64"):
                wide = parity.record(options.bundle, *asked, "float64")
                content["parity_float64"][caution] = _row(parity.compare(found, caution, None, wide, "float64"))
            with console.status(f"careful by {caution}"):
                states = parity.record(options.bundle, *asked)
                content["parity"][caution] = _row(parity.compare(found, caution, None, states))
                if caution != NO_CAUTION and found.networks.critics is not None:
                    rows = predicted_caution.predict(found, caution, states.observation, states.latent, options.etas)
                    content["predicted"][caution] = [row._asdict() for row in rows]
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(content, indent=2) + "\n")
    except (ValueError, Refused) as mistake:
        raise UsageError(str(mistake)) from mistake
    _show(console, content)
    print(f"numbers: {options.out}")
    return 0


def _row(compared: parity.Parity) -> dict[str, Any]:
    return compared._asdict() | {"unexplained": compared.unexplained}


def _ways(found: Bundle) -> list[str]:
    """The ways in which this bundle can be careful."""
    takes_level, has_critics = found.manifest.network.risk_conditioned, found.networks.critics is not None
    able = {"refinement": has_critics, "actor": takes_level, "both": has_critics and takes_level}
    return [name for name in CAUTIONS if able[name]] or [NO_CAUTION]


def _show(console: Console, content: dict[str, Any]) -> None:
    title = f"actions of the runtime and of JAX, shift {content['shift']}"
    heads = ("caution", "precision", "states", "refined", "99.9 % within", "above 1e-5", "unexplained", "largest")
    table = Table(*heads, title=title)
    for caution, in_float32 in content["parity"].items():
        for precision, row in (("float32", in_float32), ("float64", content["parity_float64"][caution])):
            counts = (row["states"], row["refined"], f"{row['quantile_99_9']:.1e}", row["differ"], row["unexplained"])
            table.add_row(caution, precision, *map(str, counts), f"{row['largest']:.1e}")
    console.print(table)
    judged_at = content["predicted"]["judged_at"]
    title = f"upper-tail cost that the critics predict (at {judged_at}), same states, by risk level"
    costs = Table("caution", *(f"eta {eta:g}" for eta in content["etas"]), title=title)
    for caution, rows in content["predicted"].items():
        if caution != "judged_at":
            costs.add_row(caution, *(f"{row['cost']:.3f}" for row in rows))
    console.print(costs)
