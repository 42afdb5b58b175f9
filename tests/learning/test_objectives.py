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
    alone,
    jit,
    largest,
    moved,
    pieces,
    prepared,
    start,
)

from ashore.learning import objectives, replay
from ashore.learning.replay import ReplayConfig
from ashore.networks.critic import COST, REWARD
from ashore.types import Transition


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
        work = objectives.prepare(objective, jax.random.key(0), NORMALISERS, batch, alone(batch), CONTEXT)
        latents = jnp.zeros((TASKS * PER_TASK, 3))
        return objectives.td_targets(objective, actor, state.targets, work, latents)

    targets = targets_of(ended, state.params["actor"])
    assert targets.shape == (2, TASKS * PER_TASK, 4)
    np.testing.assert_allclose(targets[REWARD], np.repeat(10.0 * BATCH.reward.reshape(-1, 1), 4, axis=1), rtol=1e-6)
    np.testing.assert_allclose(targets[COST], np.repeat(BATCH.cost.reshape(-1, 1), 4, axis=1), rtol=1e-6)
    going = BATCH._replace(terminated=jnp.zeros((TASKS, PER_TASK), jnp.bool))
    other_actor = jax.tree.map(lambda leaf: leaf + 0.5, state.params["actor"])
    assert moved(targets_of(going, state.params["actor"]), targets_of(going, other_actor))


def test_signals_and_discounts_of_three_steps_by_hand():
    halves = dataclasses.replace(
        CONFIG.objective, discount_reward=0.5, discount_cost=0.1, reward_scale=10.0, reward_floor=-1.0
    )
    steps = jnp.arange(TASKS * PER_TASK, dtype=jnp.int32).reshape(TASKS, PER_TASK) % 3 + 1
    followed = jnp.arange(3)[None, None] < steps[..., None]

    def along(*values):
        return jnp.where(followed, jnp.array(values)[None, None], 0.0)

    one = alone(BATCH)
    ahead = one._replace(
        reward=along(1.0, -5.0, 3.0),
        cost=along(1.0, 2.0, 3.0),
        penalty=along(0.5, 0.25, 0.125),
        steps=steps,
        observation=BATCH.next_observation + 1.0,
        terminated=jnp.zeros((TASKS, PER_TASK), jnp.bool).at[0].set(True),
    )

    @jit
    def works():
        return [objectives.prepare(halves, jax.random.key(0), NORMALISERS, BATCH, x, CONTEXT) for x in (ahead, one)]

    work, plain = works()
    # Each reward has its floor, -5 counts as -1: 10; 10 (1 - 1/2) = 5; 10 (1 - 1/2 + 3/4) = 12.5.
    np.testing.assert_allclose(work.signals[:, REWARD], np.tile([10.0, 5.0, 12.5], 5), rtol=1e-6)
    # Each cost has its penalty: 1.5; 1.5 + 2.25 / 10 = 1.725; 1.725 + 3.125 / 100 = 1.75625.
    np.testing.assert_allclose(work.signals[:, COST], np.tile([1.5, 1.725, 1.75625], 5), rtol=1e-6)
    # gamma^k after k steps; the five transitions of the first task ended it.
    going = np.repeat([0.0, 1.0, 1.0], PER_TASK)
    np.testing.assert_allclose(work.discounts[:, REWARD], going * np.tile([0.5, 0.25, 0.125], 5), rtol=1e-6)
    np.testing.assert_allclose(work.discounts[:, COST], going * np.tile([0.1, 0.01, 0.001], 5), rtol=1e-6)
    # The critics are asked where the last step led; what the world does in one step is predicted as before.
    np.testing.assert_allclose(work.next_observation, plain.next_observation + 1.0, atol=1e-5)
    np.testing.assert_array_equal(work.observation, plain.observation)
    np.testing.assert_array_equal(work.dynamics_target, plain.dynamics_target)


def test_one_step_is_the_papers_target():
    work, _, _ = pieces()
    np.testing.assert_array_equal(work.signals, np.stack([BATCH.reward.ravel(), BATCH.cost.ravel()], axis=1))
    expected = np.where(BATCH.terminated.ravel(), np.float32(0.0), np.float32(0.99))
    np.testing.assert_allclose(work.discounts, np.stack([expected, expected], axis=1), rtol=1e-6)
    assert 0 < np.sum(expected == 0.0) < len(expected)
    np.testing.assert_array_equal(work.next_observation, BATCH.next_observation.reshape(-1, 4))


