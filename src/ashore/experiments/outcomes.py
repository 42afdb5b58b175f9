"""What a suite is about, in plain numbers: the records that tables are printed and figures are drawn from."""

from dataclasses import dataclass
from typing import Literal

from ashore.experiments.statistics import Estimate

Source = Literal["ashore", "paper"]
RETURN, COST, COST_SHARE = "return", "cost", "cost / budget"
"""Names of the quantities that every task has."""


@dataclass(frozen=True)
class Outcome:
    """One quantity of one method in one kind of world: ours, or what the paper printed."""

    task: str
    method: str
    worlds: str
    """As the table calls them: Train, Deploy, Mild and so on."""
    metric: str
    unit: str
    source: Source
    mean: float | None
    """None where there is no such number: never a zero."""
    deviation: float | None = None
    """Ours: standard deviation across environments. The paper does not say across what."""
    low: float | None = None
    high: float | None = None
    """Bootstrap interval of the mean at 95 %."""
    seeds: int | None = None
    """Training seeds behind the number."""
    environments: int | None = None
    episodes: int | None = None
    budget: float | None = None
    """The cost limit, in this unit."""
    where: str = ""
    """Where the number comes from: a folder, or a label in the paper."""
    remark: str = ""
    """Why there is no number, or what to know about it."""


@dataclass(frozen=True)
class DeploymentPoint:
    """A stretch of a deployment: what it cost and earned while so many transitions were there to learn from."""

    method: str
    stretch: Literal["window", "episode"]
    begins: int
    """Transitions collected when the stretch begins."""
    ends: int
    cost: Estimate
    """At the rate of this stretch, per episode."""
    reward: Estimate
    """The same."""
    eta: float
    """Mean risk level of the stretch."""


@dataclass(frozen=True)
class RefinementTime:
    """How long the refinement of one action takes."""

    source: Source
    steps: int
    reward_step: float
    cost_step: float
    proximal: float
    milliseconds: float
    deviation: float


@dataclass(frozen=True)
class ComponentWork:
    """What one part of a decision costs: ours counted from the graph, the paper's as printed."""

    component: str
    complexity: str
    """In the paper's symbols."""
    operations: float | None
    """Multiplications and additions, each counted as one."""
    multiply_adds: float | None
    """Half of `operations`: the unit of the paper's FLOPs."""
    paper_operations: float | None
    """As the paper prints it; its counts are multiply-adds."""
    milliseconds: float | None
    deviation: float | None
    paper_milliseconds: float | None
