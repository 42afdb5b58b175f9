"""The actor's gradient through the physics: what its actions do to whole episodes, whatever the critics believe.

Where the step of a task can be differentiated, return J_r and cost J_c of an episode have a derivative with respect to
the actor's weights, through every decision and everything that follows from it. The actor then descends

    (lambda J_c - J_r) / (1 + lambda)

over a few worlds, each for one episode as it is deployed: from the prior or what was believed before, on the mean of
its posterior, without noise. What the policy believes is taken as given. At level eta of a risk-conditioned policy
lambda is that of `risk.multiplier_at`. The critics learn beside it what this actor is worth, and deployment needs
them; they no longer teach it (paper: eq 11).
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from ashore import sensible
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

FIFTH = 5
"""The part of a run that is its end."""
WRITTEN_OUT = {"gpu": 4}
"""Decisions that are written out one after the other in the loop over an episode, by backend; 1 elsewhere. On a GPU a
decision is more than a hundred tiny kernels, and the compiler makes fewer of them when it sees several decisions at
once; on a CPU nothing is gained."""


@dataclass(frozen=True)
class ThroughPhysics:
    """How often the actor steps along the gradient through the physics, and over how many worlds."""

    steps: int = 0
    """Steps at the end of every chunk; 0 leaves the actor to the critics, as in the paper."""
    worlds: int = 64
    """Worlds behind every step, drawn anew from the method's own ranges; each runs for one whole episode."""
    late: int = 1
    """How many times as many in the last fifth of the run, when what the actor is told about its world has settled.

    Its learning rate falls over all its steps, so that it is higher at the beginning of that fifth than without.
    """
    carried: float = 0.0
    """Share of the worlds that are met with a belief from episodes before, as from the second episode of a deployment
    on; in the others the episode begins at the prior. An actor that has met beliefs of its own episode alone takes one
    that is sure from the start for something else (docs/decisions, 20). Nothing to methods without a latent."""
    carried_episodes: int = 9
    """A belief that is carried stands for one episode to this many: a deployment over ten begins nine with one."""
    longest: float | None = 100.0
    """Longest derivative of a world's loss with respect to what one decision hands on to the next; what is longer is
    cut to it on the way back. None: no limit, and a world whose motion is unstable outvotes all the others. On Platoon
    the length is about 2 at the median and 5 at 90 %; a seed without the limit was lost (docs/decisions, 17)."""

    def __post_init__(self) -> None:
        if self.steps < 0 or self.worlds < 1:
            raise ValueError("The gradient through the physics takes no negative steps, over at least one world.")
        sensible.at_least(self, 1, "late")
        if self.late > 1 and self.steps == 0:
            raise ValueError("through_physics.late multiplies through_physics.steps, which are 0.")
        if not 0.0 <= self.carried <= 1.0:
            raise ValueError(f"carried is a share of the worlds, from 0 to 1, and not {self.carried!r}.")
        if self.carried > 0.0 and self.steps == 0:
            raise ValueError("through_physics.carried is about the worlds of through_physics.steps, which are 0.")
        sensible.at_least(self, 1, "carried_episodes")
        sensible.positive(self, "longest")

    def steps_after(self, chunk: Array | int, chunks: int) -> Array | int:
        """Steps at the end of a chunk, which is counted from 1 to `chunks`."""
        if self.late == 1:
            return self.steps
        return jnp.where(chunk > chunks - _late_chunks(chunks), self.late * self.steps, self.steps)

    def all_steps(self, chunks: int) -> int:
        """Steps of a whole run."""
        return self.steps * (chunks + (self.late - 1) * _late_chunks(chunks))


def _late_chunks(chunks: int) -> int:
    return chunks // FIFTH