def test_bootstrap_by_hand():
    work, _, _ = pieces()
    signals = jnp.stack([jnp.arange(15.0), 100.0 * jnp.arange(15.0)], axis=1)
    discounts = jnp.stack([jnp.full(15, 0.5), jnp.full(15, 0.1)], axis=1).at[0].set(0.0)
    values = jnp.stack([jnp.full((15, 2), 8.0), jnp.tile(jnp.array([[10.0, 20.0]]), (15, 1))])
    targets = objectives.bootstrap(values, work._replace(signals=signals, discounts=discounts))
    # Transition 0 has ended; 1: 1 + 8 / 2 = 5 and 100 + (10, 20) / 10 = 101, 102; 2: 2 + 4 = 6 and 201, 202.
    np.testing.assert_allclose(targets[:, 0], [[0.0, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(targets[:, 1], [[5.0, 5.0], [101.0, 102.0]])
    np.testing.assert_allclose(targets[:, 2], [[6.0, 6.0], [201.0, 202.0]])


GAMMA, LAST = 0.9, 7
RINGS = ReplayConfig(TASKS, 4, 2, (0, 3), capacity=32, window=32, batch_transitions=100)


def reward_to_come(task, place):
    """Of a walk 1, 2, 3, ... that pays its place: it goes on for ever, but in task 1 it ends after place 7."""
    for_ever = place / (1.0 - GAMMA) + GAMMA / (1.0 - GAMMA) ** 2
    return sum(GAMMA ** (later - place) * later for later in range(place, LAST + 1)) if task == 1 else for_ever


def walks():
    """Forty decisions of every walk: cut after a few, broken off now and then, started again anywhere."""
    generator, places = np.random.default_rng(0), np.ones(TASKS, int)
    rings, write = replay.init(RINGS), jit(replay.add, static_argnums=0)
    for _ in range(40):
        terminated = (np.arange(TASKS) == 1) & (places == LAST)
        truncated, diverged = ((generator.uniform(size=TASKS) < share) & ~terminated for share in (0.2, 0.1))
        here = jnp.tile(jnp.asarray(places, jnp.float32)[:, None], 4)
        flags = [jnp.asarray(flag) for flag in (terminated, truncated, diverged)]
        step = Transition(here, here[:, :2], here[:, 0], here[:, 0], here + 1.0, *flags)
        rings = write(RINGS, rings, step, ~step.diverged)
        starts = generator.integers(1, LAST + 1, TASKS)
        places = np.where(terminated | truncated | diverged, starts, places + 1)
    return rings


def test_targets_made_with_the_true_value_are_the_true_value():
    # However many steps are summed, and wherever they stop: r + gamma r' + ... + gamma^k Q(s_k) = Q(s).
    objective = dataclasses.replace(CONFIG.objective, discount_reward=GAMMA, discount_cost=GAMMA)

    @jit
    def draw(rings):
        found = []
        for steps in (1, 3, RINGS.capacity):
            config = dataclasses.replace(RINGS, steps=steps)
            batch, ahead = replay.sample_transitions(config, rings, jax.random.key(0), jnp.arange(TASKS))
            work = objectives.prepare(objective, jax.random.key(0), NORMALISERS, batch, ahead, CONTEXT)
            found.append((batch.observation, ahead.observation, work))
        return found

    for here, there, work in draw(walks()):
        value_here, value_there = (
            np.array([reward_to_come(task, int(place)) for task in range(TASKS) for place in observation[task, :, 0]])
            for observation in (np.asarray(here), np.asarray(there))
        )
        values = jnp.asarray(np.tile(value_there[:, None], (2, 1, 1)), jnp.float32)
        targets = objectives.bootstrap(values, work)
        np.testing.assert_allclose(targets, np.tile(value_here[:, None], (2, 1, 1)), rtol=1e-5)
    # The last of them went as far as the walks did.
    assert float(jnp.min(work.discounts[work.discounts > 0.0])) < GAMMA**5


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
        work = prepared(state, dataclasses.replace(CONFIG, objective=config))
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
