"""The film of a world: who acts and what it spends is written above, and the end of an episode is always shown."""

import numpy as np
import pytest

from ashore.environments.gymnasium_adapter import AshoreEnv
from ashore.experiments import demo_film, deployment
from ashore.experiments.demo_drive import World
from ashore.experiments.demo_film import Take, film
from ashore.experiments.scripted_pilot import ScriptedPilot
from experiments import cart_run

WORLD = World(0, {}, (7,))
RED = np.array([190, 30, 30])


@pytest.fixture
def filmed(monkeypatch):
    """Pictures instead of a file."""
    cart_run.register(monkeypatch)
    pictures = []
    monkeypatch.setattr(demo_film, "write_video", lambda path, shown, speed: pictures.extend(shown) or path)
    return pictures


def _take(push, title="somebody", identifies=False):
    env = AshoreEnv("Cart")
    pilot = ScriptedPilot(lambda observation: np.array([push], np.float32), env.description)
    return Take(title, list(deployment.moments(pilot, env, 2, WORLD.scenes[0])), identifies)


def test_the_first_episode_is_filmed_to_its_last_decision(filmed, tmp_path):
    film(tmp_path / "v.mp4", "Cart", WORLD, [_take(1.0)], 2.0, every=6)
    # Decisions 0, 6, 12, 18 of an episode of 20, and 19, its last one. Words take 76 pixels above 16 x 320.
    assert len(filmed) == 5 and {picture.shape for picture in filmed} == {(92, 320, 3)}


def test_the_bar_is_red_once_the_budget_is_spent_and_not_before(filmed, tmp_path):
    film(tmp_path / "v.mp4", "Cart", WORLD, [_take(1.0)], 2.0, every=1)
    red = [(picture[64, 160] == RED).all() for picture in filmed]
    cost = np.cumsum([moment.cost for moment in _take(1.0).moments[:20]])
    assert cost[-1] > 2.0 > cost[0]
    assert red == (cost > 2.0).tolist()


def test_what_nobody_knows_is_not_written(filmed, tmp_path):
    for identifies in (True, False):
        film(tmp_path / "v.mp4", "Cart", WORLD, [_take(0.0, "x", identifies)], 2.0, every=20)
    knowing, blind = filmed[0], filmed[2]
    # Eta and spread stand in the upper right corner, and nothing else does.
    assert (knowing[:28, 160:] < 128).any() and (blind[:28, 160:] == 255).all()
    np.testing.assert_array_equal(knowing[28:], blind[28:])