def improve(
    task: Task,
    config: ThroughPhysics,
    learner_config: LearnerConfig,
    recipe: Recipe,
    learner: LearnerState,
    normalisers: Normalisers,
    models: Parameters | None,
    *,
    beyond: float = 1.0,
    steps: Array | int,
) -> tuple[LearnerState, Metrics]:
    """Some steps of the actor, and their metrics on average.

    Args:
        steps: how many, at least one. A plain number is a loop that others can count the turns of.
        models: the ensemble whose disagreement the method is charged for, if it is.
        beyond: how far worlds stray at the highest level, as a multiple of the width of their ranges.
    """
    multiplier = learner.multiplier.multiplier

    def one_step(learner: LearnerState, key: Array) -> tuple[LearnerState, Metrics]:
        physics_key, level_key, scene_key = jax.random.split(key, 3)
        levels = risk.spread_levels(learner_config.objective.risk, level_key, config.worlds)
        strangeness = risk.strangeness(learner_config.objective.risk, level_key, levels)
        parameters = randomisation.sample_beyond(recipe.ranges, task.parameters_type, physics_key, beyond, strangeness)
        charge = risk.multiplier_at(learner_config.objective.risk, multiplier, levels)

        def loss(actor: Params) -> tuple[Array, Metrics]:
            params = learner.params | learner.private | {"actor": actor}
            known = (task, learner_config, recipe, params, normalisers, models)
            chosen = (parameters, levels, config.longest, config.carried, config.carried_episodes)
            returns, costs = Episodes(*known, *chosen).run(scene_key)
            # Summed, so that what is handed back within one world does not depend on how many there are.
            total = jnp.sum((charge * costs - returns) / (1.0 + charge))
            mean = total / config.worlds
            return total, {"actor_loss": mean, "physics_return": jnp.mean(returns), "physics_cost": jnp.mean(costs)}

        gradients, metrics = jax.grad(loss, has_aux=True)(learner.params["actor"])
        gradients = jax.tree.map(lambda gradient: gradient / config.worlds, gradients)
        learner, norm = updates.descend(learner_config, learner, "actor", gradients)
        return learner, metrics | {"gradient_norm_actor": norm}

    key, steps_key = jax.random.split(learner.key)

    def another(number: Array, carry: tuple[LearnerState, Metrics]) -> tuple[LearnerState, Metrics]:
        learner, sums = carry
        learner, metrics = one_step(learner, jax.random.fold_in(steps_key, number))
        return learner, jax.tree.map(jnp.add, sums, metrics)

    nothing = jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), jax.eval_shape(one_step, learner, key)[1])
    learner, sums = jax.lax.fori_loop(0, steps, another, (learner._replace(key=key), nothing))
    return learner, jax.tree.map(lambda total: total / jnp.asarray(steps, jnp.float32), sums)


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
    longest: float | None = None
    """See `ThroughPhysics`."""
    carried: float = 0.0
    """See `ThroughPhysics`."""
    carried_episodes: int = 9
    """See `ThroughPhysics`."""

    def run(self, key: Array) -> tuple[Array, Array]:
        """Return and cost, with what it is charged for disagreement, [world] each."""
        belief = self._prior()
        if self.carried > 0.0 and self._believes:
            key, before_key, chosen_key = jax.random.split(key, 3)
            belief = self._carried(before_key, chosen_key, belief)
        _, rewards, costs = self._episode(key, belief)
        return jnp.sum(rewards, axis=0), jnp.sum(costs, axis=0)

    @property
    def _believes(self) -> bool:
        """Whether it matters here what is learnt about a world: to an actor that is told the latent."""
        return self.recipe.contextual and self.config.told

    def _prior(self) -> NaturalPosterior:
        latent = self.config.objective.architecture.sizes.latent
        return jax.vmap(lambda _: encoder.prior(latent))(jnp.arange(self.levels.shape[0]))

    def _carried(self, key: Array, chosen_key: Array, prior: NaturalPosterior) -> NaturalPosterior:
        """Beliefs at the start: those of an episode before, which stands for several like it, or the prior."""
        # What happened before is given: nothing is handed back to it.
        acts = replace(self, params=jax.lax.stop_gradient(self.params))
        taught, _, _ = acts._episode(key, prior)
        chosen_key, repeats_key = jax.random.split(chosen_key)
        repeats = jax.random.randint(repeats_key, self.levels.shape, 1, self.carried_episodes + 1)
        kept = repeats * (jax.random.uniform(chosen_key, self.levels.shape) < self.carried).astype(jnp.int32)
        return jax.lax.stop_gradient(jax.vmap(encoder.repeated)(taught, kept))

    def _episode(self, key: Array, belief: NaturalPosterior) -> tuple[NaturalPosterior, Array, Array]:
        """What is believed after an episode that begins with this belief; rewards and costs, [decision, world]."""
        worlds = rollout.start(self.task, key, self.parameters)
        # What one decision leaves behind for the way back is forgotten and computed again: memory for speed, at par.
        one_decision = jax.checkpoint(lambda carry, _: self._decision(*carry))
        length = self.task.description.decisions_per_episode
        written_out = min(WRITTEN_OUT.get(jax.default_backend(), 1), length)
        (_, belief), (rewards, costs) = jax.lax.scan(
            one_decision, (worlds, belief), None, length=length, unroll=written_out
        )
        return belief, rewards, costs

    def _decision(
        self, worlds: Worlds, posterior: NaturalPosterior
    ) -> tuple[tuple[Worlds, NaturalPosterior], tuple[Array, Array]]:
        nets, habits = self.config.objective.architecture, self.recipe.habits
        if self.longest is not None:
            worlds = cut_on_the_way_back(self.longest, worlds)
        latents = jax.vmap(encoder.mean)(posterior)
        condition = jax.vmap(lambda *example: architecture.condition(nets, *example))(latents, self.levels)
        seen = jax.vmap(self._see)(worlds.observation)
        quiet = jnp.zeros(seen.shape[0], jnp.float32)
        push = jnp.zeros((seen.shape[0], nets.action), jnp.float32)
        actions = habits.act(nets, self.params, seen, condition, quiet, push)
        before, runs = worlds.state, worlds.decision < self.task.description.decisions_per_episode
        worlds, transition = rollout.go_on(self.task, worlds, actions, self.parameters)
        cost = transition.cost
        if self.recipe.disagreement is not None:
            assert self.models is not None
            ensemble = (self.recipe.disagreement, self.task, self.normalisers, self.models)
            cost = cost + jnp.where(runs, disagreement.penalties(*ensemble, before, actions), 0.0)
        if self._believes:
            happened = jax.lax.stop_gradient(transition)
            posterior = habits.believe(nets, self.params, self.normalisers, posterior, happened)
        return (worlds, jax.lax.stop_gradient(posterior)), (transition.reward, cost)

    def _see(self, observation: Array) -> Array:
        return normalisation.see(self.config.objective.architecture, self.normalisers.observation, observation)


