"""The actor's gradient through the physics: what its actions do to whole episodes, whatever the critics believe.

Where the step of a task can be differentiated, return J_r and cost J_c of an episode have a derivative with respect to
the actor's weights, through every decision and everything that follows from it. The actor then descends

    (lambda J_c - J_r) / (1 + lambda)

over a few worlds, each for one episode from the prior on, as it is deployed: on the mean of its posterior, without
noise. What the policy believes is taken as given. At level eta of a risk-conditioned policy lambda is that of
`risk.multiplier_at`. The critics learn beside it what this actor is worth, and deployment needs them; they no longer
teach it (paper: eq 11).
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from ashore.environments import randomisation, rollout
from ashore.environments.base import Task
from ashore.environments.rollout import Worlds
from ashore.learning import disagreement, normalisation, risk, updates
from ashore.learning.normalisation import Normalisers
from ashore.learning.recipe import Recipe
from ashore.learning.updates import LearnerConfig, LearnerState, Metrics
from ashore.networks import architecture, encoder
from ashore.networks.encoder import NaturalPosterior
from ashore.networks.layers import Params
from ashore.types import Array, Parameters


@dataclass(frozen=True)
class ThroughPhysics:
    """How often the actor steps along the gradient through the physics, and over how many worlds."""

    steps: int = 0
    """Steps at the end of every chunk; 0 leaves the actor to the critics, as in the paper."""
    worlds: int = 64
    """Worlds behind every step, drawn anew from the method's own ranges; each runs for one whole episode."""

    def __post_init__(self) -> None:
        if self.steps < 0 or self.worlds < 1:
            raise ValueError("The gradient through the physics takes no negative steps, over at least one world.")


def improve(
    task: Task,
    config: ThroughPhysics,
    learner_config: LearnerConfig,
    recipe: Recipe,
    learner: LearnerState,
    normalisers: Normalisers,
    models: Parameters | None,
) -> tuple[LearnerState, Metrics]:
    """`config.steps` steps of the actor, and their metrics on average.

    Args:
        models: the ensemble whose disagreement the method is charged for, if it is.
    """
    multiplier = learner.multiplier.multiplier

    def one_step(learner: LearnerState, key: Array) -> tuple[LearnerState, Metrics]:
        physics_key, level_key, scene_key = jax.random.split(key, 3)
        parameters = randomisation.sample(recipe.ranges, task.parameters_type, physics_key, config.worlds)
        levels = risk.levels(learner_config.objective.risk, level_key, config.worlds)
        charge = risk.multiplier_at(learner_config.objective.risk, multiplier, levels)

        def loss(actor: Params) -> tuple[Array, Metrics]:
            params = learner.params | learner.private | {"actor": actor}
            known = (task, learner_config, recipe, params, normalisers, models)
            returns, costs = Episodes(*known, parameters, levels).run(scene_key)
            total = jnp.mean((charge * costs - returns) / (1.0 + charge))
            return total, {"actor_loss": total, "physics_return": jnp.mean(returns), "physics_cost": jnp.mean(costs)}

        gradients, metrics = jax.grad(loss, has_aux=True)(learner.params["actor"])
        learner, norm = updates.descend(learner_config, learner, "actor", gradients)
        return learner, metrics | {"gradient_norm_actor": norm}

    key, *keys = jax.random.split(learner.key, config.steps + 1)
    learner, metrics = jax.lax.scan(one_step, learner._replace(key=key), jnp.stack(keys))
    return learner, jax.tree.map(lambda values: jnp.mean(values, axis=0), metrics)


@dataclass(frozen=True)
class Episodes:
    """One episode in every world, differentiable in the weights of the actor."""

    task: Task
    config: LearnerConfig
    recipe: Recipe
    params: Params
    normalisers: Normalisers
    models: Parameters | None
    parameters: Parameters
    levels: Array

    def run(self, key: Array) -> tuple[Array, Array]:
        """Return and cost, with what it is charged for disagreement, [world] each."""
        worlds = rollout.start(self.task, key, self.parameters)
        count, nets = worlds.decision.shape[0], self.config.objective.architecture
        prior = jax.vmap(lambda _: encoder.prior(nets.sizes.latent))(jnp.arange(count))

        # What one decision leaves behind for the way back is forgotten and computed again: memory for speed, at par.
        one_decision = jax.checkpoint(lambda carry, _: self._decision(*carry))
        length = self.task.description.decisions_per_episode
        _, (rewards, costs) = jax.lax.scan(one_decision, (worlds, prior), None, length=length)
        return jnp.sum(rewards, axis=0), jnp.sum(costs, axis=0)

    def _decision(
        self, worlds: Worlds, posterior: NaturalPosterior
    ) -> tuple[tuple[Worlds, NaturalPosterior], tuple[Array, Array]]:
        nets, habits = self.config.objective.architecture, self.recipe.habits
        latents = jax.vmap(encoder.mean)(posterior)
        condition = jax.vmap(lambda *example: architecture.condition(nets, *example))(latents, self.levels)
        seen = jax.vmap(self._see)(worlds.observation)
        quiet = jnp.zeros(seen.shape[0], jnp.float32)
        push = jnp.zeros((seen.shape[0], nets.action), jnp.float32)
        actions = habits.act(nets, self.params, seen, condition, quiet, push)
        before = worlds.state
        worlds, transition, _ = rollout.advance(self.task, worlds, actions, self.parameters)
        cost = transition.cost
        if self.recipe.disagreement is not None:
            assert self.models is not None
            ensemble = (self.recipe.disagreement, self.task, self.normalisers, self.models)
            cost = cost + disagreement.penalties(*ensemble, before, actions)
        happened = jax.lax.stop_gradient(transition)
        posterior = habits.believe(nets, self.params, self.normalisers, posterior, happened)
        return (worlds, jax.lax.stop_gradient(posterior)), (transition.reward, cost)

    def _see(self, observation: Array) -> Array:
        return normalisation.see(self.config.objective.architecture, self.normalisers.observation, observation)
