"""SPiDR: one policy, whose cost critic is charged for decisions that simulated worlds would take differently.

As shipped (`--set` nothing): eight models from SPiDR's own narrow ranges, raw observations, its augmented Lagrangian.
On our ranges: `--set spidr.ranges=train spidr.compare=dynamics spidr.multiplier=pid`.
"""

import functools
from dataclasses import replace

from ashore.environments.base import Task
from ashore.environments.randomisation import Randomised, at_nominal, with_ranges
from ashore.learning import plain_updates
from ashore.learning.augmented_lagrangian import AugmentedConfig
from ashore.learning.recipe import Recipe, left_alone, without_latent
from ashore.learning.train_config import TrainConfig, budget
from ashore.methods.base import Method

OWN_RANGES = {"PointGoal2": {"gear_x": (-0.2, 0.2), "gear_z": (-0.1, 0.1)}}
"""SPiDR's training ranges by task, from its published configuration; what is not named is nominal."""
AUGMENTED = AugmentedConfig()


def ranges_of(task: Task, config: TrainConfig) -> tuple[Randomised, ...]:
    """Where worlds and models come from."""
    description = task.description
    own = OWN_RANGES.get(description.name)
    if own is None or config.spidr.ranges == "train":
        return description.shifts["train"]
    rows = at_nominal(description.shifts["nominal"])
    return with_ranges(rows, {row.name: (row.low, row.high) for row in rows} | own)


def recipe(task: Task, config: TrainConfig) -> Recipe:
    """No latent, and disagreement of an ensemble in the target of the cost critic."""
    charged = replace(without_latent(ranges_of(task, config)), disagreement=config.spidr)
    if config.spidr.multiplier == "pid":
        return charged
    limit = budget(task, config).discounted
    return replace(
        charged,
        init=functools.partial(plain_updates.augmented_init, AUGMENTED),
        update=functools.partial(plain_updates.augmented_update_step, AUGMENTED, limit),
        constrain=left_alone,
        # Its multiplier follows the actor's loss.
        actor_through_physics=False,
    )


def remarks(task: Task, config: TrainConfig) -> tuple[str, ...]:
    """Whether the ranges are SPiDR's, and what raw units do elsewhere (measured in `test_spidr_disagreement.py`)."""
    name, said = task.description.name, ()
    if config.spidr.ranges == "own" and name in OWN_RANGES:
        return said
    if config.spidr.ranges == "own":
        said = (f"SPiDR has no ranges of its own for {name}: worlds and models come from Train.",)
    if config.spidr.compare == "dynamics":
        return said
    return (
        *said,
        "Observations are compared in raw units, so that the one with the largest numbers decides about the penalty "
        "(an accelerometer, a jerk): --set spidr.compare=dynamics compares in units of usual change.",
    )


SPIDR = Method(
    summary="One policy without a latent, charged for decisions that an ensemble of simulated worlds disagrees about.",
    reference="As et al. 2025, arXiv 2509.18648",
    differs=(
        "quantile critics and a deterministic actor in place of SAC; models are compared after a whole decision "
        "instead of its last env step; on tasks it has no ranges for, those of Train"
    ),
    recipe=recipe,
    untrained=("encoder", "dynamics"),
    remarks=remarks,
)
