"""Nominal: one policy, trained in the nominal world alone."""

from ashore.environments.base import Task
from ashore.learning.recipe import Recipe, without_latent
from ashore.learning.train_config import TrainConfig
from ashore.methods.base import Method


def recipe(task: Task, config: TrainConfig) -> Recipe:
    """No latent, and every world the nominal one."""
    del config
    return without_latent(task.description.shifts["nominal"])


NOMINAL = Method(
    summary="One policy without a latent, trained in the nominal world alone.",
    reference="the paper, section 6 (Nominal)",
    differs="the multiplier is a positional PID on measured cost, the actor's loss is divided by 1 + lambda",
    recipe=recipe,
    untrained=("encoder", "dynamics"),
)
