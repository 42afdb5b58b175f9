"""`ashore doctor`: what this machine has, line by line."""

from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape

from ashore.experiments.machine_checks import check_machine

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@dataclass(frozen=True)
class Options:
    """Check Python, JAX, MuJoCo, pictures, video, disk and threads; exit code 1 if something needed is missing."""


def run(options: Options) -> int:
    """Print every check as it comes, and a fix under those that need one."""
    del options  # there is nothing to choose
    console = Console(soft_wrap=True, highlight=False)
    failed = 0
    for check in check_machine():
        colour = _COLOURS[check.status]
        console.print(f"[{colour}]{check.status:<4}[/]  {check.name:<17}  {escape(check.found)}")
        if check.fix:
            console.print(f"{'':<25}fix: {escape(check.fix)}")
        failed += check.status == "fail"
    return 1 if failed else 0
