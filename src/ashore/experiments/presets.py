"""Tuned numbers, and only here: how long and how large to train, by task and kind of machine."""

from dataclasses import dataclass, replace

from ashore import names
from ashore.learning.collect import CollectConfig
from ashore.learning.lagrangian import PIDConfig
from ashore.learning.train import TrainConfig
from ashore.networks.architecture import SIZES


@dataclass(frozen=True)
class Preset:
    """One way to train on one task."""

    summary: str
    train: TrainConfig


# Gains of the multiplier, per decision of all worlds, on the relative error (J - d) / d up to 1. On PointGoal2 they
# bring the cost to the budget in 200 to 300 decisions and hold it between 20 and 40 while the policy improves (budget
# 25; results/trials, d to f).
_MULTIPLIER = PIDConfig(proportional=0.5, integral=0.01, derivative=10.0, error_limit=1.0, initial=1.0)

_SMOKE = TrainConfig(
    worlds=8,
    decisions=24,
    updates_per_decision=1,
    learning_starts=4,
    chunk=8,
    sizes=replace(SIZES["small"], critic_width=16, fractions=4, hidden=(16,), critic_blocks=1, context=16),
    capacity=64,
    batch_tasks=4,
    batch_transitions=4,
    collect=CollectConfig(random_decisions=2),
    multiplier=_MULTIPLIER,
)
_LAPTOP = TrainConfig(
    worlds=64,
    decisions=8000,
    updates_per_decision=1,
    learning_starts=100,
    chunk=200,
    sizes=SIZES["small"],
    capacity=4000,
    batch_tasks=16,
    batch_transitions=16,
    multiplier=_MULTIPLIER,
)
_GPU = TrainConfig(
    decisions=3200,
    # Half the fractions of the size itself, as in the trials b to f: the same number of updates in half the time.
    sizes=replace(SIZES["standard"], fractions=8, compute="bfloat16"),
    batch_tasks=32,
    batch_transitions=16,
    multiplier=_MULTIPLIER,
)
_PAPER = replace(_GPU, decisions=12800, sizes=replace(SIZES["paper"], compute="bfloat16"), batch_transitions=32)

PRESETS: dict[str, dict[str, Preset]] = {
    "PointGoal2": {
        "smoke": Preset("does it run: seconds on a CPU", _SMOKE),
        "laptop": Preset("small networks on two CPU cores", _LAPTOP),
        "gpu": Preset("standard networks, 26 million env steps a seed, on one GPU", _GPU),
        "paper": Preset("the paper's sizes, 105 million env steps a seed, on one GPU", _PAPER),
    },
    "Platoon": {
        "smoke": Preset("does it run: seconds on a CPU", _SMOKE),
        "laptop": Preset("small networks on two CPU cores", replace(_LAPTOP, reward_scale=1.0)),
        "gpu": Preset("standard networks on one GPU", replace(_GPU, reward_scale=1.0)),
        "paper": Preset("the paper's sizes on one GPU", replace(_PAPER, reward_scale=1.0)),
    },
}


def lookup(task: str, preset: str) -> Preset:
    """The preset of a task; an unknown name is an error with the nearest match."""
    return names.lookup("training preset", preset, names.lookup("task", task, PRESETS))
