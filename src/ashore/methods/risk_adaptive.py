"""The paper's method: a latent-conditioned distributional actor-critic under a cost budget.

Training is risk-neutral; the risk level enters at deployment, where the cost critic's upper tail bounds each action.
"""

from ashore.environments.base import Task
from ashore.learning import train
from ashore.learning.recipe import Recipe
from ashore.learning.train_config import TrainConfig
from ashore.methods.base import Method


def recipe(task: Task, config: TrainConfig) -> Recipe:
    """The loop as it is."""
    del config
    return train.paper_recipe(task)


RISK_ADAPTIVE = Method(
    summary="Distributional actor-critic, conditioned on a latent description of the world, under a cost budget.",
    reference="the paper, sections 4 and 5",
    differs=(
        "the encoder also predicts the dynamics (critics alone tell it less of the world), the prior is a factor of "
        "the posterior, the multiplier is a positional PID on measured cost, the actor's loss is divided by 1 + lambda"
    ),
    recipe=recipe,
    takes_risk_level=True,
)
