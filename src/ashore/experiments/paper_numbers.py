"""The numbers that the paper printed, as data, each under the label of its table in the paper's source.

Costs are in the paper's unit, in which the budget is 10 (PointGoal2: ours of 25 per episode, discounted) and 20
(driving). What is compared across units is the ratio of cost to budget. The paper does not say what its deviations are
across, nor which of its out-of-distribution levels feeds "Deploy" on PointGoal2.
"""

from collections.abc import Iterator
from dataclasses import dataclass

TABLE_1 = "tab:train_deploy_comparison"
ABLATION = "tab:ablation_results"
REFINEMENT = "tab:refinement_time"
COMPLEXITY = "tab:complexity_summary"
FVD_SENTENCE = "text: Experiment, Overall performance"
"""The figures of the FVD controller are in a sentence and not in a table."""

BUDGET = {"PointGoal2": 10.0, "Platoon": 20.0}
"""Its cost threshold by task, in the unit of its costs."""
TRAIN, DEPLOY = "Train", "Deploy"


@dataclass(frozen=True)
class PaperNumber:
    """One cell of a table."""

    label: str
    task: str
    method: str
    """As in our registry of methods."""
    worlds: str
    metric: str
    """`return`, `cost`, `oscillation_ratio`, `jerk` or `fuel`."""
    mean: float
    deviation: float


_Row = tuple[tuple[str, str, str], tuple[tuple[float, float], ...]]

_TABLE_1_METHODS = ("risk_adaptive", "nominal", "domain_randomisation", "spidr", "robust")
_TABLE_1: tuple[_Row, ...] = (
    (
        ("PointGoal2", TRAIN, "return"),
        ((35.17, 3.94), (92.98, 2.07), (61.20, 7.22), (35.45, 3.67), (30.20, 5.57)),
    ),
    (("PointGoal2", TRAIN, "cost"), ((9.46, 0.51), (9.70, 0.92), (9.63, 1.09), (9.95, 1.00), (9.76, 1.22))),
    (
        ("PointGoal2", DEPLOY, "return"),
        ((49.59, 8.52), (91.43, 7.25), (83.17, 10.79), (43.44, 4.14), (12.90, 9.32)),
    ),
    (("PointGoal2", DEPLOY, "cost"), ((8.86, 0.85), (29.62, 3.73), (35.92, 5.45), (11.20, 1.65), (24.07, 2.55))),
    (
        ("Platoon", TRAIN, "return"),
        ((434.10, 67.06), (477.70, 55.44), (455.19, 67.43), (441.34, 75.59), (434.81, 82.98)),
    ),
    (("Platoon", TRAIN, "cost"), ((14.00, 1.27), (19.27, 0.94), (15.38, 1.41), (15.55, 1.88), (21.03, 1.72))),
    (
        ("Platoon", TRAIN, "oscillation_ratio"),
        ((0.43, 0.13), (0.45, 0.12), (0.61, 0.133), (0.45, 0.09), (0.50, 0.10)),
    ),
    (("Platoon", TRAIN, "jerk"), ((2.96, 1.77), (3.23, 0.62), (4.85, 1.65), (3.45, 0.72), (4.06, 1.98))),
    (
        ("Platoon", TRAIN, "fuel"),
        ((0.316, 0.029), (0.311, 0.005), (0.341, 0.131), (0.316, 0.006), (0.324, 0.074)),
    ),
    (
        ("Platoon", DEPLOY, "return"),
        ((364.85, 160.74), (284.44, 275.72), (405.28, 175.50), (279.88, 200.05), (365.99, 181.04)),
    ),
    (("Platoon", DEPLOY, "cost"), ((16.80, 3.33), (30.98, 3.99), (21.58, 4.47), (18.53, 4.15), (27.80, 4.00))),
    (
        ("Platoon", DEPLOY, "oscillation_ratio"),
        ((0.47, 0.13), (0.50, 0.34), (0.60, 0.15), (0.47, 0.18), (0.53, 0.15)),
    ),
    (("Platoon", DEPLOY, "jerk"), ((2.86, 1.90), (3.49, 3.88), (3.71, 1.73), (3.62, 2.03), (4.51, 1.59))),
    (
        ("Platoon", DEPLOY, "fuel"),
        ((0.314, 0.026), (0.354, 0.053), (0.321, 0.019), (0.322, 0.028), (0.327, 0.019)),
    ),
)

