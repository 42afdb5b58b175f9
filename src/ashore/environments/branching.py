"""One state and one action stepped under many parameter vectors."""

import jax

from ashore.environments.base import Task
from ashore.types import Array, Parameters, State, StepResult


def branch(task: Task, state: State, action: Array, parameters: Parameters) -> StepResult:
    """Step the same moment in several worlds at once.

    Args:
        task: the world.
        state: one state, unbatched.
        action: one action, unbatched.
        parameters: parameter vectors with a leading axis, one per branch.

    Returns:
        The step results with the same leading axis. Randomness inside the step (a new goal, say) is shared by all
        branches, since it lives in the state: differences between branches are differences in physics alone.
    """
    return jax.vmap(task.step, in_axes=(None, None, 0))(state, action, parameters)
