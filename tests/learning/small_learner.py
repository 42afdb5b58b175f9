"""A learner small enough to compile in a moment, one batch for it, and what one update computes on the way."""

import functools

import jax
import jax.numpy as jnp
from tests.compilation import jit

from ashore.learning import lagrangian, normalisation, objectives, updates
from ashore.learning.objectives import ObjectiveConfig
from ashore.learning.replay import Ahead, Context, Experience
from ashore.learning.updates import LearnerConfig
from ashore.networks.architecture import Architecture, Sizes

SIZES = Sizes(critic_width=8, fractions=4, hidden=(8,), latent=3, context=6, critic_blocks=1, cosines=8)
NETS = Architecture(4, 2, (0, 3), SIZES)
CONFIG = LearnerConfig(ObjectiveConfig(NETS))
TASKS, PER_TASK = 3, 5


@jit
def make_batch(seed):
    keys = iter(jax.random.split(jax.random.key(seed), 12))

    def normal(*shape):
        return jax.random.normal(next(keys), shape)

    shape = (TASKS, PER_TASK)
    batch = Experience(
        observation=normal(*shape, 4),
        action=jnp.tanh(normal(*shape, 2)),
        reward=normal(*shape),
        cost=jnp.abs(normal(*shape)),
        next_observation=normal(*shape, 4),
        change=normal(*shape, 2),
        terminated=normal(*shape) > 1.0,
        ended=jnp.zeros(shape, jnp.bool),
    )
    batch = batch._replace(ended=batch.terminated)
    places = (TASKS, 6)
    # Contexts of six, two and no transitions.
    mask = jnp.arange(6)[None, :] < jnp.array([6, 2, 0])[:, None]
    context = Context(
        normal(*places, 2), normal(*places, 2), normal(*places, 2), normal(*places), normal(*places), mask
    )
    return batch, context


def alone(batch):
    """Every decision followed by none: targets of one step."""
    return Ahead(
        reward=batch.reward[..., None],
        cost=batch.cost[..., None],
        penalty=None,
        unearned=None,
        steps=jnp.ones(batch.reward.shape, jnp.int32),
        observation=batch.next_observation,
        terminated=batch.terminated,
    )


NORMALISERS = normalisation.init(4, 2)
BATCH, CONTEXT = make_batch(0)
LAMBDA = jnp.float32(0.7)


@functools.cache
def start(config=CONFIG):
    return jit(updates.init, static_argnums=(0, 1))(config, lagrangian.PIDConfig(), jax.random.key(1))


def prepared(state, config=CONFIG, batch=BATCH, context=CONTEXT, normalisers=NORMALISERS):
    return objectives.prepare(config.objective, state.key, normalisers, batch, alone(batch), context)


@functools.cache
def pieces():
    """What the steps of an update are given, computed once."""

    @jit
    def compute(state):
        work = prepared(state)
        posterior = objectives.posteriors(CONFIG.objective, state.params["encoder"], work)
        latents = objectives.latents_of(posterior, work)
        targets = objectives.td_targets(CONFIG.objective, state.params["actor"], state.targets, work, latents)
        return work, latents, targets

    return compute(start())


def moved(before, after):
    return any(bool(jnp.any(a != b)) for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True))


def largest(tree):
    return max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(tree))
