"""What the demo shows, in sentences that are made of its numbers: whatever came out is what they say."""

from collections.abc import Sequence

import numpy as np

from ashore.experiments.demo_outcome import Outcome
from ashore.experiments.demo_plan import BASELINE, CALIBRATED, NEUTRAL

_SAME = 0.005
"""Levels that are nearer to each other look the same when they are written with two digits."""
_CLEAR = 2.0
"""Standard errors that a difference must have before it is more than an accident of these worlds."""

_WRITTEN = 0.05
"""Costs that are nearer to each other look the same when they are written with one digit."""
_FEW = 4
"""With fewer worlds not even the standard error is known."""
_ONE_SEED = "Each policy is one training seed: this compares two policies, and `ashore suite table` compares methods."


def verdict(task: str, outcomes: Sequence[Outcome]) -> list[str]:
    """What the schedule did to cost and return, how eta went, and how the baseline compares."""
    by_name = {outcome.way.name: outcome for outcome in outcomes}
    careful, neutral, baseline = (by_name.get(name) for name in (CALIBRATED, NEUTRAL, BASELINE))
    sentences: list[str] = []
    if careful is not None and neutral is not None:
        sentences += [*_caution(task, careful, neutral), _eta(careful), *_alarms(careful)]
    elif neutral is not None:
        sentences.append(
            f"{task}: without a calibration the policy ran at eta = 0 and cost {_cost(neutral)}; whether caution would "
            "help is not shown."
        )
    policy = careful or neutral
    if policy is not None and baseline is not None:
        sentences += _baseline(policy, baseline)
    return sentences


def _caution(task: str, careful: Outcome, neutral: Outcome) -> list[str]:
    change = float(careful.costs.mean() - neutral.costs.mean())
    lower = int(np.sum(careful.costs < neutral.costs))
    worlds = f"in {lower} of {careful.worlds} worlds it was lower"
    costs = f"{neutral.costs.mean():.1f} to {careful.costs.mean():.1f} of {careful.budget:g} per episode"
    returns = f"return went from {neutral.returns.mean():.1f} to {careful.returns.mean():.1f}"
    if abs(change) < _WRITTEN:
        return [
            f"{task}: the calibrated schedule did not lower the cost here: {_cost(careful)} with it and without it."
        ]
    what = "lowered the cost" if change < 0 else "did not lower the cost here: it went"
    sentence = f"{task}: the calibrated schedule {what} from {costs} ({worlds}); {returns}."
    return [sentence, _accident("cost", careful.costs - neutral.costs)]


def _accident(what: str, differences: np.ndarray) -> str:
    """Whether so many worlds are enough to tell; both ways met the same ones, so it is their differences that count."""
    worlds = len(differences)
    if worlds < _FEW:
        return f"{worlds} world{'s' if worlds > 1 else ''} cannot tell this from chance."
    error = float(differences.std(ddof=1) / np.sqrt(worlds))
    measured = (
        f"The difference in {what} is {differences.mean():+.1f} with a standard error of {error:.1f} over the worlds"
    )
    if abs(float(differences.mean())) > _CLEAR * error:
        return f"{measured}."
    return f"{measured}: so few worlds cannot tell it from chance."


def _eta(careful: Outcome) -> str:
    first, last = careful.ends("eta")
    wide, narrow = careful.ends("spread")
    known = f"while the posterior's spread went from {wide:.2f} to {narrow:.2f}"
    if first - last > _SAME:
        return f"Caution relaxed: eta went from {first:.2f} to {last:.2f} {known}."
    if last - first > _SAME:
        return f"Caution rose: eta went from {first:.2f} to {last:.2f} {known}."
    return f"Caution did not relax: eta began and ended at {last:.2f} {known}."


def _alarms(careful: Outcome) -> list[str]:
    alarmed = int(np.sum(careful.alarms > 0))
    if not alarmed:
        return []
    return [
        f"In {alarmed} of {careful.worlds} worlds the runtime took what it saw for a world that changes and began to "
        f"learn anew, {int(careful.alarms.sum())} times in all."
    ]


def _baseline(policy: Outcome, baseline: Outcome) -> list[str]:
    who = baseline.way.label.removeprefix(f"{BASELINE}: ")
    other = "the calibrated policy" if policy.way.name == CALIBRATED else "the policy at eta = 0"
    compared = (
        f"The baseline ({who}) cost {_cost(baseline)} with a return of {baseline.returns.mean():.1f}; {other} cost "
        f"{policy.costs.mean():.1f} with a return of {policy.returns.mean():.1f}."
    )
    told = [_accident("cost", policy.costs - baseline.costs), _accident("return", policy.returns - baseline.returns)]
    # Few worlds say the same of both.
    sentences = [compared, *dict.fromkeys(told)]
    return sentences if baseline.way.bundle is None else [*sentences, _ONE_SEED]


def _cost(outcome: Outcome) -> str:
    return f"{outcome.costs.mean():.1f} of {outcome.budget:g} per episode"
