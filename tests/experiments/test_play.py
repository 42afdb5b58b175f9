import numpy as np
import pytest

from ashore.environments import tasks
from ashore.experiments.play import PlayConfig, film, play
from toy_world import CARTS, CartConfig, CartCWorld, CartParameters


@pytest.fixture(autouse=True)
def cart(monkeypatch):
    monkeypatch.setitem(tasks.TASKS, "Cart", CARTS)


def _episode(world, controller):
    pictures, generator = [], film(world, controller, np.random.default_rng(0))
    while True:
        try:
            pictures.append(next(generator))
        except StopIteration as end:
            return pictures, end.value


def test_every_moment_is_filmed_and_every_decision_is_counted():
    pictures, episode = _episode(CartCWorld(CartConfig(), CartParameters(1.0, 0.0)), lambda observation: np.zeros(1))
    assert len(pictures) == 21
    np.testing.assert_array_equal(episode.rewards, np.zeros(20))
    assert episode.metrics == {"distance": 0.0}
    assert not episode.diverged


def test_an_episode_that_ends_early_stops_there():
    world = CartCWorld(CartConfig(decisions=1000), CartParameters(1.0, 0.0))
    _, episode = _episode(world, lambda observation: np.ones(1))
    # x_n = x_0 + 0.005 n (n + 1) passes 10 between n = 40 (8.2 + 1 at most) and n = 47 (11.3 - 1 at least).
    assert 40 < len(episode.rewards) <= 47
    assert episode.costs[-1] == 2.0


def test_a_world_that_diverges_ends_its_episode_at_the_highest_cost():
    world = CartCWorld(CartConfig(), CartParameters(float("nan"), 0.0))
    pictures, episode = _episode(world, lambda observation: np.ones(1))
    assert len(pictures) == 1
    assert episode.diverged
    np.testing.assert_array_equal(episode.costs, [2.0])


def test_actions_outside_the_range_are_clipped():
    gentle, wild = (
        _episode(CartCWorld(CartConfig(), CartParameters(1.0, 0.0)), lambda observation, push=push: np.full(1, push))[1]
        for push in (1.0, 50.0)
    )
    np.testing.assert_array_equal(gentle.rewards, wild.rewards)


def test_a_shift_draws_new_physics_for_every_episode(tmp_path):
    played = play(PlayConfig("Cart", shift="train", episodes=3, out=tmp_path))
    assert len({episode.metrics["distance"] for episode in played.episodes}) == 3
    again = play(PlayConfig("Cart", shift="train", episodes=3, out=tmp_path))
    for first, second in zip(played.episodes, again.episodes, strict=True):
        np.testing.assert_array_equal(first.rewards, second.rewards)
