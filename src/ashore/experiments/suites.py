"""Suites: which methods on which tasks, and which worlds their tables and figures show. Data only.

A cell is one method on one task, with all its training seeds. It is evaluated in every kind of world that its task
declares, so that suites which show different ones share it: what was made for `table1` serves `ablation`.
"""

from dataclasses import dataclass

from ashore.calibration.config import CalibrationConfig
from ashore.experiments import paper_numbers
from ashore.experiments.calibration import CautionConfig
from ashore.experiments.decision_work import WorkConfig
from ashore.experiments.suite_evaluation import OWN, Protocol
from ashore.networks.architecture import SIZES

METHOD_NAMES = {
    "risk_adaptive": "Ours",
    "without_risk_adaptation": "Ours w/o R.A.",
    "nominal": "Nominal",
    "domain_randomisation": "D.R.",
    "spidr": "SPiDR",
    "robust": "Robust",
    "pearl": "PEARL",
    "fvd": "FVD",
}
"""What tables and figures call a method."""

FIXED_LEVELS = {f"level_{level}": level for level in (0.2, 0.4, 0.6, 0.8, 0.95)}
"""Ours at one risk level for ever: the points between which a calibrated schedule moves, beside
`without_risk_adaptation`, which is the one at 0."""

_SPIDR = (
    "spidr.train.spidr.ranges=train",
    "spidr.train.spidr.compare=dynamics",
    "spidr.train.spidr.multiplier=pid",
)
EQUAL_TERMS: dict[str, tuple[str, ...]] = {
    "PointGoal2": (*_SPIDR, "spidr.train.spidr.weight=1"),
    # At weight 1 an episode of our own policy is charged 700 here, of a budget of 20.
    "Platoon": (
        *_SPIDR,
        "spidr.train.spidr.weight=0.01",
        "pearl.train.actor_learning_rate=1e-4",
        "pearl.train.sizes.action_scale=8",
        "robust.train.actor_learning_rate=1e-4",
        "robust.train.sizes.action_scale=8",
        "robust.train.averaging=4",
        "robust.train.beyond=1",
        "robust.train.through_physics.late=1",
    ),
}
"""What methods are set to in all suites, by task, before what is asked for.

SPiDR has everybody's worlds and multiplier; as published it trains in worlds that hardly differ, and is charged next to
nothing in our physics. Its weight charges our own policy for about a third of the budget in Train. The actors
of PEARL and Robust follow their critics where others learn through the physics, and have the rate that was best for
that (results/trials, j) and critics that see the pedal in its usual size (docs/decisions/0014). A mean over the end of
the run alone does Robust harm (results/trials, r); it strays nowhere and takes no steps through the physics.
"""


@dataclass(frozen=True)
class Cell:
    """One method on one task."""

    task: str
    method: str


@dataclass(frozen=True)
class Shown:
    """One kind of world in a suite's tables."""

    task: str
    label: str
    shifts: tuple[str, ...]
    """Whose worlds are taken together; `own` stands for draws of the ranges that each method was trained in."""
    paper: str | None = None
    """Which column of the paper's table stands beside it, if one does."""


@dataclass(frozen=True)
class Suite:
    """An experiment."""

    summary: str
    cells: tuple[Cell, ...] = ()
    shown: tuple[Shown, ...] = ()
    paper_table: str | None = None
    """Label of the table whose numbers stand beside ours."""
    figures: tuple[str, ...] = ()
    """Which figures are drawn, by their names in `suite_figures`."""
    deployed_in: tuple[tuple[str, str], ...] = ()
    """(task, shift) of the deployments whose course is drawn."""
    decision_work: tuple[str, ...] = ()
    """Tasks for which the work of a single decision is counted and timed."""
    preset: str = "gpu"
    """Training preset, unless another is asked for."""
    seeds: int = 5
    """Training seeds, unless another number is asked for."""


@dataclass(frozen=True)
class Scale:
    """How much is measured, whatever the method."""

    protocol: Protocol = Protocol()
    caution: CautionConfig = CautionConfig()
    calibration: CalibrationConfig = CalibrationConfig()
    work: WorkConfig = WorkConfig()


_TINY = Scale(
    protocol=Protocol(environments=4, episodes=2),
    calibration=CalibrationConfig(
        environments=18, episodes=1, first_episodes=1, largest_count=16, reference=500, etas=(0.0, 0.5, 0.9)
    ),
    work=WorkConfig(sizes=SIZES["small"], repeats=20),
)
SCALES: dict[str, Scale] = {
    "smoke": _TINY,
    "laptop": Scale(
        protocol=Protocol(environments=32, episodes=4),
        calibration=CalibrationConfig(environments=32, episodes=4, reference=1000, largest_count=256),
        work=WorkConfig(repeats=100),
    ),
    "standard": Scale(),
    # Three seeds are calibrated: two minutes each on an H200.
    "gpu": Scale(calibration=CalibrationConfig(episodes=10, first_episodes=1)),
    "paper": Scale(),
}
"""By training preset."""

