"""A world with known answers: a cart on a line, once in JAX and once in NumPy, small enough to work out by hand.

Semi-implicit Euler under a constant action u, with acceleration a = (1 + thrust) u / mass and time step h:
    v_n = v_0 + n h a            x_n = x_0 + n h v_0 + h^2 a n (n + 1) / 2
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ashore.budget import Budget
from ashore.environments.base import CStep, Field, TaskDescription
from ashore.environments.randomisation import Randomised, at_nominal, with_ranges
from ashore.environments.task_family import TaskFamily
from ashore.types import Array, Reset, StepResult

PERIOD = 0.1
SPEED_LIMIT = 1.05
"""Between two steps of a full push from rest, so that rounding cannot move the moment at which it is passed."""
TRACK_END = 10.0
TRAIN = (
    Randomised("mass", "kg", 1.0, 0.5, 2.0, "scale"),
    Randomised("thrust", "N", 0.0, 0.0, 1.0, "add"),
)


class CartParameters(NamedTuple):
    mass: Any
    thrust: Any


@dataclass(frozen=True)
class CartConfig:
    decisions: int = 20
    start_width: float = 1.0
    """Carts start uniformly within this distance of zero."""


class CartState(NamedTuple):
    position: Array
    speed: Array
    distance: Array
    """Way travelled in this episode."""


def describe(config: CartConfig) -> TaskDescription:
    return TaskDescription(
        name="Cart",
        summary="A cart on a line gains by moving right and pays for speeding.",
        observation=(Field("position", "m", -TRACK_END - 5, TRACK_END + 5), Field("speed", "m/s", -20.0, 20.0)),
        action=(Field("push", "N", -1.0, 1.0),),
        action_map="force in newton",
        dynamics_features=(1,),
        shifts={
            "nominal": at_nominal(TRAIN),
            "train": TRAIN,
            "deploy": with_ranges(TRAIN, {"mass": (0.4, 1.0), "thrust": (0.0, 0.5)}),
        },
        control_period=PERIOD,
        action_repeat=2,
        decisions_per_episode=config.decisions,
        max_cost=2.0,
        budget=Budget(per_episode=2.0, decisions_per_episode=config.decisions),
    )


@dataclass(frozen=True)
class Cart:
    config: CartConfig = CartConfig()

    @property
    def description(self) -> TaskDescription:
        return describe(self.config)

    @property
    def parameters_type(self) -> type[CartParameters]:
        return CartParameters

    def reset(self, key: Array, parameters: CartParameters) -> Reset:
        position = jax.random.uniform(key, (), jnp.float32, -self.config.start_width, self.config.start_width)
        still = jnp.zeros((), jnp.float32)
        return Reset(CartState(position, still, still), jnp.stack([position, still]))

    def step(self, state: CartState, action: Array, parameters: CartParameters) -> StepResult:
        speed = state.speed + PERIOD * (1.0 + parameters.thrust) * action[0] / parameters.mass
        position = state.position + PERIOD * speed
        rewards = {"progress": position - state.position, "effort": -0.1 * action[0] ** 2}
        speeding = (jnp.abs(speed) > SPEED_LIMIT).astype(jnp.float32)
        costs = {"speeding": speeding, "off_track": (jnp.abs(position) > TRACK_END).astype(jnp.float32)}
        return StepResult(
            state=CartState(position, speed, state.distance + jnp.abs(position - state.position)),
            observation=jnp.stack([position, speed]),
            reward=rewards["progress"] + rewards["effort"],
            cost=costs["speeding"] + costs["off_track"],
            reward_terms=rewards,
            cost_terms=costs,
            terminated=jnp.abs(position) > TRACK_END,
            diverged=~(jnp.isfinite(position) & jnp.isfinite(speed)),
        )

    def identifiable(self, parameters: CartParameters) -> dict[str, Array]:
        return {"thrust_per_mass": (1.0 + parameters.thrust) / parameters.mass}

    def episode_metrics(self, state: CartState) -> dict[str, Array]:
        return {"distance": state.distance}


class CartCWorld:
    """The same cart in plain Python numbers."""

    def __init__(self, config: CartConfig, parameters: CartParameters) -> None:
        self.config = config
        self.description = describe(config)
        self.parameters = parameters
        self.position = self.speed = self.distance = 0.0

    def reset(self, generator: np.random.Generator) -> np.ndarray:
        self.position = float(generator.uniform(-self.config.start_width, self.config.start_width))
        self.speed = self.distance = 0.0
        return np.array([self.position, self.speed], np.float32)

    def step(self, action: np.ndarray) -> CStep:
        push = float(action[0])
        self.speed += PERIOD * (1.0 + float(self.parameters.thrust)) * push / float(self.parameters.mass)
        way = PERIOD * self.speed
        self.position += way
        self.distance += abs(way)
        rewards = {"progress": way, "effort": -0.1 * push**2}
        costs = {
            "speeding": float(abs(self.speed) > SPEED_LIMIT),
            "off_track": float(abs(self.position) > TRACK_END),
        }
        return CStep(
            observation=np.array([self.position, self.speed], np.float32),
            reward=sum(rewards.values()),
            cost=sum(costs.values()),
            reward_terms=rewards,
            cost_terms=costs,
            terminated=abs(self.position) > TRACK_END,
            diverged=not (np.isfinite(self.position) and np.isfinite(self.speed)),
        )

    def episode_metrics(self) -> dict[str, float]:
        return {"distance": self.distance}

    def picture(self) -> np.ndarray:
        canvas = np.full((16, 320, 3), 255, np.uint8)
        canvas[:, int(np.clip(160 + 10 * self.position, 0, 319))] = 0
        return canvas


def full_speed_ahead(description: TaskDescription):
    push = np.array([description.action[0].high], np.float32)
    return lambda observation: push


CARTS = TaskFamily(
    summary="A cart on a line.",
    presets={"short": CartConfig(), "long": CartConfig(decisions=50)},
    parameters_type=CartParameters,
    describe=describe,
    make=Cart,
    make_c_world=CartCWorld,
    scripted=full_speed_ahead,
)
