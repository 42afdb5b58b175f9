"""Cost against reward as caution grows: one curve for every way to be careful, under every shift.

Each point is a deployment from the prior at one fixed risk level, adaptation included, in the same worlds and scenes
for all levels and all ways: what differs between two points is the caution.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ashore.calibration import careful_deployment
from ashore.calibration.careful_policy import Agent, CarefulPolicy
from ashore.calibration.ledger import Ledger, in_batches
from ashore.calibration.refinement import AS_PRINTED, RefinementConfig
from ashore.environments import randomisation
from ashore.environments.base import Task
from ashore.types import Array


@dataclass(frozen=True)
class FrontierConfig:
    """The protocol."""

    shifts: tuple[str, ...] = ()
    """Names of the shifts; all the task declares if left out."""
    environments: int = 32
    """Worlds per shift."""
    episodes: int = 4
    """Episodes in each; what is learnt is kept from one to the next."""
    etas: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
    """Risk levels, 0 first."""
    ways: tuple[str, ...] = ()
    """Names of the ways to be careful, as `ways` has them; all that the policy knows if left out."""
    worlds_at_once: int = 8192
    """Worlds per compiled call: bounds the memory."""
    seed: int = 3_000_017
    """Where the worlds come from."""

    def __post_init__(self) -> None:
        if not self.etas or self.etas[0] != 0.0 or max(self.etas) >= 1.0:
            raise ValueError("The frontier's risk levels must start at 0 and stay below 1.")
        if min(self.environments, self.episodes, self.worlds_at_once) < 1:
            raise ValueError("Environments, episodes and worlds at once must be at least one.")


class Curve(NamedTuple):
    """One way to be careful under one shift, by risk level: [eta] each, cost and return per episode."""

    episode_return: np.ndarray
    return_error: np.ndarray
    """Standard error over worlds."""
    episode_cost: np.ndarray
    cost_error: np.ndarray
    reduction: np.ndarray
    """Mean drop of the cost against eta = 0 in the same worlds; negative where caution did harm."""
    reduction_error: np.ndarray
    triggered: np.ndarray
    """Share of decisions that refinement wanted to change."""


def ways(policy: CarefulPolicy) -> dict[str, CarefulPolicy]:
    """Every way to be careful that a policy knows, by name."""
    refined: dict[str, RefinementConfig] = {
        "Algorithm 1 as printed": AS_PRINTED,
        "unit gradient": replace(AS_PRINTED, variant="unit"),
        "full weight": replace(AS_PRINTED, weight="full"),
        "best-cost action": replace(AS_PRINTED, keep="best"),
        "unit gradient, full weight, best-cost action": RefinementConfig(variant="unit", weight="full", keep="best"),
    }
    found = {name: replace(policy, caution="refinement", refinement=how) for name, how in refined.items()}
    if policy.nets.risk_conditioned:
        found["risk-conditioned actor"] = replace(policy, caution="actor")
        found["actor and refinement"] = replace(policy, caution="both", refinement=AS_PRINTED)
    return found


def frontier(
    task: Task, agents: Mapping[str, Agent], weights: Any, config: FrontierConfig, ledger: Ledger
) -> dict[str, dict[str, Curve]]:
    """The curves by way and shift.

    Raises:
        Paused: the ledger was asked to stop; call again to go on.
    """
    declared = task.description.shifts
    shifts = config.shifts or tuple(declared)
    length = task.description.decisions_per_episode
    keys = jax.random.split(jax.random.key(config.seed), len(shifts) + 1)
    drawn = [
        randomisation.sample(declared[shift], task.parameters_type, key, config.environments)
        for shift, key in zip(shifts, keys[1:], strict=True)
    ]
    physics = jax.tree.map(lambda *parts: jnp.concatenate(parts), *drawn)
    shape = (len(config.etas), len(shifts) * config.environments)
    scenes = jax.random.split(keys[0], shape[1])
    etas = jnp.asarray(config.etas, jnp.float32)
    decisions = config.episodes * length
    ledger.plan(len(agents) * shape[0] * shape[1] * decisions)

    def deployed(agent: Agent, flat: np.ndarray) -> dict[str, Array]:
        level, world = np.unravel_index(flat, shape)
        mine = jax.tree.map(lambda values: values[world], physics)
        outcome = careful_deployment.deploy(
            task,
            agent,
            weights,
            jnp.float32(1.0),
            mine,
            scenes[world],
            etas[level][:, None],
            counts=(0,),
            decisions=decisions,
        )
        rates = {"reward": outcome.reward, "cost": outcome.cost, "triggered": outcome.triggered}
        return {name: jnp.mean(values, axis=1, dtype=jnp.float32) for name, values in rates.items()}

    curves: dict[str, dict[str, Curve]] = {}
    for number, (name, agent) in enumerate(agents.items()):
        flat = in_batches(
            ledger,
            f"frontier_{number}",
            shape[0] * shape[1],
            config.worlds_at_once,
            decisions,
            lambda flat, agent=agent: deployed(agent, flat),
        )
        by_shift = {
            key: values.astype(np.float64).reshape(shape[0], len(shifts), config.environments)
            for key, values in flat.items()
        }
        curves[name] = {
            shift: _curve({key: values[:, place] for key, values in by_shift.items()}, length)
            for place, shift in enumerate(shifts)
        }
    return curves


def _curve(rates: Mapping[str, np.ndarray], length: int) -> Curve:
    def mean_and_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        worlds = values.shape[1]
        error = values.std(axis=1, ddof=1) / np.sqrt(worlds) if worlds > 1 else np.full(len(values), np.nan)
        return values.mean(axis=1), error

    cost = rates["cost"] * length
    return Curve(
        *mean_and_error(rates["reward"] * length),
        *mean_and_error(cost),
        *mean_and_error(cost[:1] - cost),
        rates["triggered"].mean(axis=1),
    )
