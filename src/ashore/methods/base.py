"""What a method is to everybody outside: a way to start a run, to train for a while, and what to say about it."""

from collections.abc import Callable
from dataclasses import dataclass

from ashore.environments.base import Task
from ashore.learning.train import TrainConfig, TrainState
from ashore.types import Array


@dataclass(frozen=True)
class Method:
    """A pair of pure functions over one state, and its provenance."""

    summary: str
    reference: str
    differs: str
    """What we do differently from the reference, in a sentence."""
    start: Callable[[Task, TrainConfig, Array], TrainState]
    """A run before its first decision, for one key."""
    train_chunk: Callable[[Task, TrainConfig, TrainState], tuple[TrainState, dict[str, Array]]]
    """`chunk` decisions with their updates, and one number per metric; traceable, mapped over seeds outside."""
