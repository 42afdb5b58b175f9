"""CARD.md: what somebody who is handed a bundle should know before it acts, in words and small tables."""

from collections.abc import Mapping
from typing import NamedTuple

from ashore_runtime.schema import (
    PERCENTILES,
    Budget,
    Calibration,
    ChangeCalibration,
    Manifest,
    Network,
    WorldCalibration,
)
from ashore_runtime.world_levels import WorldLevels

_LOAD = """```python
from ashore_runtime import Runtime

runtime = Runtime.load("{name}")
runtime.arm()
result = runtime.act(observation)                # np.asarray(result) is the action
runtime.observe(next_observation, reward, cost)  # {observed}
```"""


class Facts(NamedTuple):
    """What a manifest does not say."""

    name: str
    """Of the bundle on disk."""
    summary: str
    """What the method is, in one sentence."""
    trained: str
    """How the policy was trained, in one sentence."""
    identifies: bool
    """Whether it finds out which world it is in."""
    hashes: Mapping[str, str]
    """SHA-256 by name of the thing."""


def write_card(manifest: Manifest, calibration: Calibration | None, facts: Facts) -> str:
    """The card as Markdown."""
    task, network = manifest.task, manifest.network
    lines = [
        f"# {facts.name}",
        "",
        f"A policy for **{task.name}** ({task.summary.rstrip('.')}), made by `{manifest.method}`. "
        + _behaviour(calibration, facts),
        "",
        *_warnings(calibration),
        f"- decides every {task.control_period:g} s from {len(manifest.observation)} numbers; "
        f"{len(manifest.action)} action(s): {_names(manifest)}",
        f"- action: {task.action_map}",
        f"- method: {facts.summary}",
        f"- trained: {facts.trained}",
        f"- networks: {_critics(network)}, actor "
        f"{' x '.join(map(str, network.hidden))}, latent of {network.latent}{'' if facts.identifies else ' zeros'}, "
        "computed in float32",
        f"- caution: {_caution(manifest)}",
        "",
        "It does not replace an emergency stop, nor the time-out that the actuators' own controller needs.",
        "",
        "## Load it",
        "",
        _LOAD.format(
            name=facts.name,
            observed="and it learns which world this is" if facts.identifies else "and the cost is counted",
        ),
        "",
        "## Budget",
        "",
        *_budget(manifest.budget),
        "",
        "## Caution over time",
        "",
        *_schedule(calibration),
        "",
        "## What was assumed",
        "",
        *([f"- {sentence}" for sentence in calibration.assumptions] if calibration else ["- Nothing was calibrated."]),
        "- The observation has the fields of `manifest.json`, in that order and those units.",
        "",
        "## Trained in",
        "",
        "| parameter | unit of its default | applied by | from | to |",
        "|---|---|---|---|---|",
        *(
            f"| {row['name']} | {row['unit']} | {row['operation']} | {row['low']:g} | {row['high']:g} |"
            for row in manifest.training_ranges
        ),
        "",
        "## Made with",
        "",
        "| what | |",
        "|---|---|",
        *(f"| {name} | {text} |" for name, text in manifest.versions.items()),
        *(f"| SHA-256 of {name} | `{digest}` |" for name, digest in facts.hashes.items()),
        "",
    ]
    return "\n".join(lines)


def infeasible(calibration: Calibration) -> str | None:
    """One sentence where no risk level was enough; None where one always was."""
    marked = [str(n) for n, bad in zip(calibration.counts, calibration.infeasible, strict=True) if bad]
    if not marked:
        return None
    where = "throughout" if len(marked) == len(calibration.counts) else f"at N = {', '.join(marked)}"
    return f"INFEASIBLE {where}: no risk level on the grid makes up for what is not known there."


def _warnings(calibration: Calibration | None) -> list[str]:
    warning = None if calibration is None else infeasible(calibration)
    return [] if warning is None else [f"**{warning}**", ""]


def _behaviour(calibration: Calibration | None, facts: Facts) -> str:
    """What it does in a world that it does not know."""
    if calibration is not None:
        return _course(calibration)
    learns = "It finds out which world it is in" if facts.identifies else "It does the same in every world"
    return f"{learns}, and it has no calibration: its risk level eta is 0 throughout."


