"""What is chosen for a run arrives at its parts."""

from dataclasses import replace

import pytest
from tests.toy_world import Cart, CartConfig

from ashore.learning.train import paper_recipe
from ashore.learning.train_config import TrainConfig, learner_config, replay_config

TASK = Cart(CartConfig(decisions=10))
CONFIG = TrainConfig()
RECIPE = paper_recipe(TASK)


def test_steps_reach_what_is_drawn():
    assert replay_config(TASK, replace(CONFIG, steps=3)).steps == 3
    assert replay_config(TASK, CONFIG).steps == 1


def test_the_price_of_information_reaches_the_encoder():
    usual, other = (
        learner_config(TASK, config, RECIPE).encoder_objective
        for config in (CONFIG, replace(CONFIG, beta_kl=0.5, kl_limit=3.0))
    )
    assert (usual.beta_kl, usual.kl_limit) == (1e-3, None)
    assert (other.beta_kl, other.kl_limit) == (0.5, 3.0)
    with pytest.raises(ValueError, match="kl_limit"):
        replace(CONFIG, kl_limit=-1.0)
