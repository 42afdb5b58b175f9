"""The training loop: act once in every world, learn a few times from what all of them remember, repeat.

No maths lives here; one chunk of the loop is one compiled program, and several seeds are one more leading axis. Which
method it is that learns, a `Recipe` says; without one it is the paper's.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ashore import names, sensible
from ashore.budget import Budget
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
    updates,
)
from ashore.learning.collect import CollectConfig, Collector
from ashore.learning.disagreement import DisagreementConfig
from ashore.learning.lagrangian import PIDConfig
from ashore.learning.normalisation import Normalisers
from ashore.learning.objectives import ObjectiveConfig, Work
from ashore.learning.observation_attack import AttackConfig
from ashore.learning.recipe import Recipe
from ashore.learning.replay import ReplayConfig, ReplayState
from ashore.learning.risk import RiskConfig
from ashore.learning.soft_updates import SacConfig
from ashore.learning.through_physics import ThroughPhysics
from ashore.learning.updates import LearnerConfig, LearnerState
from ashore.networks.architecture import Architecture, Sizes
from ashore.networks.layers import Params
from ashore.types import Array, Parameters


@dataclass(frozen=True)
class TrainConfig:
    """One training run; hashable, a static argument of `jit`."""

    worlds: int = 2048
    """Worlds with fixed physical parameters, all stepped together; also the tasks of the replay."""
    decisions: int = 1600
    """Decisions taken in every world over the whole run."""
    updates_per_decision: int = 32
    learning_starts: int = 25
    """Decisions collected before the first update."""
    chunk: int = 40
    """Decisions per compiled call: one line of metrics each."""
    sizes: Sizes = Sizes()
    sharpen: bool = True
    """Give the networks what the task says is decisive and hard to see: closenesses sharpened, contrasts, and
    how soon gaps close."""
    capacity: int = 1024
    """Decisions remembered per world."""
    batch_tasks: int = 32
    batch_transitions: int = 32
    """Transitions per task of a batch."""
    context_sizes: str = "log-uniform"
    """How much the encoder's contexts hold: every scale alike (`log-uniform`), or every number (`uniform`)."""
    learning_rate: float = 3e-4
    actor_learning_rate: float | None = None
    """That of the actor, where it differs from the others."""
    encoder_learning_rate: float | None = None
    """That of encoder and dynamics head, where it differs from the others."""
    rate_left: float = 1.0
    """Share of all learning rates that is left at the end of the run; they fall in a straight line."""
    target_rate: float = 0.005
    """Share of the online critics in each step of the targets."""
    steps: int = 1
    """Decisions whose reward and cost a target counts before it asks the critics (n-step targets)."""
    reward_discount: float | None = None
    """Discount per decision of the reward critic, where it is not the budget's."""
    cost_discount: float | None = None
    """Discount per decision of the cost critic, where it is not the budget's."""
    averaging: float | None = None
    """p: the actor that is kept is its mean over the run, decision t with weight t^p; its last weights if left out.

    Noise in the last weights averages out, at the price of a policy that is a little older (1 / (p + 2) of the run).
    Quiet worlds act by the mean, so that the multiplier answers to what the kept policy costs.
    """
    aim: float = 1.0
    """Share of the budget that the multiplier steers for; below 1, the noise of an evaluation finds some room."""
    reward_scale: float = 10.0
    """Rewards are multiplied by this for the critic, so that TD errors are about as large as kappa = 1."""
    earned: bool = False
    """Whether the reward's critic learns without the share of the reward that no action changes (`unearned`)."""
    smoothness: float | None = None
    """Weight, in the actor's loss, of how much its action changes from one decision to the next; none if left out."""
    reward_floor: float | None = None
    """Rewards of a decision below this count as this for the critic; what is reported stays the true reward."""
    encoder_objective: str = "critic+dynamics"
    """`critic` is the paper's; `critic+dynamics` also asks the latent to predict what the world does."""
    beta_kl: float | None = None
    """Weight of the KL to the prior, if not the objective's own."""
    kl_limit: float | None = None
    """Nats that a latent may carry for `beta_kl` each; those beyond cost 0.1 more. None: no limit."""
    beyond: float = 1.0
    """How far worlds may stray from the method's ranges, as a multiple of their width (beyond the paper): those that
    explore as chance will have it, those behind the actor's steps through the physics the farther the higher their
    level (`risk.strangeness`), and the quiet ones, by whose cost the multiplier goes, not at all."""
    told: bool = True
    """Whether the actor is told what is believed about its world, as in the paper. Otherwise that decides how careful
    it is, and the critics know it: on Platoon such an actor earns more at equal cost (docs/decisions, 21)."""
    risk: RiskConfig = RiskConfig()
    through_physics: ThroughPhysics = ThroughPhysics()
    """Teach the actor by its gradient through the physics instead of by the critics (beyond the paper)."""
    collect: CollectConfig = CollectConfig()
    multiplier: PIDConfig = PIDConfig()
    spidr: DisagreementConfig = DisagreementConfig()
    """For `spidr` alone."""
    attack: AttackConfig = AttackConfig()
    """For `robust` alone."""
    sac: SacConfig = SacConfig()
    """For `pearl` alone."""

    def __post_init__(self) -> None:
        counts = ("worlds", "decisions", "updates_per_decision", "chunk", "steps", "batch_tasks", "batch_transitions")
        sensible.at_least(self, 1, *counts)
        sensible.at_least(self, 2, "capacity")
        sensible.at_least(self, 0, "learning_starts", "averaging", "smoothness", "beta_kl", "kl_limit")
        rates = ("learning_rate", "actor_learning_rate", "encoder_learning_rate")
        sensible.positive(self, *rates, "reward_scale", "aim")
        sensible.share(self, "rate_left", "target_rate")
        sensible.discount(self, "reward_discount", "cost_discount")
        if not 1.0 <= self.beyond < math.inf:
            raise ValueError(f"beyond must be a number from 1 on, not {self.beyond:g}.")
        if self.through_physics.late > 1 and self.chunks < through_physics.FIFTH:
            raise ValueError(f"A run of {self.chunks} chunks has no last fifth: through_physics.late would do nothing.")
        if not self.told and self.through_physics.carried > 0.0:
            raise ValueError(
                "through_physics.carried is about beliefs, of which an actor with told=False hears nothing."
            )
        names.lookup("distribution of context sizes", self.context_sizes, replay.CONTEXT_SIZES)

    @property
    def chunks(self) -> int:
        """Compiled calls in the whole run."""
        return self.decisions // self.chunk


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


