"""The training loop: act once in every world, learn a few times from what all of them remember, repeat.

No maths lives here; one chunk of the loop is one compiled program, and several seeds are one more leading axis. Which
method it is that learns, a `Recipe` says; without one it is the paper's.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ashore.environments import randomisation
from ashore.environments.base import Task
from ashore.learning import (
    averaging,
    collect,
    diagnostics,
    disagreement,
    normalisation,
    objectives,
    replay,
    through_physics,
)
from ashore.learning.collect import Collector
from ashore.learning.normalisation import Normalisers
from ashore.learning.objectives import Work
from ashore.learning.recipe import Recipe
from ashore.learning.replay import ReplayConfig, ReplayState
from ashore.learning.train_config import TrainConfig, architecture, learner_config, replay_config
from ashore.learning.updates import LearnerState
from ashore.networks.layers import Params
from ashore.types import Array, Parameters


class TrainState(NamedTuple):
    """Everything that a run needs to go on."""

    collector: Collector
    replay: ReplayState
    learner: LearnerState
    normalisers: Normalisers
    parameters: Parameters
    """Physical parameters of each world."""
    models: Parameters | None = None
    """Those of the ensemble whose disagreement is charged for, fields [model]; None where nobody asks."""
    averaged: Params | None = None
    """The actor's weights averaged over the run; None where nobody asks."""

    @property
    def policy(self) -> Params:
        """The weights to keep: those that are trained, with the actor that is meant to act."""
        params = self.learner.params
        return params if self.averaged is None else params | {"actor": self.averaged}


def paper_recipe(task: Task) -> Recipe:
    """The paper's method: worlds from the training ranges, and everything else as the parts have it."""
    return Recipe(task.description.shifts["train"])


def _replay_config(task: Task, config: TrainConfig, recipe: Recipe) -> ReplayConfig:
    """What is remembered, and drawn, under this recipe: contexts of no places where nobody reads them."""
    usual = replay_config(task, config)
    context = usual.context if recipe.contextual else 0
    return replace(usual, context=context, penalised=recipe.disagreement is not None)


def start(task: Task, config: TrainConfig, key: Array, recipe: Recipe | None = None) -> TrainState:
    """A run before its first decision."""
    recipe = recipe or paper_recipe(task)
    physics_key, collect_key, learner_key = jax.random.split(key, 3)
    nets = architecture(task, config)

    def physics(key: Array, count: int) -> Parameters:
        return randomisation.sample(recipe.ranges, task.parameters_type, key, count)

    parameters, ensemble = _worlds(task, config, recipe, physics_key), recipe.disagreement
    attacked = recipe.habits.attack is not None
    learner = recipe.init(learner_config(task, config, recipe), config.multiplier, learner_key)
    return TrainState(
        collector=collect.start(task, config.collect, nets, collect_key, parameters, attacked),
        replay=replay.init(_replay_config(task, config, recipe)),
        learner=learner,
        normalisers=normalisation.init(nets.observation, len(nets.features)),
        parameters=parameters,
        models=None if ensemble is None else physics(jax.random.fold_in(physics_key, 1), ensemble.models),
        # A copy: the caller may give the memory of either away.
        averaged=None if config.averaging is None else jax.tree.map(jnp.copy, learner.params["actor"]),
    )


def _worlds(task: Task, config: TrainConfig, recipe: Recipe, key: Array) -> Parameters:
    """The physics of all worlds: quiet ones from the method's ranges, those that explore from beyond them as well."""
    stray = jax.random.uniform(jax.random.fold_in(key, 2), (config.worlds,))
    explores = jnp.arange(config.worlds) >= collect.quiet_worlds(config.collect, config.worlds)
    strangeness = jnp.where(explores, stray, 0.0)
    return randomisation.sample_beyond(recipe.ranges, task.parameters_type, key, config.beyond, strangeness)


