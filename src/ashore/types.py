"""The pytrees that cross a folder boundary."""

from typing import Any, NamedTuple, Protocol

import jax

Array = jax.Array
State = Any
"""A task's own pytree: opaque to everything but the task."""

Parameters = Any
"""A task's physical parameters: a NamedTuple of scalars whose fields the task declares."""


class Approach(NamedTuple):
    """A gap that closes: scale * max(faster - slower, 0) / max(gap, floor), of observed numbers, is how soon."""

    faster: int
    """Place in the observation of the speed of who catches up."""
    slower: int
    """Place of the speed of who is caught up with."""
    gap: int
    """Place of the gap between them."""
    scale: float
    """Makes it of order one where it matters."""
    floor: float
    """Smallest gap that divides, as observed."""


class Unearned(NamedTuple):
    """A share of the reward that others decide about: weight * min(o, highest)^2 of what is observed after a decision.

    No action changes it, so that a policy is not worth more or less without it; values without it vary much less.
    """

    place: int
    """Of o in the observation."""
    highest: float
    weight: float


class Reset(NamedTuple):
    """The first moment of an episode."""

    state: State
    observation: Array


class StepResult(NamedTuple):
    """What one decision did to one world.

    Reward and cost are fields, never entries of a bag: a missing cost is an error, not a zero.
    """

    state: State
    observation: Array
    reward: Array
    cost: Array
    reward_terms: dict[str, Array]
    """Named parts that sum to `reward`."""
    cost_terms: dict[str, Array]
    """Named parts that sum to `cost`."""
    terminated: Array
    """The task itself ended; a time limit is the rollout's business and is not in here."""
    diverged: Array
    """The physics left the finite numbers: `state` must not be continued."""


class Transition(NamedTuple):
    """One decision as a learner or an encoder sees it."""

    observation: Array
    action: Array
    reward: Array
    cost: Array
    next_observation: Array
    """The observation that followed, before any reset."""
    terminated: Array
    truncated: Array
    diverged: Array
    """Not a sample of the dynamics: drop it."""


class Policy(Protocol):
    """Maps one observation to one action; `key` is for policies that draw."""

    def __call__(self, observation: Array, key: Array) -> Array: ...
