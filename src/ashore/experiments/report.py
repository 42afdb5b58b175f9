"""A page about a folder: everything that a run, a suite or a deployment left there, in one file that needs no other.

The page loads nothing: style, charts and videos are inside, and there is no script. It forbids itself the network.
"""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2

import ashore
from ashore.experiments import (
    report_calibration,
    report_charts,
    report_comparison,
    report_deployment,
    report_evaluation,
    report_sources,
    report_training,
)
from ashore.experiments.report_parts import (
    Block,
    Cell,
    Column,
    Facts,
    Film,
    Folded,
    Heading,
    Section,
    Sentences,
    Text,
    cell,
    exact,
    spelt,
    table,
)
from ashore.experiments.report_sources import Content, Holdings, Run

PAGE = "report.html"
"""Name of the page where nobody gives another."""
VIDEO_MEBIBYTES = 24.0
"""All videos of a page together; base64 makes a third more of them."""
_MEBIBYTE = 2**20
_KEYS = 32
"""Boxes of a legend that the style sheet knows."""


class Written(NamedTuple):
    """The page that was written."""

    path: Path
    sections: list[str]
    left_out: list[str]
    """Videos that did not fit."""


def write_report(folder: Path, out: Path | None = None, video_mebibytes: float = VIDEO_MEBIBYTES) -> Written:
    """Write the page about a folder.

    Args:
        folder: of a run, a suite or a deployment.
        out: the file to write; `report.html` in the folder if left out.
        video_mebibytes: videos are put in while they are no more than this together, the smallest first.

    Raises:
        ValueError: one sentence about what cannot be read.
    """
    holdings = report_sources.look(folder)
    films, left_out = _films(holdings, video_mebibytes)
    try:
        sections = _sections(holdings, films, left_out)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        # Files are read as they are: one that lacks what every such file has was not written by us.
        why = f"{type(error).__name__}: {error}"
        raise ValueError(f"{folder} holds a file that is not of the form that Ashore writes ({why}).") from error
    path = folder / PAGE if out is None else out
    if path.is_dir():
        raise ValueError(f"{path} is a folder: say which file the page shall be.")
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.unfinished")
    beside.write_text(_render(holdings.name, sections), encoding="utf-8")
    beside.replace(path)
    return Written(path, [section.title for section in sections], left_out)


def _sections(holdings: Holdings, films: list[Film], left_out: list[str]) -> list[Section]:
    """Those that have something to show, in the order in which data walks."""
    runs, found = holdings.runs, holdings.deployments
    videos = ("videos", "Videos", _videos(films, left_out))
    # Where ways are compared, the films compare them too.
    compared = ("comparison", "Side by side", report_comparison.comparison(holdings.comparison))
    kept: list[tuple[str, str, list[Block]]] = [
        ("glance", "At a glance", _glance(holdings)),
        *([compared, videos] if compared[2] else []),
        ("training", "Training", report_training.training(runs)),
        ("evaluation", "Evaluation", report_evaluation.evaluation(runs)),
        ("calibration", "Calibration", report_calibration.calibration(runs)),
        ("frontier", "Ways to be careful", report_calibration.frontier(runs)),
        ("deployment", "Deployment" if len(found) == 1 else "Deployments", report_deployment.deployments(found)),
        ("work", "Work of a decision", _work(runs)),
        *([] if compared[2] else [videos]),
        ("provenance", "How it was made", _made(holdings)),
    ]
    return [Section(anchor, title, blocks) for anchor, title, blocks in kept if blocks]


def _glance(holdings: Holdings) -> list[Block]:
    if len(holdings.runs) > 1:
        named = any(run.name == run.label for run in holdings.runs)
        rows = [
            [run.label if named else None, run.task, run.method, _seeds(run), _env_steps(run), *_kept(run)]
            for run in holdings.runs
        ]
        columns = [Column(name, numeric=False) for name in ("run", "task", "method")]
        columns += [Column("seeds"), Column("env steps", "per seed")]
        columns += [Column(name, numeric=False) for name in ("evaluated", "calibrated")]
        return table(f"{len(rows)} runs", columns, rows)
    facts: list[tuple[str, Any]] = []
    for run in holdings.runs:
        facts += [
            ("task", run.task),
            ("method", run.config.get("method")),
            ("seeds", _seeds(run)),
            ("env steps per seed", _env_steps(run)),
            ("budget per episode", run.limit and float(run.limit.per_episode)),
        ]
    # What is compared is told right below.
    for one in holdings.deployments[:1] if not holdings.runs and holdings.comparison is None else ():
        facts += [("deployed in", one.summary.get("env") or one.summary.get("task"))]
        facts += [("shift", one.summary.get("shift")), ("episodes", len(one.summary["episodes"]))]
        facts += [("decisions", one.summary["decisions"])]
    there = [(name, cell(value)) for name, value in facts if value is not None and value != ""]
    return [Facts(there, large=True)] if there else []


