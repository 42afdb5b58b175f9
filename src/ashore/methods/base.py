"""What a method is to everybody outside: a way to start a run, to train for a while, and what to say about it."""

from collections.abc import Callable
from dataclasses import dataclass

from ashore.environments.base import Task
from ashore.learning import train
from ashore.learning.recipe import Recipe
from ashore.learning.train import TrainState
from ashore.learning.train_config import TrainConfig
from ashore.types import Array, Parameters, Policy


def _nothing_to_remark(task: Task, config: TrainConfig) -> tuple[str, ...]:
    del task, config
    return ()


@dataclass(frozen=True)
class Method:
    """A pair of pure functions over one state, and its provenance."""

    summary: str
    reference: str
    differs: str
    """What we do differently from the reference, in a sentence."""
    recipe: Callable[[Task, TrainConfig], Recipe] | None = None
    """How it is trained; None for a method that is not."""
    instead: str = ""
    """Where there is no recipe: what to do instead of training it, in one sentence."""
    takes_risk_level: bool = False
    """Whether it is deployed with a caution that changes, so that conditioning its policy on one is of use."""
    untrained: tuple[str, ...] = ()
    """Networks that stay as they were made (`encoder`, `dynamics`): a bundle of this method leaves them out."""
    remarks: Callable[[Task, TrainConfig], tuple[str, ...]] = _nothing_to_remark
    """What somebody who trains it on this task should know, one sentence each."""
    controller: Callable[[Task, Parameters], Policy] | None = None
    """Where nothing is learnt: the policy of a world whose physics is believed to be given by these parameters."""

    def trained_by(self, task: Task, config: TrainConfig) -> Recipe:
        """The recipe; a method that is not trained says what to do instead."""
        if self.recipe is None:
            raise ValueError(self.instead)
        for field in task.description.action:
            if (field.low, field.high) != (-1.0, 1.0):
                raise ValueError(
                    f"Policies act in [-1, 1], and the action '{field.name}' of {task.description.name} lies in "
                    f"[{field.low:g}, {field.high:g}]: let its step make the command (and `action_map` say how)."
                )
        if config.through_physics.steps > 0 and not task.description.differentiable:
            raise ValueError(
                f"The physics of {task.description.name} cannot be differentiated: through_physics.steps must be 0."
            )
        recipe = self.recipe(task, config)
        if not config.told and not recipe.contextual:
            raise ValueError("told=False is for methods that have a latent to tell their actor of.")
        return recipe

    def advice(self, task: Task, config: TrainConfig) -> tuple[str, ...]:
        """What somebody who trains it with these settings should know, one sentence each."""
        if config.through_physics.steps == 0 or self.trained_by(task, config).actor_through_physics:
            return self.remarks(task, config)
        return (
            *self.remarks(task, config),
            "The actor of this method follows its critics: `through_physics` has no part in it, and the preset's "
            "`actor_learning_rate` was chosen for methods that learn so (for critics on Platoon 1e-4 is better).",
        )

    def start(self, task: Task, config: TrainConfig, key: Array) -> TrainState:
        """A run before its first decision, for one key."""
        return train.start(task, config, key, self.trained_by(task, config))

    def train_chunk(self, task: Task, config: TrainConfig, state: TrainState) -> tuple[TrainState, dict[str, Array]]:
        """`chunk` decisions with their updates, and one number per metric; traceable, mapped over seeds outside."""
        return train.train_chunk(task, config, state, self.trained_by(task, config))