def _course(calibration: Calibration) -> str:
    """How caution goes on as evidence comes in."""
    if all(calibration.infeasible):
        return "Its calibration found no risk level that is enough: it acts at the best there is."
    world = calibration.world
    levels = [(eta,) for eta in calibration.eta] if world is None else list(world.eta_percentiles)
    if not any(map(any, levels)):
        return "Its calibration asks for no caution: its risk level eta is 0 throughout."
    first, last = max(levels[0]), levels[-1]
    if min(last) < first:
        return "It starts careful in a world it does not know and relaxes as evidence comes in."
    return f"It does not relax as evidence comes in: its risk level eta begins at {first:g} and ends at {max(last):g}."


def _names(manifest: Manifest) -> str:
    return ", ".join(f"`{field.name}`" for field in manifest.action)


def _critics(network: Network) -> str:
    if not network.critic_heads:
        return "no critics (nothing is refined, so they were left out)"
    return f"critics {network.critic_width} wide with {network.fractions} fractions"


def _caution(manifest: Manifest) -> str:
    if not manifest.network.critic_heads and manifest.caution == "refinement":
        return "none: the actor's action is sent as it is"
    refinement = manifest.refinement
    algorithm = (
        f"Algorithm 1, at most {refinement.steps} steps (cost step {refinement.cost_step:g}, reward step "
        f"{refinement.reward_step:g}, gradient `{refinement.variant}`, weight `{refinement.weight}`, keeps "
        f"`{refinement.keep}`)"
    )
    words = {
        "actor": "the actor is told the risk level; nothing is refined",
        "refinement": algorithm,
        "both": f"the actor is told the risk level, then {algorithm}",
    }
    return f"`{manifest.caution}`: {words[manifest.caution]}"


def _budget(budget: Budget) -> list[str]:
    return [
        "| unit | limit on the cost |",
        "|---|---|",
        f"| per episode of {budget.decisions_per_episode} decisions, on average | {budget.per_episode:g} |",
        f"| per decision | {budget.per_decision:g} |",
        f"| discounted at {budget.discount:g} (the critics' unit) | {budget.discounted:g} |",
    ]


def _watched(change: ChangeCalibration | None) -> str:
    if change is None:
        return "A change of the dynamics is not watched for."
    promise = (
        "how often for nothing was not measured"
        if change.false_alarms_per_million is None
        else f"at most {change.false_alarms_per_million:g} false alarms per million decisions, from {change.runs} "
        f"simulated worlds of {change.run_length} decisions each"
    )
    return (
        f"A change of the dynamics is an alarm where the last {change.memory} transitions predict better than all of "
        f"them by a CUSUM of {change.threshold:.3g} nats (drift {change.drift:g}): {promise}. The posterior then "
        "starts afresh from what came after the change, and eta from its careful start."
    )


def _schedule(calibration: Calibration | None) -> list[str]:
    if calibration is None:
        return ["There is no calibration in this bundle: it runs at eta = 0, without caution."]
    if calibration.world is not None:
        return [*_by_world(calibration.counts, calibration.world), "", _watched(calibration.change)]
    rows = list(zip(calibration.counts, calibration.eta, calibration.infeasible, strict=True))
    # Only where something changes: a schedule may have twenty counts and three levels.
    kept = [row for i, row in enumerate(rows) if i == 0 or row[1:] != rows[i - 1][1:]]
    watched = _watched(calibration.change)
    return [
        "| from this many transitions on | eta | |",
        "|---|---|---|",
        *(f"| {count} | {eta:g} | {'infeasible: not enough' if bad else ''} |" for count, eta, bad in kept),
        "",
        watched,
    ]


def _by_world(counts: tuple[int, ...], world: WorldCalibration) -> list[str]:
    rows = list(zip(counts, world.eta_percentiles, strict=True))
    kept = [row for i, row in enumerate(rows) if i == 0 or row[1] != rows[i - 1][1]]
    levels = WorldLevels(world)
    start, infeasible = levels.start
    return [
        f"Caution follows the world that is identified: it starts at eta = {start:g}"
        + (", which is infeasible: not enough" if infeasible else "")
        + ", and then takes the smallest level at which the cost that the belief predicts, with a margin, keeps the "
        f"budget. A world unlike all simulated ones gets at least {levels.outside[0]:g}. Percentiles over the "
        "simulated worlds:",
        "",
        "| from this many transitions on | " + " | ".join(f"{share} %" for share in PERCENTILES) + " |",
        "|---|---|---|---|",
        *(f"| {count} | {' | '.join(f'{eta:g}' for eta in found)} |" for count, found in kept),
    ]
