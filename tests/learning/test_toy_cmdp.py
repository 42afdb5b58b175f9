"""A constrained problem with a known answer, solved by the whole update and the multiplier.

Worlds differ in their gain g, and half of them are wired the wrong way round (g < 0). An action a moves the position by
x = g a, pays x and costs x^2. Under E[x^2] <= d = 0.25, concave reward per world gives the optimum

    maximise x - lambda x^2  ->  x = 1 / (2 lambda);   x^2 = d  ->  x = 0.5, lambda = 1, in every world: a = 0.5 / g.

A policy that does not know the world cannot do it: with as many worlds of either sign its mean reward is a E[g] = 0.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest

from ashore.learning import lagrangian, normalisation, objectives, replay, updates
from ashore.learning.lagrangian import PIDConfig
from ashore.learning.normalisation import Normalisers
from ashore.learning.objectives import ObjectiveConfig
from ashore.learning.replay import Context, ReplayConfig, ReplayState
from ashore.learning.updates import LearnerConfig, LearnerState
from ashore.networks import actor, encoder
from ashore.networks.architecture import Architecture, Sizes
from ashore.types import Transition

TASKS, BUDGET = 32, 0.25
MAGNITUDES = jnp.linspace(0.7, 1.4, TASKS // 2)
GAINS = jnp.concatenate([MAGNITUDES, -MAGNITUDES])
NETS = Architecture(1, 1, (0,), Sizes(critic_width=32, fractions=8, hidden=(32, 32), latent=2, context=16))
CONFIG = LearnerConfig(ObjectiveConfig(NETS, discount_reward=0.8, discount_cost=0.8), learning_rate=2e-3)
REPLAY = ReplayConfig(TASKS, 1, 1, (0,), capacity=256, batch_tasks=16, batch_transitions=4, context=16, window=256)
MULTIPLIER = PIDConfig(proportional=0.5, integral=0.01, derivative=0.2, error_smoothing=0.9, cap=2.5)


class Loop(NamedTuple):
    learner: LearnerState
    normalisers: Normalisers
    replay: ReplayState
    key: jax.Array


def world(gain, position, action):
    moved = gain * action[0]
    return position + moved, moved, jnp.square(moved)


def actions_of(loop, contexts, observations):
    """Noise-free actions with the posterior mean of each world."""

    def one(context, observation):
        rows = jax.vmap(lambda row: normalisation.encoder_input(loop.normalisers, (0,), *row[:-1]))(context)
        posterior = encoder.encode(NETS.encoder, loop.learner.params["encoder"], rows, context.mask)
        seen = normalisation.normalise(loop.normalisers.observation, observation)
        return actor.apply(NETS.actor, loop.learner.params["actor"], seen, encoder.mean(posterior))

    return jax.vmap(one)(contexts, observations)


def full_contexts(state):
    """The sixteen newest decisions of every world."""
    slots = (state.cursor - 1 - jnp.arange(16, dtype=jnp.int32)) % REPLAY.capacity
    stored = jax.tree.map(lambda ring: ring[:, slots], state.experience)
    return Context(stored.observation, stored.action, stored.change, stored.reward, stored.cost, state.valid[:, slots])


def one_iteration(loop, _):
    """A decision in every world, a measurement for the multiplier, an update."""
    key, position_key, noise_key, sample_key = jax.random.split(loop.key, 4)
    observations = jax.random.uniform(position_key, (TASKS, 1), minval=-1.0, maxval=1.0)
    clean = actions_of(loop, full_contexts(loop.replay), observations)
    measured_reward, measured_cost = (jnp.mean(GAINS * clean[:, 0]), jnp.mean(jnp.square(GAINS * clean[:, 0])))
    actions = jnp.clip(clean + 0.3 * jax.random.normal(noise_key, clean.shape), -1.0, 1.0)
    position, reward, cost = jax.vmap(world)(GAINS, observations[:, 0], actions)
    no = jnp.zeros(TASKS, jnp.bool)
    transition = Transition(observations, actions, reward, cost, position[:, None], no, no, no)
    stored = replay.add(REPLAY, loop.replay, transition, ~no)
    change = transition.next_observation - observations
    normalisers = normalisation.update_all(loop.normalisers, observations, change, reward, cost, ~no)

    multiplier = lagrangian.update(MULTIPLIER, loop.learner.multiplier, measured_cost, BUDGET)
    batch, contexts = replay.sample(REPLAY, stored, sample_key)
    learner_key, prepare_key = jax.random.split(loop.learner.key)
    work = objectives.prepare(CONFIG.objective, prepare_key, normalisers, batch, contexts)
    learner = loop.learner._replace(multiplier=multiplier, key=learner_key)
    learner, metrics = updates.update_step(CONFIG, learner, work, multiplier.multiplier)
    log = (measured_reward, measured_cost, multiplier.multiplier, metrics["active_dimensions"])
    return Loop(learner, normalisers, stored, key), log


@functools.partial(jax.jit, static_argnums=1)
def train(key, iterations):
    learner_key, loop_key = jax.random.split(key)
    learner = updates.init(CONFIG, MULTIPLIER, learner_key)
    loop = Loop(learner, normalisation.init(1, 1), replay.init(REPLAY), loop_key)
    return jax.lax.scan(one_iteration, loop, None, length=iterations)


def test_constrained_optimum_is_found_at_the_constraint():
    _, (rewards, costs, multipliers, active) = train(jax.random.key(0), 1000)
    reward, cost, multiplier = (float(jnp.mean(series[-250:])) for series in (rewards, costs, multipliers))
    assert cost == pytest.approx(BUDGET, rel=0.1)
    # The optimum is sqrt(0.25) = 0.5; without knowing the world it is 0.
    assert 0.46 < reward < 0.52
    assert multiplier == pytest.approx(1.0, abs=0.35)
    assert active[-1] > 0.0
