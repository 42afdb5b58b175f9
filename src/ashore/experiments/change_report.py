"""What the change benchmark leaves on disk: its numbers as JSON, and a figure."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ashore.experiments.change_benchmark import ChangeBenchmark, Outcome, per_million
from ashore.experiments.machine import this_machine


def write(folder: Path, config: ChangeBenchmark, outcome: Outcome, facts: Mapping[str, Any]) -> tuple[Path, Path]:
    """The numbers as JSON and the figure."""
    folder.mkdir(parents=True, exist_ok=True)
    # Where the file lies says the file itself.
    named = [field.name for field in dataclasses.fields(ChangeBenchmark) if field.name != "out"]
    content = {
        **facts,
        "machine": this_machine().as_dict(),
        "settings": {name: getattr(config, name) for name in named},
        "detector": dataclasses.asdict(outcome.calibration),
        "false_alarms": outcome.false_alarms,
        "quiet_decisions": outcome.quiet_decisions,
        "false_alarms_per_million": per_million(outcome),
        "cases": {name: case._asdict() for name, case in outcome.cases.items()},
    }
    numbers = folder / "change.json"
    numbers.write_text(json.dumps(content, indent=2) + "\n")
    return numbers, draw(folder / "change.png", config, outcome)


def draw(path: Path, config: ChangeBenchmark, outcome: Outcome) -> Path:
    """Gain and cost around the change, and how long it took to notice."""
    figure = Figure(figsize=(9.0, 10.0), layout="constrained")
    gain, cost, delay = figure.subplots(3, 1)
    colours = [f"C{index}" for index in range(len(outcome.cases))]
    for colour, name in zip(colours, outcome.cases, strict=True):
        gain.plot(*_smooth(outcome.gain[name], config.before), color=colour, label=name)
        cost.plot(*_smooth(outcome.cost_without[name], config.before), color=colour, linestyle=":")
        cost.plot(*_smooth(outcome.cost_with[name], config.before), color=colour, label=name)
        found = np.sort(outcome.delays[name][np.isfinite(outcome.delays[name])])
        share = np.arange(1, len(found) + 1) / len(outcome.delays[name])
        delay.step(
            np.append(found, config.after),
            np.append(share, share[-1:] if len(share) else 0.0),
            where="post",
            color=colour,
            label=name,
        )
    for axes, label in ((gain, "gain of recent evidence, nats"), (cost, "cost per decision (dotted: not detected)")):
        axes.axvline(0.0, color="black", linestyle="--", linewidth=1)
        axes.set_xlabel("decisions since the change")
        axes.set_ylabel(label)
        axes.legend(fontsize="small")
    delay.set_xlabel("decisions since the change")
    delay.set_ylabel("share of worlds detected")
    delay.set_ylim(0.0, 1.02)
    figure.savefig(path, dpi=120)
    return path


def _smooth(values: np.ndarray, before: int) -> tuple[np.ndarray, np.ndarray]:
    """Means of stretches of decisions, on an axis that starts at the change."""
    stretch = max(1, min(25, before, len(values) - before))
    offset = before % stretch
    whole = (len(values) - offset) // stretch
    means = values[offset : offset + whole * stretch].reshape(whole, stretch).mean(axis=1)
    return offset + stretch * (np.arange(whole) + 0.5) - before, means