def cut_on_the_way_back(longest: float, worlds: Any) -> Any:
    """The worlds as they are, [world] first in every array; the derivative with respect to each is cut to this length.

    Where the motion of a world is unstable, derivatives grow by a factor with every decision on their way back, a
    thousand times. A world whose derivative is no longer a number has nothing to say.
    """
    return _cut(longest, worlds)


def _as_they_are(longest: float, worlds: Any) -> Any:
    del longest
    return worlds


def _cut_forwards(longest: float, worlds: Any) -> tuple[Any, None]:
    del longest
    return worlds, None


def _cut_backwards(longest: float, _: None, derivative: Any) -> tuple[Any]:
    numbers = [leaf for leaf in jax.tree.leaves(derivative) if leaf.dtype != jax.dtypes.float0]
    squares = [jnp.sum(jnp.square(leaf.reshape(leaf.shape[0], -1)), axis=1) for leaf in numbers]
    length = jnp.sqrt(jnp.sum(jnp.stack(squares), axis=0))
    says_something = jnp.isfinite(length)
    share = longest / jnp.maximum(length, longest)

    def cut(leaf: Array) -> Array:
        if leaf.dtype == jax.dtypes.float0:
            return leaf
        along = (-1,) + (1,) * (leaf.ndim - 1)
        return jnp.where(says_something.reshape(along), share.reshape(along) * leaf, 0.0)

    return (jax.tree.map(cut, derivative),)


_cut = jax.custom_vjp(_as_they_are, nondiff_argnums=(0,))
_cut.defvjp(_cut_forwards, _cut_backwards)