_ABLATION_TRAIN_METHODS = ("nominal", "pearl", "risk_adaptive")
"""Ours without risk adaptation is the same network: the paper prints a dash."""
_ABLATION_TRAIN: tuple[_Row, ...] = (
    (("PointGoal2", TRAIN, "return"), ((92.98, 2.07), (33.11, 4.81), (35.17, 3.94))),
    (("PointGoal2", TRAIN, "cost"), ((9.70, 0.92), (9.18, 0.40), (9.46, 0.51))),
)
_ABLATION_DEPLOY_METHODS = ("nominal", "pearl", "without_risk_adaptation", "risk_adaptive")
_ABLATION_DEPLOY: tuple[_Row, ...] = (
    (("PointGoal2", DEPLOY, "return"), ((91.43, 7.25), (46.09, 5.20), (54.21, 8.70), (49.59, 8.52))),
    (("PointGoal2", DEPLOY, "cost"), ((29.62, 3.73), (10.75, 1.91), (10.12, 1.53), (8.86, 0.85))),
)

_FVD: tuple[_Row, ...] = (
    (("Platoon", DEPLOY, "oscillation_ratio"), ((0.922, 0.017),)),
    (("Platoon", DEPLOY, "jerk"), ((12.329, 0.195),)),
    (("Platoon", DEPLOY, "fuel"), ((0.440, 0.008),)),
)


def _numbers(label: str, methods: tuple[str, ...], rows: tuple[_Row, ...]) -> Iterator[PaperNumber]:
    for (task, worlds, metric), printed in rows:
        for method, (mean, deviation) in zip(methods, printed, strict=True):
            yield PaperNumber(label, task, method, worlds, metric, mean, deviation)


NUMBERS: tuple[PaperNumber, ...] = (
    *_numbers(TABLE_1, _TABLE_1_METHODS, _TABLE_1),
    *_numbers(ABLATION, _ABLATION_TRAIN_METHODS, _ABLATION_TRAIN),
    *_numbers(ABLATION, _ABLATION_DEPLOY_METHODS, _ABLATION_DEPLOY),
    *_numbers(FVD_SENTENCE, ("fvd",), _FVD),
)

REFINEMENT_TIMES: tuple[tuple[int, float, float, float, float, float], ...] = (
    (5, 0.01, 0.05, 0.0, 3.51, 0.27),
    (5, 0.10, 0.05, 1.0, 3.54, 0.32),
    (5, 0.01, 0.30, 1.0, 3.55, 0.28),
    (5, 0.10, 0.30, 0.0, 3.56, 0.28),
    (15, 0.01, 0.05, 1.0, 9.18, 0.47),
    (15, 0.10, 0.05, 0.0, 9.19, 0.56),
    (15, 0.01, 0.30, 0.0, 9.17, 0.39),
    (15, 0.10, 0.30, 1.0, 9.19, 0.58),
)
"""K_ref, alpha_r, alpha_c, beta_n, milliseconds and their deviation (table `tab:refinement_time`)."""


@dataclass(frozen=True)
class PaperWork:
    """One part of a decision in the paper's complexity analysis."""

    complexity: str
    operations: float | None
    """What it calls FLOPs and counts as multiply-adds, from the equation of that part; None: negligible."""
    milliseconds: float | None


WORK: dict[str, PaperWork] = {
    "policy": PaperWork("O(L_pi d_pi^2)", 1.3e5, 0.03),
    "encoder": PaperWork("O(M L_phi d_phi^2)", 1.8e7, 0.08),
    "eta": PaperWork("O(1)", None, 0.14),
    "critic forward": PaperWork("O(N_c N_tau L_B d_Z^2)", 8.4e7, None),
    "refinement": PaperWork("O(K_ref N_c N_tau L_B d_Z^2)", 2.1e9, 3.51),
}
"""Parts of a decision (table `tab:complexity_summary` and the equations below it)."""


def find(label: str, task: str, method: str, worlds: str, metric: str) -> PaperNumber | None:
    """The number of that cell, or None where the table has none."""
    asked = (label, task, method, worlds, metric)
    for number in NUMBERS:
        if (number.label, number.task, number.method, number.worlds, number.metric) == asked:
            return number
    return None
