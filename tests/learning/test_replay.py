"""The rings: what goes in, what may come out, and how much room it takes."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.compilation import jit

from ashore.learning import replay
from ashore.learning.replay import ReplayConfig
from ashore.types import Transition, Unearned

CONFIG = ReplayConfig(
    tasks=4,
    observation=3,
    action=1,
    features=(0, 2),
    capacity=8,
    batch_tasks=4,
    batch_transitions=16,
    context=6,
    window=5,
)
add = jit(replay.add, static_argnums=0)


def marked(config, tasks):
    return jnp.isin(jnp.arange(config.tasks), jnp.array(tasks, jnp.int32))


def step(config, time, broken=(), truncated=(), terminated=()):
    """Decision number `time` of every task, recognisable by its reward 100 * task + time."""
    tasks = jnp.arange(config.tasks, dtype=jnp.float32)
    stamp = 100.0 * tasks + time
    observation = jnp.stack([stamp + 0.25 * i for i in range(config.observation)], axis=1)
    flags = [marked(config, tasks) for tasks in (terminated, truncated, broken)]
    return Transition(observation, jnp.full((config.tasks, 1), 0.5), stamp, 2.0 * stamp, observation + 0.5, *flags)


def filled(config, times, broken=None, truncated=None, terminated=None):
    """Rings after these decisions; the others say in which tasks which decision diverged or ended an episode."""
    state = replay.init(config)
    for time in times:
        transition = step(config, time, *((where or {}).get(time, ()) for where in (broken, truncated, terminated)))
        state = add(config, state, transition, ~transition.diverged, transition.cost if config.penalised else None)
    return state


@functools.partial(jit, static_argnums=0)
def hundred_draws(config, state, key):
    return jax.vmap(lambda key: replay.sample(config, state, key))(jax.random.split(key, 100))


def test_everything_of_a_decision_comes_back_together():
    batch, *_ = hundred_draws(CONFIG, filled(CONFIG, range(3)), jax.random.key(0))
    assert batch.reward.shape == (100, 4, 16) and batch.observation.shape == (100, 4, 16, 3)
    np.testing.assert_array_equal(batch.cost, 2.0 * batch.reward)
    np.testing.assert_array_equal(batch.observation[..., 1], batch.reward + 0.25)
    np.testing.assert_array_equal(batch.next_observation, batch.observation + 0.5)
    np.testing.assert_array_equal(batch.change, np.full((100, 4, 16, 2), 0.5))
    # Each row of a batch is one task.
    np.testing.assert_array_equal(np.ptp(np.asarray(batch.reward) // 100, axis=2), np.zeros((100, 4)))


def test_ring_keeps_the_newest_decisions():
    # Thirteen decisions into rings of eight: 5..12 are left, the cursor stands at 13 mod 8 = 5.
    state = filled(CONFIG, range(13))
    assert state.cursor.dtype == jnp.int32
    assert state.cursor == 5
    np.testing.assert_array_equal(state.valid_count, [8, 8, 8, 8])
    batch, *_ = hundred_draws(CONFIG, state, jax.random.key(0))
    assert set((np.asarray(batch.reward) % 100).astype(int).ravel()) == set(range(5, 13))


def test_partly_filled_ring_gives_only_what_was_written():
    batch, *_ = hundred_draws(CONFIG, filled(CONFIG, range(2)), jax.random.key(0))
    assert set((np.asarray(batch.reward) % 100).astype(int).ravel()) == {0, 1}


def test_diverged_decisions_are_never_drawn():
    broken = {3: (0, 2), 4: (2,), 9: (0,)}
    state = filled(CONFIG, range(10), broken)
    # Rings hold decisions 2..9. Task 0 lost 3 and 9, task 2 lost 3 and 4.
    np.testing.assert_array_equal(state.valid_count, [6, 8, 6, 8])
    batch, _, context = hundred_draws(CONFIG, state, jax.random.key(0))
    drawn = set(np.asarray(batch.reward).astype(int).ravel())
    assert drawn.isdisjoint({3, 9, 203, 204})
    assert drawn == {100 * task + time for task in range(4) for time in range(2, 10)} - {3, 9, 203, 204}
    seen = np.asarray(context.reward)[np.asarray(context.mask)].astype(int)
    assert set(seen).isdisjoint({3, 9, 203, 204})


def test_task_without_a_valid_decision_is_never_drawn():
    state = filled(CONFIG, range(3), dict.fromkeys(range(3), (1,)))
    batch, *_ = hundred_draws(CONFIG, state, jax.random.key(0))
    assert set((np.asarray(batch.reward) // 100).astype(int).ravel()) == {0, 2, 3}


def test_valid_count_recovers_when_a_bad_entry_is_overwritten():
    state = filled(CONFIG, range(17), {8: (1,)})
    np.testing.assert_array_equal(state.valid_count, [8, 8, 8, 8])
    np.testing.assert_array_equal(state.valid_count, jnp.sum(state.valid.astype(jnp.int32), axis=1))


def test_numbers_that_are_not_finite_are_refused_even_when_called_valid():
    state = replay.init(CONFIG)
    good = step(CONFIG, 1)
    bad = good._replace(
        reward=good.reward.at[0].set(jnp.nan), next_observation=good.next_observation.at[3, 1].set(jnp.inf)
    )
    state = add(CONFIG, state, bad, jnp.ones(4, jnp.bool))
    np.testing.assert_array_equal(state.valid[:, 0], [False, True, True, False])
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(state.experience))


def test_draws_are_uniform_over_valid_entries():
    state = filled(CONFIG, range(8), {2: (0, 1, 2, 3)})
    batch, *_ = hundred_draws(CONFIG, state, jax.random.key(0))
    times, counts = np.unique((np.asarray(batch.reward) % 100).astype(int), return_counts=True)
    assert list(times) == [0, 1, 3, 4, 5, 6, 7]
    # 6400 draws, 914 expected each, standard deviation 28.
    assert np.all(np.abs(counts - 6400 / 7) < 5 * 28)


def test_tasks_of_a_batch_are_distinct_and_equally_likely():
    config = dataclasses.replace(CONFIG, tasks=7, batch_tasks=3)
    state = filled(config, range(2))
    keys = jax.random.split(jax.random.key(1), 3000)
    tasks = np.asarray(jit(jax.vmap(lambda key: replay.choose_tasks(state, key, 3)))(keys))
    assert all(len(set(row)) == 3 for row in tasks)
    # 9000 draws over seven tasks: 1286 each, standard deviation below 35.
    assert np.all(np.abs(np.bincount(tasks.ravel(), minlength=7) - 9000 / 7) < 5 * 35)


THREE = dataclasses.replace(CONFIG, steps=3, batch_transitions=100)


@functools.partial(jit, static_argnums=0)
def transitions_of_all(config, state, key):
    return replay.sample_transitions(config, state, key, jnp.arange(config.tasks, dtype=jnp.int32))


def follow(config, state):
    """For each decision (task, time): times of the decisions followed, the time observed after, whether it ended."""
    drawn = transitions_of_all(config, state, jax.random.key(0))
    batch, ahead = jax.tree.map(lambda field: np.asarray(field).reshape(-1, *field.shape[2:]), drawn)
    np.testing.assert_array_equal(ahead.cost, 2.0 * ahead.reward)
    np.testing.assert_array_equal(ahead.observation[:, 1], ahead.observation[:, 0] + 0.25)
    found = {}
    for place, stamp in enumerate(batch.reward.astype(int)):
        task, steps = stamp // 100, ahead.steps[place]
        assert not np.any(ahead.reward[place, steps:])
        times = (ahead.reward[place, :steps] - 100 * task).astype(int)
        # What is observed after decision t is its own observation plus a half.
        after = ahead.observation[place, 0] - 0.5 - 100 * task
        way = (*times.tolist(), int(after), bool(ahead.terminated[place]))
        assert found.setdefault((task, stamp % 100), way) == way
    return found


def test_decisions_are_followed_to_the_newest_one():
    found = follow(THREE, filled(CONFIG, range(1, 6)))
    for task in range(4):
        # Of five decisions the first three have two more after them, the fourth one, the newest none.
        assert found[task, 1] == (1, 2, 3, 3, False) and found[task, 3] == (3, 4, 5, 5, False)
        assert found[task, 4] == (4, 5, 5, False)
        assert found[task, 5] == (5, 5, False)


def test_decisions_are_followed_round_the_ring_and_not_past_the_newest():
    # Thirteen decisions in rings of eight: 5..12, and 8 lies where the ring begins again. Behind 12 lies 5, the oldest.
    found = follow(THREE, filled(CONFIG, range(13)))
    assert {time for _, time in found} == set(range(5, 13))
    for task in range(4):
        assert found[task, 5] == (5, 6, 7, 7, False) and found[task, 7] == (7, 8, 9, 9, False)
        assert found[task, 11] == (11, 12, 12, False)
        assert found[task, 12] == (12, 12, False)


def test_decisions_are_not_followed_into_another_episode():
    # Decision 3 is the last of an episode: of its time in task 1, of the task itself in task 2; task 3 goes on.
    found = follow(THREE, filled(CONFIG, range(1, 7), truncated={3: (1,)}, terminated={3: (2,)}))
    for task, ended in ((1, False), (2, True)):
        assert found[task, 1] == (1, 2, 3, 3, ended)
        assert found[task, 2] == (2, 3, 3, ended)
        assert found[task, 3] == (3, 3, ended)
        assert found[task, 4] == (4, 5, 6, 6, False)
    assert found[3, 2] == (2, 3, 4, 4, False)
    # An end that is not reached is none.
    found = follow(THREE, filled(CONFIG, range(1, 7), terminated={4: (2,)}))
    assert found[2, 1] == (1, 2, 3, 3, False) and found[2, 2] == (2, 3, 4, 4, True)


def test_decisions_are_not_followed_into_or_past_one_that_diverged():
    found = follow(THREE, filled(CONFIG, range(1, 8), broken={4: (0,)}))
    assert found[0, 1] == (1, 2, 3, 3, False)
    assert found[0, 2] == (2, 3, 3, False) and found[0, 3] == (3, 3, False)
    assert found[0, 5] == (5, 6, 7, 7, False)
    # The other tasks did not.
    assert found[1, 2] == (2, 3, 4, 4, False)


def test_following_is_what_a_reader_of_the_diary_would_do():
    # Any mixture of ends and divergence, and as many steps as there are places: once round the ring and no further.
    config = dataclasses.replace(THREE, steps=8)
    generator = np.random.default_rng(0)
    flags = generator.uniform(size=(3, 29, 4)) < 0.1
    broken, truncated, terminated = (
        {time: tuple(np.flatnonzero(row)) for time, row in enumerate(flag)} for flag in flags
    )
    found = follow(config, filled(CONFIG, range(29), broken, truncated, terminated))
    lengths = set()
    for task in range(4):
        for time in range(21, 29):
            if flags[0, time, task]:
                assert (task, time) not in found
                continue
            way, ended = [time], flags[1:, time, task].any()
            while not ended and way[-1] < 28 and not flags[0, way[-1] + 1, task]:
                way.append(way[-1] + 1)
                ended = flags[1:, way[-1], task].any()
            assert found[task, time] == (*way, way[-1], bool(flags[2, way[-1], task])), (task, time)
            lengths.add(len(way))
    assert len(lengths) > 4


def test_one_step_is_the_decision_itself_and_more_steps_draw_the_same_ones():
    rings = filled(CONFIG, range(1, 12), broken={7: (0,)}, truncated={8: (1,)}, terminated={9: (2,)})
    batch, ahead = transitions_of_all(dataclasses.replace(THREE, steps=1), rings, jax.random.key(0))
    for following, own in ((ahead.reward, batch.reward), (ahead.cost, batch.cost)):
        np.testing.assert_array_equal(following, own[..., None])
    np.testing.assert_array_equal(ahead.steps, np.ones((4, 100)))
    assert ahead.steps.dtype == jnp.int32 and ahead.penalty is None
    np.testing.assert_array_equal(ahead.observation, batch.next_observation)
    np.testing.assert_array_equal(ahead.terminated, batch.terminated)
    more, _ = transitions_of_all(THREE, rings, jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, batch, more)


def test_penalties_are_followed_like_costs():
    # Penalties in these rings are the costs.
    config = dataclasses.replace(THREE, penalised=True)
    rings = filled(config, range(1, 8), truncated={4: (1, 3)})
    _, ahead = transitions_of_all(config, rings, jax.random.key(0))
    assert ahead.penalty is not None and ahead.penalty.shape == (4, 100, 3)
    np.testing.assert_array_equal(ahead.penalty, ahead.cost)
    assert set(np.asarray(ahead.steps).ravel()) == {1, 2, 3}


@pytest.mark.parametrize("contiguous", [0.0, 1.0])
def test_contexts_are_recent_distinct_and_of_the_task_of_their_row(contiguous):
    config = dataclasses.replace(CONFIG, contiguous=contiguous)
    state = filled(config, range(11))
    batch, _, context = hundred_draws(config, state, jax.random.key(0))
    masks, rewards = np.asarray(context.mask), np.asarray(context.reward)
    owners = np.asarray(batch.reward)[..., 0] // 100
    for draw in range(100):
        for row in range(4):
            seen = rewards[draw, row][masks[draw, row]]
            assert np.all(seen // 100 == owners[draw, row])
            # Window 5 after decision 10: 6..10, each at most once.
            assert set(seen % 100) <= {6, 7, 8, 9, 10} and len(set(seen)) == len(seen)
            if contiguous and len(seen) > 1:
                # Newest first, and at most one seam where the window wraps round.
                assert np.sum(np.diff(seen) != -1) <= 1
    assert not np.any(rewards[~masks])
    # Most decisions of the window are seen at some time: 5 of 5.
    assert set((rewards[masks] % 100).astype(int)) == {6, 7, 8, 9, 10}


def test_context_fields_match_what_was_stored():
    *_, context = hundred_draws(CONFIG, filled(CONFIG, range(6)), jax.random.key(2))
    mask = np.asarray(context.mask)
    stamp = np.asarray(context.reward)[mask]
    np.testing.assert_array_equal(np.asarray(context.feature_values)[mask], np.stack([stamp, stamp + 0.5], axis=1))
    np.testing.assert_array_equal(np.asarray(context.change)[mask], np.full((len(stamp), 2), 0.5))
    np.testing.assert_array_equal(np.asarray(context.cost)[mask], 2.0 * stamp)


# P(N <= n) of n in 0, 8, 64. ln(n + 2) / ln(130) if N + 1 is log-uniform in 1..129, else (n + 1) / 129.
@pytest.mark.parametrize(
    ("kind", "expected"), [("log-uniform", (0.142, 0.473, 0.861)), ("uniform", (0.008, 0.070, 0.504))]
)
def test_context_sizes_are_drawn_from_none_to_all(kind, expected):
    config = ReplayConfig(4, 1, 1, (0,), capacity=256, batch_tasks=4, batch_transitions=1, context=128, window=256)
    config = dataclasses.replace(config, context_sizes=kind)
    state = replay.init(config)._replace(valid=jnp.ones((4, 256), jnp.bool), valid_count=jnp.full(4, 256, jnp.int32))
    draws = [hundred_draws(config, state, jax.random.key(seed))[2].mask for seed in range(10)]
    sizes = np.asarray(draws).sum(axis=-1).ravel()
    # None of 4000 uniform draws misses 128 once in 10^13 trials; of the log-uniform ones few are so large.
    assert sizes.min() == 0 and 120 < sizes.max() <= 128 and (kind != "uniform" or sizes.max() == 128)
    # 4000 draws: the deviation of a share is below 0.008.
    for n, share in zip((0, 8, 64), expected, strict=True):
        assert np.mean(sizes <= n) == pytest.approx(share, abs=0.03)


def test_bytes_are_known_before_allocation_and_a_limit_is_kept():
    state = replay.init(CONFIG)
    assert replay.bytes_needed(CONFIG) == sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    # 4 tasks * 8 * (two observations of 3, action, reward, cost, 2 changes: 11 floats; three flags), 4 counts, cursor.
    assert replay.bytes_needed(CONFIG) == 4 * 8 * (11 * 4 + 3) + 4 * 4 + 4
    large = ReplayConfig(tasks=2048, observation=60, action=2, features=tuple(range(6)), capacity=1024)
    # 2048 * 1024 * (130 * 4 + 3) bytes: about one GiB; 2048 * 1024 * (120 * 2 + 10 * 4 + 3) with bfloat16 observations.
    assert replay.bytes_needed(large) / 2**30 == pytest.approx(1.02, abs=0.01)
    halved = dataclasses.replace(large, storage_dtype="bfloat16")
    assert replay.bytes_needed(halved) / 2**30 == pytest.approx(0.55, abs=0.01)
    with pytest.raises(MemoryError, match=r"2048 tasks x 1024 decisions needs 1.02 GiB, and 0.50 GiB are allowed"):
        replay.init(large, limit_bytes=2**29)


def test_bfloat16_storage_keeps_changes_exact():
    # In bfloat16 both 100 and 100.125 are 100: the difference of what is stored would be zero.
    config = dataclasses.replace(CONFIG, storage_dtype="bfloat16")
    no = jnp.zeros(4, jnp.bool)
    before = jnp.full((4, 3), 100.0)
    transition = Transition(before, jnp.zeros((4, 1)), jnp.zeros(4), jnp.zeros(4), before + 0.125, no, no, no)
    state = add(config, replay.init(config), transition, ~no)
    batch, ahead = transitions_of_all(config, state, jax.random.key(0))
    assert batch.observation.dtype == ahead.observation.dtype == jnp.float32
    np.testing.assert_array_equal(batch.next_observation, batch.observation)
    np.testing.assert_array_equal(batch.change, np.full((4, 16, 2), 0.125))


def test_nothing_waits_for_the_host():
    state = filled(CONFIG, range(6))
    transition, key = step(CONFIG, 6), jax.random.key(3)
    valid = ~transition.diverged
    expected, *_ = hundred_draws(CONFIG, add(CONFIG, state, transition, valid), key)
    with jax.transfer_guard("disallow"):
        guarded, *_ = hundred_draws(CONFIG, add(CONFIG, state, transition, valid), key)
    np.testing.assert_array_equal(guarded.observation, expected.observation)


def test_impossible_rings_are_refused():
    with pytest.raises(ValueError, match="does not fit a ring"):
        dataclasses.replace(CONFIG, window=9)
    for steps in (0, 9):
        with pytest.raises(ValueError, match=f"Targets over {steps} decisions do not fit"):
            dataclasses.replace(CONFIG, steps=steps)
    with pytest.raises(ValueError, match="float32 or bfloat16"):
        dataclasses.replace(CONFIG, storage_dtype="float16")


def test_unearned_reward_by_hand():
    # What follows a decision is seen as 100 * task + time + 0.75 at place 1; above 102 it counts as 102.
    config = dataclasses.replace(THREE, unearned=Unearned(place=1, highest=102.0, weight=0.5))
    rings = filled(config, range(4))
    batch, ahead = transitions_of_all(config, rings, jax.random.key(0))
    place = np.argwhere(np.asarray(batch.reward) == 1.0)[0]
    np.testing.assert_allclose(ahead.unearned[tuple(place)], [0.5 * 1.75**2, 0.5 * 2.75**2, 0.5 * 3.75**2])
    later = np.argwhere(np.asarray(batch.reward) == 103.0)[0]
    np.testing.assert_allclose(ahead.unearned[tuple(later)], [0.5 * 102.0**2, 0.0, 0.0])
    assert transitions_of_all(THREE, rings, jax.random.key(0))[1].unearned is None
