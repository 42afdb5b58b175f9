"""A recipe: everything in which one method differs from another, as data and plain functions.

What a recipe does not name (networks, replay, normalisers, number of worlds, decisions and updates, the measurement of
the cost, checkpoints, evaluation) is the same for every method, because it is the same code.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ashore.environments.randomisation import Randomised
from ashore.learning import lagrangian, plain_updates, updates
from ashore.learning.augmented_lagrangian import AugmentedState
from ashore.learning.collect import WITH_LATENT, WITHOUT_LATENT, Habits
from ashore.learning.disagreement import DisagreementConfig
from ashore.learning.lagrangian import MultiplierState, PIDConfig
from ashore.learning.objectives import Work
from ashore.learning.updates import LearnerConfig, LearnerState, Metrics
from ashore.types import Array

Multiplier = MultiplierState | AugmentedState


def measured_cost(config: PIDConfig, multiplier: Multiplier, cost: Array, budget: float) -> Multiplier:
    """The multiplier follows what rollouts cost: everybody's PID."""
    assert isinstance(multiplier, MultiplierState), type(multiplier)
    return lagrangian.update(config, multiplier, cost, budget)


def left_alone(config: PIDConfig, multiplier: Multiplier, cost: Array, budget: float) -> Multiplier:
    """The multiplier is moved by the updates themselves."""
    del config, cost, budget
    return multiplier


@dataclass(frozen=True)
class Recipe:
    """How one method departs from the loop; the defaults are the paper's method."""

    ranges: tuple[Randomised, ...]
    """Where the physics of the training worlds comes from."""
    contextual: bool = True
    """Whether contexts are drawn for an encoder that learns from them."""
    init: Callable[[LearnerConfig, PIDConfig, Array], LearnerState] = updates.init
    """A learner before its first update."""
    update: Callable[[LearnerConfig, LearnerState, Work, Array], tuple[LearnerState, Metrics]] = updates.update_step
    """One update from one batch, at a given multiplier."""
    constrain: Callable[[PIDConfig, Multiplier, Array, float], Multiplier] = measured_cost
    """What a new measurement of the cost does to the multiplier."""
    habits: Habits = WITH_LATENT
    """How the worlds are acted in."""
    actor_through_physics: bool = True
    """Whether its actor can be taught through the physics in place of the updates, where a run asks for that."""
    disagreement: DisagreementConfig | None = None
    """An ensemble, drawn from the same ranges, whose disagreement the cost critic is charged for."""


def without_latent(ranges: tuple[Randomised, ...]) -> Recipe:
    """One policy for all worlds: nothing is inferred about any of them, and no encoder is evaluated or trained."""
    return Recipe(
        ranges,
        contextual=False,
        init=plain_updates.init,
        update=plain_updates.update_step,
        habits=WITHOUT_LATENT,
    )