# What an episode of Platoon costs depends on the stretch of road far more than on the car: a standard deviation of 13
# around 18. Ten episodes leave 4 of that in every world, for which the schedule would pay with a fifth of the reward;
# simulating 64 takes two minutes on a CPU. Policies meet worlds beyond their ranges in training, and so does their
# calibration (docs/decisions, 16); strangers to it get what simulated ones call for (22). Between 0.4 and 0.9, where
# the schedule ends, levels lie closer together.
_MANY_EPISODES = CalibrationConfig(
    episodes=64,
    first_episodes=1,
    reference=64_000,
    beyond=2.0,
    strangers="measured",
    etas=(0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95),
)
CALIBRATED_LONGER: dict[tuple[str, str], CalibrationConfig] = {
    ("standard", "Platoon"): _MANY_EPISODES,
    ("gpu", "Platoon"): _MANY_EPISODES,
    ("paper", "Platoon"): _MANY_EPISODES,
}
"""By training preset and task, where the scale's own would measure scenes and not worlds."""

_TABLE_1 = ("risk_adaptive", "nominal", "domain_randomisation", "spidr", "robust")
_DEPLOYED = ("risk_adaptive", "without_risk_adaptation", "nominal", "domain_randomisation", "spidr", "robust", "pearl")
_FRONTIER = ("risk_adaptive", "without_risk_adaptation", *FIXED_LEVELS, "domain_randomisation", "spidr")


def _cells(task: str, *methods: str) -> tuple[Cell, ...]:
    return tuple(Cell(task, method) for method in methods)


def _train(task: str) -> tuple[Shown, ...]:
    """What all were trained in, by everybody's own ranges and by one; the nominal world shows what a specialist has."""
    own = Shown(task, "Train", (OWN,), paper_numbers.TRAIN)
    return (own, Shown(task, "Train ranges", ("train",)), Shown(task, "Nominal world", ("nominal",)))


SUITES: dict[str, Suite] = {
    "table1": Suite(
        summary="both tasks, five methods, in training and in deployment: the paper's Table 1",
        cells=(*_cells("PointGoal2", *_TABLE_1), *_cells("Platoon", *_TABLE_1, "fvd")),
        shown=(
            *_train("PointGoal2"),
            Shown("PointGoal2", "Deploy", ("medium",), paper_numbers.DEPLOY),
            Shown("PointGoal2", "Deploy, all levels", ("mild", "medium", "high")),
            *_train("Platoon"),
            Shown("Platoon", "Deploy", ("deploy",), paper_numbers.DEPLOY),
        ),
        paper_table=paper_numbers.TABLE_1,
        figures=("scatter", "training", "encoder", "charge", "calibration"),
    ),
    "ablation": Suite(
        summary="PointGoal2 without latent, with one, with risk adaptation: the paper's ablation",
        cells=_cells("PointGoal2", "nominal", "pearl", "without_risk_adaptation", "risk_adaptive"),
        shown=(*_train("PointGoal2"), Shown("PointGoal2", "Deploy", ("medium",), paper_numbers.DEPLOY)),
        paper_table=paper_numbers.ABLATION,
        figures=("scatter", "training"),
    ),
    "ood": Suite(
        summary="PointGoal2 under mild, medium and high shifts: the paper's figure on OOD levels",
        cells=_cells("PointGoal2", *_DEPLOYED),
        shown=(
            Shown("PointGoal2", "Mild", ("mild",)),
            Shown("PointGoal2", "Medium", ("medium",)),
            Shown("PointGoal2", "High", ("high",)),
        ),
        figures=("shifts", "scatter"),
    ),
    "deployment": Suite(
        summary="PointGoal2, cost, return and risk level while transitions are collected",
        cells=_cells("PointGoal2", *_DEPLOYED),
        shown=(Shown("PointGoal2", "Medium", ("medium",)),),
        figures=("deployment", "calibration"),
        deployed_in=(("PointGoal2", "medium"),),
    ),
    "platoon": Suite(
        summary="Platoon in training and in deployment, and while transitions are collected there",
        cells=_cells("Platoon", *_DEPLOYED, "fvd"),
        shown=(*_train("Platoon"), Shown("Platoon", "Deploy", ("deploy",), paper_numbers.DEPLOY)),
        paper_table=paper_numbers.TABLE_1,
        figures=("scatter", "deployment", "training", "encoder", "charge", "calibration"),
        deployed_in=(("Platoon", "deploy"),),
    ),
    "ood_frontier": Suite(
        summary="PointGoal2: what every level of ours earns and pays under mild, medium and high shifts",
        cells=_cells("PointGoal2", *_FRONTIER),
        shown=tuple(Shown("PointGoal2", name.capitalize(), (name,)) for name in ("mild", "medium", "high")),
        figures=("scatter",),
    ),
    "platoon_frontier": Suite(
        summary="Platoon: what every level of ours earns and pays in training and in deployment",
        cells=_cells("Platoon", *_FRONTIER),
        shown=(Shown("Platoon", "Train ranges", ("train",)), Shown("Platoon", "Deploy", ("deploy",))),
        figures=("scatter",),
    ),
    "complexity": Suite(
        summary="what a decision costs: operations counted, refinement timed, beside the paper's",
        figures=("refinement",),
        decision_work=("Platoon",),
    ),
    "smoke": Suite(
        summary="a few minutes on a CPU, to see everything run; its numbers mean nothing",
        cells=_cells("Platoon", "risk_adaptive", "without_risk_adaptation", "nominal", "fvd"),
        shown=(*_train("Platoon"), Shown("Platoon", "Deploy", ("deploy",), paper_numbers.DEPLOY)),
        paper_table=paper_numbers.TABLE_1,
        figures=("scatter", "shifts", "deployment", "training", "encoder", "charge", "calibration", "refinement"),
        deployed_in=(("Platoon", "deploy"),),
        decision_work=("Platoon",),
        preset="smoke",
        seeds=2,
    ),
}
"""By name; to add one, add an entry (see docs/suites.md)."""
