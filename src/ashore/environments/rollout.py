"""Many worlds at once: time limits, true resets, and what to do when one of them diverges."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ashore.environments.base import Task
from ashore.types import Array, Parameters, Policy, State, StepResult, Transition


class Worlds(NamedTuple):
    """A batch of running worlds; every field has the batch as its leading axis."""

    state: State
    observation: Array
    key: Array
    decision: Array
    """Decisions taken in the running episode, int32."""
    episode_return: Array
    episode_cost: Array
    diverged: Array
    """How often this world left the finite numbers since `start`, int32."""


class Finished(NamedTuple):
    """Figures of the episodes that ended with a step; only meaningful where `done`."""

    done: Array
    episode_return: Array
    episode_cost: Array
    decisions: Array
    metrics: dict[str, Array]


def start(task: Task, key: Array, parameters: Parameters) -> Worlds:
    """Reset one world per parameter vector, each with a scene of its own."""
    count = jax.tree.leaves(parameters)[0].shape[0]
    keys = jax.vmap(jax.random.split)(jax.random.split(key, count))
    reset = jax.vmap(task.reset)(keys[:, 0], parameters)
    return Worlds(
        state=reset.state,
        observation=reset.observation,
        key=keys[:, 1],
        decision=jnp.zeros(count, jnp.int32),
        episode_return=jnp.zeros(count, jnp.float32),
        episode_cost=jnp.zeros(count, jnp.float32),
        diverged=jnp.zeros(count, jnp.int32),
    )


def advance(task: Task, worlds: Worlds, actions: Array, parameters: Parameters) -> tuple[Worlds, Transition, Finished]:
    """Apply one action per world; worlds whose episode ended are reset to a new scene.

    The transition keeps the observation that really followed (`next_observation`), also where the episode was cut
    by its time limit (`truncated`). A world that diverged is reset like one that ended, its transition is marked,
    its cost is the highest possible and its count goes up: it is never silently continued.
    """
    return jax.vmap(lambda world, action, physics: _advance_one(task, world, action, physics))(
        worlds, actions, parameters
    )


def go_on(task: Task, worlds: Worlds, actions: Array, parameters: Parameters) -> tuple[Worlds, Transition]:
    """Apply one action per world, and reset nobody: for loops that are one episode long.

    A world that has ended or diverged (which costs the worst that a decision can, once) stays where it is, earns and
    pays nothing more, and is not reported as ending again; sums over episodes are not kept. To draw a new scene for
    every world with every decision, and to choose between the two, is a tenth of the work of a light task.
    """
    return jax.vmap(lambda world, action, physics: _go_on_one(task, world, action, physics))(
        worlds, actions, parameters
    )


def _happened(task: Task, world: Worlds, action: Array, parameters: Parameters) -> tuple[StepResult, Transition]:
    """One step of a world, and what is told of it."""
    description = task.description
    result = task.step(world.state, action, parameters)
    diverged = result.diverged
    # A diverged step has no meaningful reward or observation; charge the worst cost and keep the last good sight.
    reward = jnp.where(diverged, 0.0, result.reward)
    cost = jnp.where(diverged, description.max_cost, result.cost)
    next_observation = jnp.where(diverged, world.observation, result.observation)
    terminated = result.terminated & ~diverged
    truncated = (world.decision + 1 >= description.decisions_per_episode) & ~terminated & ~diverged
    return result, Transition(
        world.observation, action, reward, cost, next_observation, terminated, truncated, diverged
    )


def _go_on_one(task: Task, world: Worlds, action: Array, parameters: Parameters) -> tuple[Worlds, Transition]:
    last = task.description.decisions_per_episode
    over = world.decision >= last
    result, transition = _happened(task, world, action, parameters)
    transition = transition._replace(
        reward=jnp.where(over, 0.0, transition.reward),
        cost=jnp.where(over, 0.0, transition.cost),
        next_observation=jnp.where(over, world.observation, transition.next_observation),
        terminated=transition.terminated & ~over,
        truncated=transition.truncated & ~over,
        diverged=transition.diverged & ~over,
    )
    stays = over | transition.diverged
    return world._replace(
        state=jax.tree.map(lambda old, new: jnp.where(stays, old, new), world.state, result.state),
        observation=transition.next_observation,
        decision=jnp.where(stays | transition.terminated, last, world.decision + 1),
        diverged=world.diverged + transition.diverged.astype(jnp.int32),
    ), transition


def _advance_one(
    task: Task, world: Worlds, action: Array, parameters: Parameters
) -> tuple[Worlds, Transition, Finished]:
    result, transition = _happened(task, world, action, parameters)
    done = transition.terminated | transition.truncated | transition.diverged
    finished = Finished(
        done=done,
        episode_return=world.episode_return + transition.reward,
        episode_cost=world.episode_cost + transition.cost,
        decisions=world.decision + 1,
        metrics=task.episode_metrics(result.state),
    )

    reset_key, next_key = jax.random.split(world.key)
    reset = task.reset(reset_key, parameters)
    continued = Worlds(
        state=jax.tree.map(lambda new, old: jnp.where(done, new, old), reset.state, result.state),
        observation=jnp.where(done, reset.observation, transition.next_observation),
        key=next_key,
        decision=jnp.where(done, 0, finished.decisions),
        episode_return=jnp.where(done, 0.0, finished.episode_return),
        episode_cost=jnp.where(done, 0.0, finished.episode_cost),
        diverged=world.diverged + transition.diverged.astype(jnp.int32),
    )
    return continued, transition, finished


def rollout(
    task: Task, policy: Policy, worlds: Worlds, parameters: Parameters, key: Array, decisions: int
) -> tuple[Worlds, Transition, Finished]:
    """Let one policy act in every world for a number of decisions, in one compiled loop.

    Returns:
        The worlds afterwards, and transitions and finished episodes with axes [decision, world].
    """
    act: Callable[[Array, Array], Array] = jax.vmap(policy)

    def one_decision(carry: tuple[Worlds, Array], _: None) -> tuple[tuple[Worlds, Array], tuple[Transition, Finished]]:
        worlds, key = carry
        key, policy_key = jax.random.split(key)
        actions = act(worlds.observation, jax.random.split(policy_key, worlds.decision.shape[0]))
        worlds, transition, finished = advance(task, worlds, actions, parameters)
        return (worlds, key), (transition, finished)

    (worlds, _), (transitions, finished) = jax.lax.scan(one_decision, (worlds, key), None, length=decisions)
    return worlds, transitions, finished
