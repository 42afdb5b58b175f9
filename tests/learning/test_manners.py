"""How an actor acts, whatever that is worth: what its loss adds for saturation and for changing its mind."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.learning.small_learner import BATCH, CONFIG, CONTEXT, NETS, NORMALISERS, PER_TASK, TASKS, alone, jit

from ashore.learning import objectives
from ashore.networks import actor


def prepared(objective):
    prepare = jit(objectives.prepare, static_argnums=0)
    return prepare(objective, jax.random.key(3), NORMALISERS, BATCH, alone(BATCH), CONTEXT)


def test_roughness_by_hand_and_only_where_it_is_asked_for():
    smooth = dataclasses.replace(CONFIG.objective, smoothness_weight=2.0)
    work, weights = prepared(smooth), actor.init(jax.random.key(4), NETS.actor)
    # All weights zero: the same action everywhere.
    still = jax.tree.map(jnp.zeros_like, weights)
    latents = jnp.zeros((TASKS * PER_TASK, 3))
    assert objectives.actor_query(smooth, still, work, latents)[1].roughness == 0.0
    acts = jax.vmap(lambda seen: actor.apply(NETS.actor, weights, seen, jnp.zeros(3)))
    by_hand = np.mean(np.sum(np.square(np.asarray(acts(work.following)) - np.asarray(acts(work.observation))), axis=1))
    found = objectives.actor_query(smooth, weights, work, latents)[1]
    assert by_hand > 1e-6 and found.roughness == pytest.approx(by_hand, rel=1e-4)
    # 0.1 of the saturation and twice the roughness.
    expected = 0.1 * float(found.saturation) + 2.0 * by_hand
    assert objectives.discipline(smooth, found) == pytest.approx(expected, rel=1e-4)
    assert prepared(CONFIG.objective).following is None
    assert objectives.actor_query(CONFIG.objective, weights, prepared(CONFIG.objective), latents)[1].roughness == 0.0
