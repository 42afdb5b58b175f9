"""CARD.md: what somebody who is handed a bundle should know before it acts, in words and small tables."""

from collections.abc import Mapping
from typing import NamedTuple

from ashore_runtime.schema import Budget, Calibration, Manifest

_LOAD = """```python
from ashore_runtime import Runtime

runtime = Runtime.load("{name}")
runtime.arm()
result = runtime.act(observation)                # np.asarray(result) is the action
runtime.observe(next_observation, reward, cost)  # and it learns which world this is
```"""


class Facts(NamedTuple):
    """What a manifest does not say."""

    name: str
    """Of the bundle on disk."""
    trained: str
    """How the policy was trained, in one sentence."""
    hashes: Mapping[str, str]
    """SHA-256 by name of the thing."""


def write_card(manifest: Manifest, calibration: Calibration | None, facts: Facts) -> str:
    """The card as Markdown."""
    task, network = manifest.task, manifest.network
    lines = [
        f"# {facts.name}",
        "",
        f"A policy for **{task.name}** ({task.summary.rstrip('.')}) that starts careful in a world it does not know "
        "and relaxes as evidence comes in.",
        "",
        f"- decides every {task.control_period:g} s from {len(manifest.observation)} numbers; "
        f"{len(manifest.action)} action(s): {_names(manifest)}",
        f"- action: {task.action_map}",
        f"- trained: {facts.trained}",
        f"- networks: critics {network.critic_width} wide with {network.fractions} fractions, actor "
        f"{' x '.join(map(str, network.hidden))}, latent of {network.latent}, computed in float32",
        f"- caution: {_caution(manifest)}",
        "",
        "It does not replace an emergency stop, nor the time-out that the actuators' own controller needs.",
        "",
        "## Load it",
        "",
        _LOAD.format(name=facts.name),
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


def _names(manifest: Manifest) -> str:
    return ", ".join(f"`{field.name}`" for field in manifest.action)


def _caution(manifest: Manifest) -> str:
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


def _schedule(calibration: Calibration | None) -> list[str]:
    if calibration is None:
        return ["There is no calibration in this bundle: it runs at eta = 0, without caution."]
    rows = list(zip(calibration.counts, calibration.eta, calibration.infeasible, strict=True))
    # Only where something changes: a schedule may have twenty counts and three levels.
    kept = [row for i, row in enumerate(rows) if i == 0 or row[1:] != rows[i - 1][1:]]
    change = calibration.change
    watched = (
        "A change of the dynamics is not watched for."
        if change is None
        else f"A change of the dynamics is an alarm at a CUSUM of {change.threshold:.3g} (drift {change.drift:g}); "
        "the posterior is forgotten then, and eta starts again."
    )
    return [
        "| from this many transitions on | eta | |",
        "|---|---|---|",
        *(f"| {count} | {eta:g} | {'infeasible: not enough' if bad else ''} |" for count, eta, bad in kept),
        "",
        watched,
    ]
