"""Robust: one policy, trained while an attacker disturbs what it sees.

The attacker maximises the cost (`--set attack.kind=cost`) or the reward (`reward`); worlds are nominal, or drawn from
Train (`--set attack.worlds=train`). `ashore evaluate RUN --attack cost` meets the finished policy with the same one.
"""

from dataclasses import replace

from ashore import names
from ashore.environments.base import Task
from ashore.learning import observation_attack
from ashore.learning.collect import WITHOUT_LATENT
from ashore.learning.recipe import Recipe, without_latent
from ashore.learning.train_config import TrainConfig
from ashore.methods.base import Method


def recipe(task: Task, config: TrainConfig) -> Recipe:
    """No latent, and an attacker who grows strong in the course of the run."""
    ranges = names.lookup("shift", config.attack.worlds, task.description.shifts)
    attack = observation_attack.ramped(config.attack, config.decisions)
    return replace(
        without_latent(ranges),
        habits=replace(WITHOUT_LATENT, attack=attack),
        # Five gradients of the attacker in every decision of every episode would be a hundred times the physics.
        actor_through_physics=False,
    )


ROBUST = Method(
    summary="One policy without a latent, trained while an attacker disturbs its observations to raise the cost.",
    reference="Liu et al. 2023, On the Robustness of Safe Reinforcement Learning under Observational Perturbations",
    differs=(
        "off-policy with quantile critics in place of PPO; the attacker asks these critics, takes 5 sign steps instead "
        "of up to 60 of Adam, and its radius is in normalised observation units"
    ),
    recipe=recipe,
    untrained=("encoder", "dynamics"),
)
