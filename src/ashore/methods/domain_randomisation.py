"""Domain randomisation: one policy for all worlds of the training ranges."""

from ashore.environments.base import Task
from ashore.learning.recipe import Recipe, without_latent
from ashore.learning.train_config import TrainConfig
from ashore.methods.base import Method


def recipe(task: Task, config: TrainConfig) -> Recipe:
    """No latent, and worlds drawn from the training ranges."""
    del config
    return without_latent(task.description.shifts["train"])


DOMAIN_RANDOMISATION = Method(
    summary="One policy without a latent, trained in worlds drawn from the training ranges.",
    reference="the paper, section 6 (Domain Randomization); Tobin et al. 2017",
    differs="the multiplier is a positional PID on measured cost, the actor's loss is divided by 1 + lambda",
    recipe=recipe,
    untrained=("encoder", "dynamics"),
)
