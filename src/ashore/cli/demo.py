"""`ashore demo`: the shipped policies in worlds they never saw, watched as they go, and what came of it."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ashore.cli.demo_view import watching
from ashore.cli.options import UsageError
from ashore.compilation_cache import keep_compiled_programs
from ashore.experiments import demo_plan
from ashore.experiments.demo import Demo, DemoConfig, Shown, demo
from ashore.experiments.demo_plan import BUNDLES

Options = DemoConfig


def run(options: DemoConfig) -> int:
    """Deploy, then say what it shows and where to see it."""
    keep_compiled_programs()
    console = Console(highlight=False)
    if options.bundles != BUNDLES and not options.bundles.is_dir():
        raise UsageError(f"There is no folder {options.bundles}.")
    try:
        planned = demo_plan.plan(options.bundles, options.worlds)
    except ValueError as mistake:
        raise UsageError(str(mistake)) from mistake
    for remark in planned.remarks:
        console.print(escape(remark), soft_wrap=True)
    with watching(console, planned) as watch:
        shown = demo(options, planned, watch)
    _conclude(console, shown)
    return 0


def _conclude(console: Console, shown: Demo) -> None:
    if shown.deployed:
        console.print(_table(shown.deployed))
    for one in shown.deployed:
        for sentence in one.sentences:
            console.print(escape(sentence), soft_wrap=True)
    for task, played in shown.scripted.items():
        episode, budget = played.episodes[0], played.description.budget.per_episode
        returned, cost = episode.rewards.sum(), episode.costs.sum()
        console.print(f"{task}, scripted controller: return {returned:.1f}, cost {cost:.1f} of {budget:g} per episode")
    for path in (*(one.video for one in shown.deployed), *(played.video for played in shown.scripted.values())):
        print(f"video: {path}")
    for path in shown.figures:
        print(f"figure: {path}")
    print(f"report: {shown.report}")


def _table(deployed: list[Shown]) -> Table:
    where = " and ".join(f"{one.planned.show.task} '{one.planned.show.shift}'" for one in deployed)
    table = Table(title=f"per episode, means over the worlds of {where}", title_justify="left", box=SIMPLE_HEAD)
    for name in ("task", "way"):
        table.add_column(name)
    for name in ("return", "cost", "budget", "under budget"):
        table.add_column(name, justify="right")
    for one in deployed:
        show = one.planned.show
        for place, found in enumerate(one.outcomes):
            cost = f"{found.costs.mean():.1f}"
            over = found.costs.mean() > found.budget
            table.add_row(
                "" if place else show.task,
                escape(found.way.label),
                f"{found.returns.mean():.1f}",
                f"[bold red]{cost}[/]" if over else cost,
                f"{found.budget:g}",
                f"{found.under_budget} of {found.worlds}",
                end_section=place == len(one.outcomes) - 1,
            )
    return table
