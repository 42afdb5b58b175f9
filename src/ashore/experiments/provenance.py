"""How a folder came about: a line for every command that worked on it, with versions and the machine."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

from ashore.experiments.exporting import versions
from ashore.experiments.machine import this_machine

FILE = "provenance.jsonl"
_PROGRAMS = ("ashore", "main.py")
"""How a program of ours is called on the command line."""


def note(folder: Path) -> None:
    """Add the command that is running; it starts JAX."""
    line = {"command": _command(), "versions": versions(), "machine": this_machine().as_dict()}
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / FILE).open("a") as file:
        file.write(json.dumps(line) + "\n")


def read(folder: Path) -> list[dict[str, Any]]:
    """What was noted so far; a last line that was cut short is left out."""
    notes: list[dict[str, Any]] = []
    if (folder / FILE).is_file():
        for line in (folder / FILE).read_text().splitlines():
            try:
                notes.append(json.loads(line))
            except json.JSONDecodeError:
                break
    return notes


def _command() -> str | None:
    """As it was typed; None where a program of somebody else called us."""
    program, *words = sys.argv
    return shlex.join(["ashore", *words]) if Path(program).name in _PROGRAMS else None
