"""What careful deployments believe: several in each environment, the first for the contexts, the others for z_ref."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ashore.calibration import careful_deployment, latent_error
from ashore.calibration.careful_deployment import CarefulDeployment, Numbers
from ashore.calibration.config import CalibrationConfig, Subject
from ashore.calibration.ledger import Ledger, in_batches
from ashore.calibration.risk_level import Levels, WorldTable
from ashore.environments.base import Task
from ashore.types import Array, Parameters


class Contexts(NamedTuple):
    """What careful deployments believed."""

    weighted_mean_sum: np.ndarray
    """[count, environment, latent], without the prior."""
    precision_sum: np.ndarray
    reference: np.ndarray
    """Mean of the posterior from the other deployments in the same environment, [environment, latent]."""
    half_reference: np.ndarray | None
    """The same from half of them; None where there is only one."""

    @property
    def latents(self) -> np.ndarray:
        """Beliefs, [count, environment, latent]."""
        return latent_error.beliefs(self.weighted_mean_sum, self.precision_sum)


def deployment_decisions(task: Task, config: CalibrationConfig) -> int:
    """How long a calibrating deployment is: whole episodes, at least up to the last count."""
    length = task.description.decisions_per_episode
    return math.ceil(config.largest_count / length) * length


def replicas(task: Task, config: CalibrationConfig) -> int:
    """Deployments per environment: one for the contexts, the others for the reference."""
    return 1 + math.ceil(config.reference / deployment_decisions(task, config))


def deploy(
    subject: Subject,
    config: CalibrationConfig,
    ledger: Ledger,
    stage: str,
    worlds: Parameters,
    key: Array,
    levels: Levels,
    factor: float,
) -> CarefulDeployment:
    """Several deployments in each environment, [environment * replica] flat and NumPy."""
    task = subject.task
    copies, decisions = replicas(task, config), deployment_decisions(task, config)
    keys = jax.random.split(key, config.environments * copies)

    def some(flat: np.ndarray) -> dict[str, Numbers]:
        physics = jax.tree.map(lambda values: values[flat // copies], worlds)
        everywhere = (len(flat), len(config.counts))
        table = levels if isinstance(levels, WorldTable) else jnp.broadcast_to(levels, everywhere)
        return careful_deployment.deploy(
            *subject[:3], jnp.float32(factor), physics, keys[flat], table, counts=config.counts, decisions=decisions
        )._asdict()

    total = config.environments * copies
    return CarefulDeployment(**in_batches(ledger, stage, total, config.worlds_at_once, decisions, some))


def collect(task: Task, config: CalibrationConfig, deployed: CarefulDeployment) -> Contexts:
    """The first deployment in each environment gives the contexts, the others together the reference."""
    copies = replicas(task, config)

    def by_environment(sums: Any) -> np.ndarray:
        return np.asarray(sums, np.float64).reshape(config.environments, copies, *sums.shape[1:])

    means, precisions = by_environment(deployed.weighted_mean_sum), by_environment(deployed.precision_sum)
    others = means[:, 1:, -1], precisions[:, 1:, -1]
    reference = latent_error.beliefs(*(sums.sum(axis=1) for sums in others))
    first = np.swapaxes(means[:, 0, :-1], 0, 1), np.swapaxes(precisions[:, 0, :-1], 0, 1)
    return Contexts(*first, reference, latent_error.half_reference(*others))
