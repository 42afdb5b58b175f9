"""`ashore list`: what there is to choose from, and one task in full."""

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from ashore.environments import randomisation, tasks
from ashore.environments.base import Field, TaskDescription
from ashore.environments.task_family import choose
from ashore.experiments import presets
from ashore.methods import registry


@dataclass(frozen=True)
class Options:
    """Show the tasks with their presets, and the methods; or one task with its ranges and fields; or the methods."""

    task: str | None = None
    """Show this task in full."""
    preset: str | None = None
    """Preset of the task to show; its default one if left out."""
    methods: bool = False
    """Show only the methods: what each is, where it comes from, and what we do differently."""


def run(options: Options) -> int:
    """Print the registry, or one of its entries."""
    console = Console()
    if options.methods:
        _show_methods(console)
        return 0
    if options.task is None:
        _show_registry(console)
        return 0
    family = tasks.lookup(options.task)
    choice = choose(family, options.preset, None, {})
    _show_task(console, choice.description)
    return 0


def _show_registry(console: Console) -> None:
    table = Table("task", "presets (default first)", "what it is", title="Tasks", title_justify="left")
    for name, family in tasks.TASKS.items():
        table.add_row(name, ", ".join(family.presets), family.summary)
    console.print(table)
    methods = Table("method", "what it is", title="Methods (--methods shows more)", title_justify="left")
    for name, method in registry.METHODS.items():
        methods.add_row(name, method.summary)
    console.print(methods)
    training = Table("task", "preset", "what it is for", title="Training presets", title_justify="left")
    for task, choices in presets.PRESETS.items():
        for name, preset in choices.items():
            training.add_row(task, name, preset.summary)
    console.print(training)


def _show_methods(console: Console) -> None:
    """A paragraph each: three columns of sentences are hard to read on a narrow terminal."""
    for name, method in registry.METHODS.items():
        lines = [f"[bold]{name}[/]: {method.summary}", f"  reference: {method.reference}"]
        lines += [f"  what we do differently: {method.differs}"]
        if method.recipe is None:
            lines += [f"  training: {method.instead}"]
        for line in lines:
            console.print(line, highlight=False, soft_wrap=True)


def _show_task(console: Console, description: TaskDescription) -> None:
    budget = description.budget
    console.print(f"[bold]{description.name}[/]: {description.summary}", highlight=False)
    console.print(
        f"{description.decisions_per_episode} decisions of {description.control_period:g} s per episode, "
        f"{description.action_repeat} env step(s) per decision; budget {budget.per_episode:g} per episode = "
        f"{budget.per_decision:g} per decision = {budget.discounted:g} discounted at {budget.discount:g}.",
        highlight=False,
    )
    console.print(_ranges(description))
    for shift, rows in description.shifts.items():
        for sentence in randomisation.leaves_training(description.shifts["train"], rows):
            console.print(f"[yellow]warning[/]: {shift}: {sentence}", highlight=False, soft_wrap=True)
    console.print(_fields("Observation", description.observation))
    console.print(_fields("Action", description.action))
    console.print(f"Action map: {description.action_map}", highlight=False, soft_wrap=True)


def _ranges(description: TaskDescription) -> Table:
    table = Table("parameter", "unit of its default", "operation", title="Physical parameters", title_justify="left")
    for shift in description.shifts:
        table.add_column(shift, justify="right")
    for index, row in enumerate(description.shifts["nominal"]):
        ranges = [_range(rows[index]) for rows in description.shifts.values()]
        table.add_row(row.name, row.unit, row.operation, *ranges)
    return table


def _range(row: randomisation.Randomised) -> str:
    return f"{row.low:g}" if row.low == row.high else f"{row.low:g} .. {row.high:g}"


def _fields(title: str, fields: tuple[Field, ...]) -> Table:
    table = Table("index", "name", "unit", "low", "high", title=f"{title} ({len(fields)})", title_justify="left")
    for index, field in enumerate(fields):
        table.add_row(str(index), field.name, field.unit, f"{field.low:g}", f"{field.high:g}")
    return table