def architecture(task: Task, config: TrainConfig) -> Architecture:
    """The networks for this task."""
    description = task.description
    return Architecture(
        len(description.observation),
        len(description.action),
        description.dynamics_features,
        config.sizes,
        config.risk.conditioned,
        description.closeness if config.sharpen else (),
        description.contrasts if config.sharpen else (),
        description.approaches if config.sharpen else (),
    )


def budget(task: Task, config: TrainConfig) -> Budget:
    """The task's cost limit, discounted as this run's cost critic discounts."""
    declared = task.description.budget
    return declared if config.cost_discount is None else replace(declared, discount=config.cost_discount)


def learner_config(task: Task, config: TrainConfig, recipe: Recipe) -> LearnerConfig:
    """How the networks are trained on this task."""
    taught_by_physics = config.through_physics.steps > 0 and recipe.actor_through_physics
    declared = task.description.budget.discount
    objective = ObjectiveConfig(
        architecture(task, config),
        discount_reward=declared if config.reward_discount is None else config.reward_discount,
        discount_cost=declared if config.cost_discount is None else config.cost_discount,
        reward_scale=config.reward_scale,
        reward_floor=config.reward_floor,
        smoothness_weight=config.smoothness,
        risk=config.risk,
    )
    chosen = names.lookup("encoder objective", config.encoder_objective, updates.ENCODER_OBJECTIVES)
    if config.beta_kl is not None:
        chosen = replace(chosen, beta_kl=config.beta_kl)
    if config.kl_limit is not None:
        chosen = replace(chosen, kl_limit=config.kl_limit)
    return LearnerConfig(
        objective,
        told=config.told,
        encoder_objective=chosen,
        learning_rate=config.learning_rate,
        actor_learning_rate=config.actor_learning_rate,
        encoder_learning_rate=config.encoder_learning_rate,
        rate_left=config.rate_left,
        total_updates=max(1, (config.decisions - config.learning_starts) * config.updates_per_decision),
        actor_steps=config.through_physics.all_steps(config.chunks) if taught_by_physics else None,
        target_rate=config.target_rate,
    )


def replay_config(task: Task, config: TrainConfig) -> ReplayConfig:
    """What is remembered of each world."""
    nets = architecture(task, config)
    return ReplayConfig(
        tasks=config.worlds,
        observation=nets.observation,
        action=nets.action,
        features=nets.features,
        capacity=config.capacity,
        batch_tasks=config.batch_tasks,
        batch_transitions=config.batch_transitions,
        context=config.sizes.context,
        context_sizes=config.context_sizes,
        window=config.capacity,
        steps=config.steps,
        unearned=task.description.unearned if config.earned else None,
    )


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