def train_chunk(
    task: Task, config: TrainConfig, state: TrainState, recipe: Recipe | None = None
) -> tuple[TrainState, dict[str, Array]]:
    """`config.chunk` decisions and the updates that belong to them."""
    recipe = recipe or paper_recipe(task)

    def one_decision(state: TrainState, _: None) -> tuple[TrainState, dict[str, Array]]:
        state, experience = _act(task, config, state, recipe)
        # Under several seeds a condition becomes a choice of both: learn always, and keep it once there is enough.
        ready = state.collector.decisions >= config.learning_starts
        learner, learning = _learn(task, config, state, recipe)
        learner = jax.tree.map(lambda new, old: jnp.where(ready, new, old), learner, state.learner)
        averaged = _averaged(config, state, learner.params["actor"])
        return state._replace(learner=learner, averaged=averaged), experience | learning

    state, metrics = jax.lax.scan(one_decision, state, None, length=config.chunk)
    summary = _summary(metrics)
    settings = learner_config(task, config, recipe)
    if settings.actor_steps is not None:
        steps = config.through_physics.steps_after(state.collector.decisions // config.chunk, config.chunks)
        given = (state.learner, state.normalisers, state.models)
        learner, taught = through_physics.improve(
            task, config.through_physics, settings, recipe, *given, beyond=config.beyond, steps=steps
        )
        state, summary = state._replace(learner=learner), summary | taught
    if not recipe.contextual:
        return state, summary
    nets = architecture(task, config)
    errors = diagnostics.latent_errors(nets, state.learner.params, state.normalisers, state.replay)
    return state, summary | errors


def _act(task: Task, config: TrainConfig, state: TrainState, recipe: Recipe) -> tuple[TrainState, dict[str, Array]]:
    nets = architecture(task, config)
    collector, transition, finished = collect.collect(
        task,
        config.collect,
        config.risk,
        nets,
        state.learner.params | state.learner.private,
        state.normalisers,
        state.parameters,
        state.collector,
        recipe.habits,
        None if state.averaged is None else state.policy | state.learner.private,
    )
    valid = ~transition.diverged
    index = jnp.asarray(nets.features, jnp.int32)
    change = transition.next_observation[:, index] - transition.observation[:, index]
    normalisers = normalisation.update_all(
        state.normalisers, transition.observation, change, transition.reward, transition.cost, valid
    )
    penalty = None
    if recipe.disagreement is not None:
        # The moment before the decision, and the action taken there: what would other worlds have made of it?
        before = state.collector.worlds.state
        penalty = disagreement.penalties(
            recipe.disagreement, task, state.normalisers, state.models, before, transition.action
        )
    rings = replay.add(_replay_config(task, config, recipe), state.replay, transition, valid, penalty)
    limit, quiet = task.description.budget, collect.quiet_worlds(config.collect, config.worlds)
    # Random actions say nothing about the policy's cost: the multiplier starts to move when learning does.
    wanted = config.aim * limit.per_decision
    believed_cost = collector.cost_rate if penalty is None else collector.cost_rate + jnp.mean(penalty[:quiet])
    measured = recipe.constrain(config.multiplier, state.learner.multiplier, believed_cost, wanted)
    learning = collector.decisions >= config.learning_starts
    multiplier = jax.tree.map(lambda new, old: jnp.where(learning, new, old), measured, state.learner.multiplier)
    state = state._replace(
        collector=collector,
        replay=rings,
        normalisers=normalisers,
        learner=state.learner._replace(multiplier=multiplier),
    )
    # Only whole episodes count; the first of each world starts in the middle.
    whole = finished.done[:quiet] & (collector.decisions > task.description.decisions_per_episode)
    pessimism = {}
    if penalty is not None:
        # In the unit of `cost_rate`, to be read beside it.
        pessimism["penalty_rate"] = jnp.mean(penalty[:quiet]) * limit.decisions_per_episode
    return state, pessimism | {
        "episodes": jnp.sum(whole.astype(jnp.float32)),
        "episode_return": jnp.sum(jnp.where(whole, finished.episode_return[:quiet], 0.0)),
        "episode_cost": jnp.sum(jnp.where(whole, finished.episode_cost[:quiet], 0.0)),
        "cost_rate": collector.cost_rate * limit.decisions_per_episode,
        "reward_rate": jnp.mean(transition.reward[:quiet]) * limit.decisions_per_episode,
        "multiplier": multiplier.multiplier,
        # Far below one, networks are slow to learn what an action does: see `Sizes.action_scale`.
        "action_size": jnp.sqrt(jnp.mean(jnp.square(transition.action[:quiet]))),
        "diverged": jnp.sum(collector.worlds.diverged).astype(jnp.float32),
    }


def _learn(task: Task, config: TrainConfig, state: TrainState, recipe: Recipe) -> tuple[LearnerState, dict[str, Array]]:
    learner_settings, rings = learner_config(task, config, recipe), _replay_config(task, config, recipe)

    def draw(key: Array) -> Work:
        sample_key, prepare_key = jax.random.split(key)
        drawn = replay.sample(rings, state.replay, sample_key)
        return objectives.prepare(learner_settings.objective, prepare_key, state.normalisers, *drawn)

    def one_update(learner: LearnerState, work: Work) -> tuple[LearnerState, dict[str, Array]]:
        return recipe.update(learner_settings, learner, work, learner.multiplier.multiplier)

    key, *draw_keys = jax.random.split(state.learner.key, config.updates_per_decision + 1)
    # Nothing in the rings changes between two decisions: drawing all batches at once takes as long as drawing one.
    works = jax.vmap(draw)(jnp.stack(draw_keys))
    learner, metrics = jax.lax.scan(one_update, state.learner._replace(key=key), works)
    return learner, jax.tree.map(lambda values: jnp.mean(values, axis=0), metrics)


def _averaged(config: TrainConfig, state: TrainState, actor: Params) -> Params | None:
    if config.averaging is None or state.averaged is None:
        return None
    # Until learning starts the actor is the first one, over and over.
    learnt = jnp.maximum(state.collector.decisions - config.learning_starts + 1, 1).astype(jnp.float32)
    return averaging.include(config.averaging, learnt, state.averaged, actor)


def _summary(metrics: dict[str, Array]) -> dict[str, Array]:
    """One number per metric for the chunk: episode figures over the episodes that ended, the others averaged.

    Where no episode ended the episode figures are NaN: there is nothing to report, and zero would be a lie.
    """
    episodes = jnp.sum(metrics.pop("episodes"))
    ended = {name: jnp.sum(metrics.pop(name)) / episodes for name in ("episode_return", "episode_cost")}
    latest = {name: metrics.pop(name)[-1] for name in ("multiplier", "diverged", "cost_rate")}
    averaged = {name: jnp.mean(values) for name, values in metrics.items()}
    return averaged | latest | ended | {"episodes": episodes}
