"""The loop: one program, the same numbers from the same key, and no learning before there is something to learn."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.compilation import jit
from tests.toy_world import Cart, CartConfig

from ashore.learning import train
from ashore.learning.collect import CollectConfig
from ashore.learning.train_config import TrainConfig
from ashore.networks.architecture import Sizes

TASK = Cart(CartConfig(decisions=10))
RECIPE = train.paper_recipe(TASK)
CONFIG = TrainConfig(
    worlds=8,
    decisions=12,
    updates_per_decision=2,
    learning_starts=4,
    chunk=3,
    sizes=Sizes(critic_width=16, fractions=4, hidden=(16,), critic_blocks=1, context=16),
    capacity=32,
    batch_tasks=4,
    batch_transitions=4,
    collect=CollectConfig(random_decisions=2),
)


@pytest.fixture(scope="session")
def chunk():
    traces = []

    def one_chunk(state):
        traces.append(None)
        return train.train_chunk(TASK, CONFIG, state)

    return jit(one_chunk), traces


@jit
def start(key):
    return train.start(TASK, CONFIG, key)


def run(chunk, seed: int, chunks: int):
    state = start(jax.random.key(seed))
    rows = []
    for _ in range(chunks):
        state, metrics = chunk(state)
        rows.append(jax.device_get(metrics))
    return state, rows


def test_the_step_is_traced_once_and_counts_in_integers(chunk):
    compiled, traces = chunk
    state, rows = run(compiled, seed=0, chunks=7)
    assert len(traces) == 1
    assert int(state.collector.decisions) == 21 and state.collector.decisions.dtype == jnp.int32
    # Updates run after each of the decisions 4..21: eighteen decisions of two updates each.
    assert int(state.learner.updates) == 36 and state.learner.updates.dtype == jnp.int32
    # Worlds start in the middle of an episode of ten decisions, and only whole episodes are reported.
    assert rows[2]["episodes"] == 0 and np.isnan(rows[2]["episode_return"])
    ended = [row for row in rows if row["episodes"] > 0]
    assert ended and all(np.isfinite(value) for row in ended for value in row.values())


def test_nothing_is_learnt_before_learning_starts(chunk):
    compiled, _ = chunk
    first = start(jax.random.key(0))
    second, _ = compiled(first)
    third, _ = compiled(second)
    assert not any(_changed(first.learner.params, second.learner.params))
    assert np.mean(_changed(second.learner.params, third.learner.params)) > 0.8


def test_the_same_key_gives_the_same_run_and_another_one_another(chunk):
    compiled, _ = chunk
    (one, _), (again, _), (other, _) = run(compiled, 5, 3), run(compiled, 5, 3), run(compiled, 6, 3)
    same = [np.array_equal(a, b) for a, b in zip(_numbers(one), _numbers(again), strict=True)]
    assert all(same)
    assert not np.allclose(one.parameters.mass, other.parameters.mass)


def test_seeds_in_one_program_are_the_seeds_alone(chunk):
    compiled, _ = chunk
    alone = [run(compiled, seed, 2)[0] for seed in (0, 1)]
    starts = [start(jax.random.key(seed)) for seed in (0, 1)]
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)
    batched = jit(jax.vmap(lambda state: train.train_chunk(TASK, CONFIG, state)))
    for _ in range(2):
        together, _ = batched(together)
    for seed, single in enumerate(alone):
        ours = jax.tree.map(lambda part, seed=seed: part[seed], together.learner.params)
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(single.learner.params), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-4)  # sums are taken in another order


def test_the_replay_remembers_what_the_worlds_did(chunk):
    compiled, _ = chunk
    state, _ = run(compiled, seed=0, chunks=4)
    assert int(state.replay.cursor) == 12
    np.testing.assert_array_equal(state.replay.valid_count, np.full(CONFIG.worlds, 12))
    # In this world speed changes by (1 + thrust) u / mass * period: the stored change knows the physics.
    stored = state.replay.experience
    expected = 0.1 * (1 + state.parameters.thrust) / state.parameters.mass
    np.testing.assert_allclose(stored.change[:, :12, 0], stored.action[:, :12, 0] * expected[:, None], atol=1e-5)
    # Where an episode ended the next decision starts elsewhere, and only there.
    goes_on = np.all(np.asarray(stored.next_observation[:, :11] == stored.observation[:, 1:12]), axis=-1)
    np.testing.assert_array_equal(stored.ended[:, :11], ~goes_on)
    assert 0 < np.sum(~goes_on) < goes_on.size
    assert not np.any(stored.terminated)


def test_the_multiplier_rises_while_the_policy_costs_too_much():
    costly = replace(CONFIG, learning_starts=2, collect=CollectConfig(random_decisions=2, cost_memory=1))
    state = start(jax.random.key(0))
    state = state._replace(
        collector=state.collector._replace(
            worlds=state.collector.worlds._replace(
                state=state.collector.worlds.state._replace(speed=jnp.full(CONFIG.worlds, 5.0))
            )
        )
    )
    act = jit(lambda state: train._act(TASK, costly, state, RECIPE))
    _, metrics = act(state._replace(collector=state.collector._replace(decisions=jnp.int32(1))))
    assert float(metrics["multiplier"]) > 0.0
    assert float(metrics["cost_rate"]) > TASK.description.budget.per_episode
    # Before learning starts nothing moves it.
    _, waiting = act(state)
    assert float(waiting["multiplier"]) == 0.0


def _changed(before, after) -> list[bool]:
    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    return [bool(np.any(np.asarray(old) != np.asarray(new))) for old, new in pairs]


def _numbers(state):
    """Every leaf as numbers, keys included."""
    leaves = jax.tree.leaves(state)
    return [jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf for leaf in leaves]


def test_worlds_that_explore_lie_beyond_the_ranges_and_quiet_ones_do_not():
    config = replace(CONFIG, worlds=256, beyond=3.0)
    mass = np.asarray(train.start(TASK, config, jax.random.key(0)).parameters.mass)
    quiet = 64
    assert np.all((mass[:quiet] >= 0.5) & (mass[:quiet] <= 2.0))
    # Three times as wide is [-1, 3.5], and no scale falls below a third of 0.5.
    assert mass.min() >= 0.5 / 3 and mass.max() <= 3.5
    assert np.sum(mass[quiet:] > 2.0) > 20
    stay = np.asarray(train.start(TASK, replace(config, beyond=1.0), jax.random.key(0)).parameters.mass)
    assert stay.min() >= 0.5 and stay.max() <= 2.0
    np.testing.assert_array_equal(stay[:quiet], mass[:quiet])


@pytest.mark.parametrize("beyond", [0.5, float("inf"), float("nan")])
def test_ranges_are_not_narrowed(beyond):
    with pytest.raises(ValueError, match="beyond must be a number from 1 on"):
        replace(CONFIG, beyond=beyond)
