"""The paper's method: a latent-conditioned distributional actor-critic under a cost budget.

Training is risk-neutral; the risk level enters at deployment, where the cost critic's upper tail bounds each action.
"""

from ashore.learning import train
from ashore.methods.base import Method

RISK_ADAPTIVE = Method(
    summary="Distributional actor-critic, conditioned on a latent description of the world, under a cost budget.",
    reference="the paper, sections 4 and 5",
    differs=(
        "the encoder also predicts the dynamics (the critics alone leave the latent empty), the prior is a factor of "
        "the posterior, the multiplier is a positional PID on measured cost, the actor's loss is divided by 1 + lambda"
    ),
    start=train.start,
    train_chunk=train.train_chunk,
)
