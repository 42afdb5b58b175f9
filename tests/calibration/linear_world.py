"""A linear-Gaussian world in which every table of a calibration is known in closed form.

The world shows theta + sigma g at every decision; theta is uniform in [-1, 1]. With the prior N(0, 1) the belief after
N sights is a_N times their mean, a_N = N / (N + sigma^2). The policy's action is (z, eta) itself, and a decision costs

    c = BASE + slope z - grip eta + NOISE g'

so that fed z instead of z' it costs slope (z - z') more, and caution takes off grip eta, in the same scenes exactly.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ashore.budget import Budget
from ashore.calibration.careful_policy import Decision
from ashore.environments.base import Field, TaskDescription
from ashore.environments.randomisation import Randomised, at_nominal
from ashore.networks.encoder import NaturalPosterior
from ashore.types import Array, Reset, StepResult, Transition

SIGMA = 2.0
BASE = 1.0
NOISE = 0.5
DISCOUNT = 0.9
LENGTH = 8
TRAIN = (
    Randomised("theta", "", 0.0, -1.0, 1.0, "add"),
    Randomised("slope", "", 1.5, 1.0, 2.0, "add"),
    Randomised("grip", "", 1.0, 0.5, 1.5, "add"),
)


class LinearParameters(NamedTuple):
    theta: Any
    slope: Any
    grip: Any


@dataclass(frozen=True)
class LinearWorld:
    @property
    def description(self) -> TaskDescription:
        return TaskDescription(
            name="Linear",
            summary="A number seen through noise.",
            observation=(Field("sight", "", -20.0, 20.0),),
            action=(Field("belief", "", -20.0, 20.0), Field("caution", "", 0.0, 1.0)),
            action_map="none",
            dynamics_features=(0,),
            shifts={"nominal": at_nominal(TRAIN), "train": TRAIN},
            control_period=1.0,
            action_repeat=1,
            decisions_per_episode=LENGTH,
            max_cost=100.0,
            budget=Budget(per_episode=BASE * LENGTH, decisions_per_episode=LENGTH, discount=DISCOUNT),
        )

    @property
    def parameters_type(self) -> type[LinearParameters]:
        return LinearParameters

    def reset(self, key: Array, parameters: LinearParameters) -> Reset:
        return Reset(jax.random.key_data(key), jnp.zeros(1, jnp.float32))

    def step(self, state: Array, action: Array, parameters: LinearParameters) -> StepResult:
        key, noise_key = jax.random.split(jax.random.wrap_key_data(state))
        noise = jax.random.normal(noise_key, (2,))
        sight = (parameters.theta + SIGMA * noise[0])[None]
        cost = BASE + parameters.slope * action[0] - parameters.grip * action[1] + NOISE * noise[1]
        reward = -action[1]
        false = jnp.zeros((), bool)
        return StepResult(jax.random.key_data(key), sight, reward, cost, {"ease": reward}, {"cost": cost}, false, false)

    def identifiable(self, parameters: LinearParameters) -> dict[str, Array]:
        return {"theta": parameters.theta}

    def episode_metrics(self, state: Array) -> dict[str, Array]:
        return {}


@dataclass(frozen=True)
class LinearAgent:
    """Believes by Bayes' rule and acts out what it believes; its only weight scales the evidence it claims."""

    latent: int = 1

    def act(self, weights: Array, observation: Array, latent: Array, eta: Array) -> Decision:
        zero = jnp.zeros((), jnp.float32)
        return Decision(jnp.append(latent, eta), eta > 0.5, zero, zero, jnp.zeros((), jnp.int32))

    def evidence(self, weights: Array, transition: Transition) -> NaturalPosterior:
        precision = weights / SIGMA**2
        return NaturalPosterior(
            precision * transition.next_observation, jnp.full(1, precision), jnp.ones((), jnp.int32)
        )


def shrinkage(sights: int) -> float:
    return sights / (sights + SIGMA**2)


def error_exceeded_by(share: float, sights: int, reference: int) -> tuple[float, float]:
    """Quantile of |z_N - z_ref| at 1 - share, and the density there; integrated over theta, solved by bisection."""
    tilt = shrinkage(sights) - shrinkage(reference)
    variance = sum(shrinkage(count) ** 2 * SIGMA**2 / count for count in (sights, reference) if count)
    deviation = math.sqrt(variance)
    thetas = np.linspace(-1.0, 1.0, 2001)

    def cdf(x: float) -> float:
        inside = [
            math.erf((x - tilt * theta) / deviation / math.sqrt(2.0))
            - math.erf((-x - tilt * theta) / deviation / math.sqrt(2.0))
            for theta in thetas
        ]
        return 0.5 * float(np.mean(inside))

    low, high = 0.0, 20.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if cdf(middle) < 1.0 - share else (low, middle)
    return low, (cdf(low + 1e-3) - cdf(low - 1e-3)) / 2e-3
