"""The contract of a simulated world.

A task is two pure functions over plain pytrees plus a description of what goes in and what comes out:

    reset(key, parameters) -> Reset(state, observation)
    step(state, action, parameters) -> StepResult(state, observation, reward, cost, ...)

Physical parameters are an argument of the dynamics, never a closure, so that one compiled program serves every
world. Both functions are written for one world; batches are made outside with `jax.vmap` (see `rollout.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from ashore.budget import Budget
from ashore.environments.randomisation import Randomised
from ashore.types import Approach, Array, Parameters, Reset, State, StepResult, Unearned


@dataclass(frozen=True)
class Field:
    """One number of an observation or an action."""

    name: str
    unit: str
    low: float
    high: float
    closeness: bool = False
    """1 when touching and 0 when far away, like a lidar's return: what matters happens in its last few percent."""


@dataclass(frozen=True)
class TaskDescription:
    """Everything about a task that must travel with a policy trained on it."""

    name: str
    summary: str
    observation: tuple[Field, ...]
    action: tuple[Field, ...]
    action_map: str
    """How an action becomes a command, in words, for whoever connects the real actuators."""
    dynamics_features: tuple[int, ...]
    """Indices of the observation whose change reveals the physics; the encoder looks at these."""
    shifts: Mapping[str, tuple[Randomised, ...]]
    """Parameter ranges by name of the shift: always `nominal` and `train`, then the deployment shifts."""
    control_period: float
    """Seconds between two decisions."""
    action_repeat: int
    """Env steps per decision: the unit in which papers count experience."""
    decisions_per_episode: int
    max_cost: float
    """Highest possible cost of one decision; charged when a world diverges."""
    budget: Budget
    contrasts: tuple[tuple[int, int, float], ...] = ()
    """(first, second, scale): differences of two observed numbers that matter more than either does, such as a closing
    speed. The networks get scale * (first - second) as well; the scale makes it of order one."""
    approaches: tuple[Approach, ...] = ()
    """Gaps that close, whose inverse time to collision the networks get as well."""
    differentiable: bool = False
    """Whether `step` has a derivative that says what an action does (contacts do not): actors may learn through it."""
    unearned: Unearned | None = None
    """The share of the reward that no action changes, where there is one: the reward's critic learns without it."""

    def __post_init__(self) -> None:
        for required in ("nominal", "train"):
            if required not in self.shifts:
                raise ValueError(f"Task {self.name} declares no shift '{required}'.")
        names = [row.name for row in self.shifts["nominal"]]
        for shift, rows in self.shifts.items():
            if [row.name for row in rows] != names:
                raise ValueError(f"Shift '{shift}' of {self.name} must list the parameters {names} in this order.")
        if not all(0 <= index < len(self.observation) for index in self.dynamics_features):
            raise ValueError(f"A dynamics feature of {self.name} lies outside its observation.")
        if not all(0 <= index < len(self.observation) for pair in self.contrasts for index in pair[:2]):
            raise ValueError(f"A contrast of {self.name} lies outside its observation.")
        if not all(0 <= index < len(self.observation) for approach in self.approaches for index in approach[:3]):
            raise ValueError(f"An approach of {self.name} lies outside its observation.")
        if self.unearned is not None and not 0 <= self.unearned.place < len(self.observation):
            raise ValueError(f"The unearned reward of {self.name} lies outside its observation.")

    @property
    def closeness(self) -> tuple[int, ...]:
        """Indices of the observation's closeness fields; the networks get their near range enlarged."""
        return tuple(index for index, field in enumerate(self.observation) if field.closeness)

    @property
    def observation_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest observation, as float32 vectors."""
        return _bounds(self.observation)

    @property
    def action_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest action, as float32 vectors."""
        return _bounds(self.action)


def _bounds(fields: tuple[Field, ...]) -> tuple[np.ndarray, np.ndarray]:
    low = np.array([field.low for field in fields], np.float32)
    high = np.array([field.high for field in fields], np.float32)
    return low, high


class Task(Protocol):
    """A world to learn in. Implementations are immutable and cheap to hash: they are static arguments of `jit`."""

    @property
    def description(self) -> TaskDescription: ...

    @property
    def parameters_type(self) -> type[Parameters]:
        """The NamedTuple class of the physical parameters; its fields are the declared names, in order."""
        ...

    def reset(self, key: Array, parameters: Parameters) -> Reset:
        """Start an episode: a new scene for every key."""
        ...

    def step(self, state: State, action: Array, parameters: Parameters) -> StepResult:
        """Apply one action for one control period."""
        ...

    def identifiable(self, parameters: Parameters) -> dict[str, Array]:
        """Combinations of the parameters that transitions can reveal; probes of the encoder are judged on them."""
        ...

    def episode_metrics(self, state: State) -> dict[str, Array]:
        """Task-specific figures of the episode so far (goals reached, oscillation ratio, ...)."""
        ...


class CStep(NamedTuple):
    """What one decision did to one C world: `StepResult` in plain numbers."""

    observation: np.ndarray
    reward: float
    cost: float
    reward_terms: dict[str, float]
    cost_terms: dict[str, float]
    terminated: bool
    diverged: bool


class CWorld(Protocol):
    """The same task in C MuJoCo and NumPy: one world, written a second time so that the two check each other.

    It serves the Gymnasium environments, single-world videos and the tests that compare engines.
    """

    @property
    def description(self) -> TaskDescription: ...

    def reset(self, generator: np.random.Generator) -> np.ndarray:
        """Start an episode and return its first observation, float32."""
        ...

    def step(self, action: np.ndarray) -> CStep:
        """Apply one (valid) action for one control period."""
        ...

    def episode_metrics(self) -> dict[str, float]:
        """The same figures as `Task.episode_metrics`."""
        ...

    def picture(self) -> np.ndarray:
        """The world as a person would want to see it: height x width x 3, uint8; needs no display and no GL."""
        ...
