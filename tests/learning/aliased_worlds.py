"""A constrained problem in which worlds look alike and must be treated differently, with known answers.

Worlds differ in their gain g, and some are wired the wrong way round (g < 0). An action a moves the position by
x = g a, pays x and costs x^2; where a world starts says nothing about it. With m = E[g], q = E[g^2] over the worlds,
under E[x^2] <= d = 0.25:

    knowing g            maximise x - lambda x^2:  x = sqrt(d) = 0.5 in every world, lambda = 1: reward 0.5
    one action for all   maximise m a - lambda q a^2:  a = sqrt(d / q): reward m sqrt(d / q), cost d
    trained at g = 1     a = 0.5: in the other worlds reward m / 2 and cost q d
"""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ashore.learning import lagrangian, normalisation, objectives, replay, updates
from ashore.learning.collect import act_with_noise
from ashore.learning.lagrangian import PIDConfig
from ashore.learning.normalisation import Normalisers
from ashore.learning.objectives import ObjectiveConfig
from ashore.learning.replay import Context, ReplayConfig, ReplayState
from ashore.learning.updates import LearnerConfig, LearnerState
from ashore.networks import actor, encoder
from ashore.networks.architecture import Architecture, Sizes
from ashore.types import Transition

TASKS, BUDGET = 32, 0.25
SIZES = Sizes(critic_width=32, fractions=8, hidden=(32, 32), latent=2, context=16, critic_blocks=1)
NETS = Architecture(1, 1, (0,), SIZES)
CONFIG = LearnerConfig(ObjectiveConfig(NETS, discount_reward=0.8, discount_cost=0.8), learning_rate=2e-3)
REPLAY = ReplayConfig(TASKS, 1, 1, (0,), capacity=256, batch_tasks=16, batch_transitions=4, context=16, window=256)
MULTIPLIER = PIDConfig(proportional=0.5, integral=0.01, derivative=0.2, error_smoothing=0.9, cap=2.5)


class Learner(NamedTuple):
    """What a method brings along; the defaults are the paper's."""

    init: Callable[..., LearnerState] = updates.init
    update: Callable[..., Any] = updates.update_step
    act: Callable[..., jax.Array] = act_with_noise
    contextual: bool = True


class Loop(NamedTuple):
    learner: LearnerState
    normalisers: Normalisers
    replay: ReplayState
    key: jax.Array


class Log(NamedTuple):
    reward: jax.Array
    cost: jax.Array
    multiplier: jax.Array
    action: jax.Array
    """Noise-free actions of all worlds."""
    metrics: dict[str, jax.Array]


def world(gain, position, action):
    moved = gain * action[0]
    return position + moved, moved, jnp.square(moved)


def latents_of(loop, contexts):
    """Posterior mean of each world."""

    def one(context):
        rows = jax.vmap(lambda row: normalisation.encoder_input(loop.normalisers, (0,), *row[:-1]))(context)
        return encoder.mean(encoder.encode(NETS.encoder, loop.learner.params["encoder"], rows, context.mask))

    return jax.vmap(one)(contexts)


def full_contexts(state):
    """The sixteen newest decisions of every world."""
    slots = (state.cursor - 1 - jnp.arange(16, dtype=jnp.int32)) % REPLAY.capacity
    stored = jax.tree.map(lambda ring: ring[:, slots], state.experience)
    return Context(stored.observation, stored.action, stored.change, stored.reward, stored.cost, state.valid[:, slots])


def one_iteration(method, gains, loop, _):
    """A decision in every world, a measurement for the multiplier, an update."""
    rings = REPLAY if method.contextual else replace(REPLAY, context=0)
    key, position_key, noise_key, sample_key = jax.random.split(loop.key, 4)
    observations = jax.random.uniform(position_key, (TASKS, 1), minval=-1.0, maxval=1.0)
    seen = jax.vmap(lambda row: normalisation.normalise(loop.normalisers.observation, row))(observations)
    latents = latents_of(loop, full_contexts(loop.replay)) if method.contextual else jnp.zeros((TASKS, 2))
    params = loop.learner.params | loop.learner.private
    clean = jax.vmap(lambda *example: actor.apply(NETS.actor, params["actor"], *example))(seen, latents)
    measured_reward, measured_cost = (jnp.mean(gains * clean[:, 0]), jnp.mean(jnp.square(gains * clean[:, 0])))
    strength, push = jnp.full(TASKS, 0.3), jax.random.normal(noise_key, clean.shape)
    actions = jnp.clip(method.act(NETS, params, seen, latents, strength, push), -1.0, 1.0)
    position, reward, cost = jax.vmap(world)(gains, observations[:, 0], actions)
    no = jnp.zeros(TASKS, jnp.bool)
    transition = Transition(observations, actions, reward, cost, position[:, None], no, no, no)
    stored = replay.add(REPLAY, loop.replay, transition, ~no)
    change = transition.next_observation - observations
    normalisers = normalisation.update_all(loop.normalisers, observations, change, reward, cost, ~no)

    multiplier = lagrangian.update(MULTIPLIER, loop.learner.multiplier, measured_cost, BUDGET)
    drawn = replay.sample(rings, stored, sample_key)
    learner_key, prepare_key = jax.random.split(loop.learner.key)
    work = objectives.prepare(CONFIG.objective, prepare_key, normalisers, *drawn)
    learner = loop.learner._replace(multiplier=multiplier, key=learner_key)
    learner, metrics = method.update(CONFIG, learner, work, multiplier.multiplier)
    log = Log(measured_reward, measured_cost, multiplier.multiplier, clean[:, 0], metrics)
    return Loop(learner, normalisers, stored, key), log


# Half of the time is compilation: a little optimisation pays, all of it does not.
@functools.partial(jax.jit, static_argnums=(0, 3), compiler_options={"xla_backend_optimization_level": 1})
def train(method, gains, key, iterations):
    learner_key, loop_key = jax.random.split(key)
    learner = method.init(CONFIG, MULTIPLIER, learner_key)
    loop = Loop(learner, normalisation.init(1, 1), replay.init(REPLAY), loop_key)
    return jax.lax.scan(functools.partial(one_iteration, method, gains), loop, None, length=iterations)