def _seeds(run: Run) -> int | None:
    return run.config.get("seeds")


def _env_steps(run: Run) -> int | None:
    return run.rows[-1].get("env_steps") if run.rows else None


def _kept(run: Run) -> tuple[str | None, str | None]:
    return ("yes" if run.evaluations else None, "yes" if run.calibrations else None)


def _work(runs: Sequence[Run]) -> list[Block]:
    """What the parts of a decision take, as a suite has counted and timed them."""
    columns = [Column("part", numeric=False), Column("operations"), Column("time", "ms"), Column("± deviation", "ms")]
    keys = ("component", "operations", "milliseconds", "deviation")
    return [
        block
        for run in runs
        for block in table(f"{run.label}: one decision", columns, ([row.get(key) for key in keys] for row in run.work))
    ]


def _films(holdings: Holdings, most: float) -> tuple[list[Film], list[str]]:
    """Videos as text, the smallest first until the page has enough; then a sentence for each that is left out."""
    films: list[Film] = []
    left_out: list[str] = []
    total = 0.0
    for name, path in sorted(holdings.videos, key=lambda video: (video[1].stat().st_size, video[0])):
        size = path.stat().st_size / _MEBIBYTE
        if total + size > most:
            left_out.append(f"{name} ({size:.1f} MiB)")
            continue
        total += size
        films.append(Film(name, base64.b64encode(path.read_bytes()).decode("ascii"), size))
    return sorted(films, key=lambda film: film.name), sorted(left_out)


def _videos(films: Sequence[Film], left_out: Sequence[str]) -> list[Block]:
    said = f"Left out, because the page would be too large: {', '.join(left_out)}."
    return [*films, *([Sentences([said])] if left_out else [])]


def _made(holdings: Holdings) -> list[Block]:
    """Commands, versions and machines as they were noted, and every configuration."""
    blocks: list[Block] = []
    sources = [(run.label, run.notes) for run in holdings.runs] + [
        (one.label, one.notes) for one in holdings.deployments
    ]
    noted = [note for _, notes in sources for note in notes]
    commands = list(dict.fromkeys(str(note["command"]) for note in noted if note.get("command")))
    if commands:
        blocks += [Heading("Commands"), Text("\n".join(commands))]
    versions = [note["versions"] for note in noted if note.get("versions")]
    versions += [run.versions for run in holdings.runs if run.versions]
    blocks += _alike("Versions", versions)
    blocks += _alike("Machine", [note["machine"] for note in noted if note.get("machine")])
    for one in holdings.deployments:
        blocks += [Folded(f"Summary of {one.label}", [Facts(_plain(one.summary))])]
    for run in holdings.runs:
        if run.config:
            text = json.dumps(run.config, indent=2, ensure_ascii=False)
            blocks.append(Folded(f"Configuration of {run.label}", [Text(text)]))
    return blocks


def _alike(title: str, found: Sequence[Content]) -> list[Block]:
    """One table of facts where all say the same, one for each that differs otherwise."""
    different = list({json.dumps(facts, sort_keys=True): facts for facts in found}.values())
    blocks: list[Block] = []
    for number, facts in enumerate(different, start=1):
        blocks += [Heading(title if len(different) == 1 else f"{title} {number}"), Facts(_plain(facts))]
    return blocks


def _plain(facts: Content, prefix: str = "") -> list[tuple[str, Cell]]:
    """Nested facts as a list of names and values; lists of objects are shown elsewhere."""
    rows: list[tuple[str, Cell]] = []
    for name, value in facts.items():
        if isinstance(value, dict):
            rows += _plain(value, f"{prefix}{spelt(name)}: ")
        elif isinstance(value, list) and not any(isinstance(part, dict) for part in value):
            rows.append((prefix + spelt(name), Cell(", ".join(map(str, value)))))
        elif isinstance(value, str):
            rows.append((prefix + spelt(name), exact(value)))
        elif value is not None and not isinstance(value, list):
            rows.append((prefix + spelt(name), cell(value)))
    return rows


def _render(name: str, sections: Sequence[Section]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ashore.experiments", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("report.html.j2")
    return page.render(name=name, sections=sections, version=ashore.__version__, tones=report_charts.TONES, keys=_KEYS)
