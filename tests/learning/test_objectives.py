"""The losses of a batch: what the targets are made of, which samples are shared, what the options do."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from tests.learning.small_learner import (
    BATCH,
    CONFIG,
    CONTEXT,
    NORMALISERS,
    PER_TASK,
    TASKS,
    jit,
    largest,
    moved,
    pieces,
    start,
)

from ashore.learning import objectives
from ashore.networks.critic import COST, REWARD


def test_encoder_gets_its_gradient_from_the_critics_through_z():
    # With the paper's objective and no KL, whatever reaches the encoder has come through the critics' dL/dz.
    state, (work, _, targets) = start(), pieces()

    def critic_part(weights, stop):
        latents = objectives.latents_of(objectives.posteriors(CONFIG.objective, weights, work), work)
        latents = jax.lax.stop_gradient(latents) if stop else latents
        query = objectives.taken_query(CONFIG.objective, work, latents)
        (values,) = objectives.ask(CONFIG.objective, state.params["critics"], query)
        return jnp.sum(objectives.critic_losses(CONFIG.objective, values, work, targets))

    gradient = jit(jax.grad(critic_part), static_argnums=1)
    assert largest(gradient(state.params["encoder"], False)) > 1e-6
    assert largest(gradient(state.params["encoder"], True)) == 0.0


def test_td_targets_use_reward_cost_and_the_online_actor():
    # With all transitions terminated the targets are the scaled reward and the plain cost alone.
    objective = dataclasses.replace(CONFIG.objective, reward_scale=10.0)
    ended = BATCH._replace(terminated=jnp.ones((TASKS, PER_TASK), jnp.bool))
    state = start()

    @jit
    def targets_of(batch, actor):
        work = objectives.prepare(objective, jax.random.key(0), NORMALISERS, batch, CONTEXT)
        latents = jnp.zeros((TASKS * PER_TASK, 3))
        return objectives.td_targets(objective, actor, state.targets, work, latents)

    targets = targets_of(ended, state.params["actor"])
    assert targets.shape == (2, TASKS * PER_TASK, 4)
    np.testing.assert_allclose(targets[REWARD], np.repeat(10.0 * BATCH.reward.reshape(-1, 1), 4, axis=1), rtol=1e-6)
    np.testing.assert_allclose(targets[COST], np.repeat(BATCH.cost.reshape(-1, 1), 4, axis=1), rtol=1e-6)
    going = BATCH._replace(terminated=jnp.zeros((TASKS, PER_TASK), jnp.bool))
    other_actor = jax.tree.map(lambda leaf: leaf + 0.5, state.params["actor"])
    assert moved(targets_of(going, state.params["actor"]), targets_of(going, other_actor))


def test_one_latent_sample_per_task():
    _, latents, _ = pieces()
    by_task = np.asarray(latents).reshape(TASKS, PER_TASK, 3)
    np.testing.assert_array_equal(by_task, np.broadcast_to(by_task[:, :1], by_task.shape))
    assert len(np.unique(by_task[:, 0, 0])) == TASKS


def test_options_reach_the_losses():
    state, (work, latents, targets) = start(), pieces()
    plain = CONFIG.objective

    def losses_and_targets(config):
        config = dataclasses.replace(plain, **config)
        query = objectives.taken_query(config, work, latents)
        (values,) = objectives.ask(config, state.params["critics"], query)
        critic = objectives.critic_losses(config, values, work, targets)
        return critic, objectives.td_targets(config, state.params["actor"], state.targets, work, latents)

    @jit
    def variants():
        careful = {"reward_heads": "min", "cost_heads": "max"}
        discounts = {"discount_reward": 0.495, "discount_cost": 0.099}
        changes = ({}, {"quantile_reduction": "sum"}, careful, {"target_noise": 0.2}, discounts)
        return [losses_and_targets(change) for change in changes]

    (mean, same), (total, _), (_, careful), (_, smoothed), (_, discounted) = variants()
    # Four online fractions: summing over them is four times the mean.
    np.testing.assert_allclose(total, 4.0 * mean, rtol=1e-5)
    assert jnp.all(careful[REWARD] <= same[REWARD] + 1e-6) and jnp.all(careful[COST] >= same[COST] - 1e-6)
    assert moved(careful, same) and moved(smoothed, same)
    # What follows counts half and a tenth of what it did; the signals themselves are not discounted.
    signals = work.signals.T[:, :, None]
    shares = jnp.array([0.5, 0.1])[:, None, None]
    np.testing.assert_allclose(discounted - signals, shares * (same - signals), atol=1e-5)


def test_two_queries_in_one_pass_are_answered_like_each_alone():
    state, (work, latents, _) = start(), pieces()
    taken = objectives.taken_query(CONFIG.objective, work, latents)
    few = objectives.Query(taken.observation[:3], taken.action[:3], taken.condition[:3], taken.fractions[:, :3])

    @jit
    def answers(critics):
        together = objectives.ask(CONFIG.objective, critics, taken, few)
        return together, objectives.ask(CONFIG.objective, critics, taken) + objectives.ask(
            CONFIG.objective, critics, few
        )

    together, alone = answers(state.params["critics"])
    assert together[1].shape == (2, 2, 3, 4)
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
