"""The judgement of a cost critic, by hand and on a world whose cost is known."""

import jax
import numpy as np
import pytest
from tests.toy_world import TRAIN, Cart, CartConfig, CartParameters

from ashore.environments import randomisation
from ashore.learning import critic_check, normalisation
from ashore.learning.critic_check import Predictions, judge
from ashore.networks import architecture
from ashore.networks.architecture import SIZES, Architecture


def test_an_even_cost_is_judged_exactly():
    # Cost 1 per decision, discount 0.5: the endless future is worth 2. A tenth is left after ceil(3.32) = 4 decisions,
    # which are worth 1 + 1/2 + 1/4 + 1/8 = 1.875 = 2 (1 - 1/16). Ten decisions leave seven to judge in either world.
    even = judge(Predictions(np.full((10, 2), 2.0), np.ones((10, 2))), 0.5)
    assert even.predicted == pytest.approx(1.875) and even.realised == pytest.approx(1.875)
    assert even.decisions == 14 and np.isnan(even.correlation)


def test_a_critic_that_tells_moments_apart_correlates():
    generator = np.random.default_rng(0)
    rate = np.repeat(generator.uniform(0.0, 2.0, (1, 50)), 20, axis=0)
    right = judge(Predictions(rate / 0.5, rate), 0.5)
    assert right.correlation == pytest.approx(1.0) and right.predicted == pytest.approx(right.realised)
    double = judge(Predictions(2.0 * rate / 0.5, rate), 0.5)
    assert double.predicted == pytest.approx(2.0 * double.realised)


def test_what_is_watched_is_an_episode_of_every_world():
    task, nets = Cart(CartConfig(decisions=6)), Architecture(2, 1, (1,), SIZES["small"])
    params = architecture.init(jax.random.key(0), nets)
    physics = randomisation.sample(TRAIN, CartParameters, jax.random.key(3), 4)
    seen = jax.jit(
        lambda params: critic_check.watch(task, nets, params, normalisation.init(2, 1), physics, jax.random.key(1))
    )(params)
    assert seen.predicted.shape == seen.cost.shape == (6, 4)
    assert np.all(np.asarray(seen.predicted) > 0.0)


def test_a_critic_that_looks_one_decision_ahead_is_judged_by_that_one():
    cost = np.array([[0.0], [1.0], [0.0], [1.0]])
    checked = judge(Predictions(2.0 * cost, cost), 0.0)
    assert (checked.predicted, checked.realised, checked.decisions) == (1.0, 0.5, 4)
