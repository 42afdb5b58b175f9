"""Settings that mean nothing are refused when they are made, in one sentence that names them."""

import dataclasses
import math
import re

import numpy as np
import pytest

from ashore.environments.base import Field
from ashore.environments.tasks import lookup
from ashore.experiments import presets, settings
from ashore.experiments.evaluation import EvaluationConfig
from ashore.learning.evaluate import probe
from ashore.learning.train_config import TrainConfig
from ashore.methods import registry
from toy_world import CARTS, Cart


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("worlds=0", "worlds must be at least 1, not 0."),
        ("chunk=0", "chunk must be at least 1, not 0."),
        ("steps=-3", "steps must be at least 1, not -3."),
        ("capacity=1", "capacity must be at least 2, not 1."),
        ("learning_rate=0", "learning_rate must be above 0, not 0.0."),
        ("cost_discount=1.5", "cost_discount must be between 0 and 1, not 1.5."),
        ("target_rate=1.1", "target_rate must be above 0 and at most 1, not 1.1."),
        ("sizes.fractions=0", "fractions must be at least 1, not 0."),
        ("sizes.hidden=[64,0]", "hidden layers have at least one unit each, not (64, 0)."),
    ],
)
def test_a_training_run_that_cannot_be_is_refused(assignment, said):
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        settings.override(TrainConfig(), assignment)


def test_an_evaluation_of_nothing_is_refused():
    with pytest.raises(ValueError, match="episodes must be at least 1"):
        EvaluationConfig(episodes=0)


class WideCart(Cart):
    @property
    def description(self):
        return dataclasses.replace(super().description, action=(Field("push", "N", -4.0, 4.0),))


def test_a_task_whose_actions_no_policy_gives_is_refused_before_it_is_trained():
    with pytest.raises(ValueError, match=r"act in \[-1, 1\], and the action 'push' of \w+ lies in \[-4, 4\]"):
        registry.lookup("nominal").trained_by(WideCart(), TrainConfig())


def test_a_probe_of_worlds_that_do_not_differ_says_nothing():
    assert math.isnan(probe(np.ones((4, 2)), np.ones(4)))


def test_a_task_of_ones_own_is_found_by_its_module():
    assert lookup("toy_world:CARTS") is CARTS
    for name, said in (("no_such_module:CARTS", "No module named"), ("toy_world:CART", "has no TaskFamily")):
        with pytest.raises(ValueError, match=said):
            lookup(name)


def test_a_task_without_presets_of_its_own_can_be_trained():
    assert presets.lookup("toy_world:CARTS", "smoke").train == presets.lookup("Platoon", "smoke").train
    with pytest.raises(ValueError, match="choose from smoke, laptop, gpu"):
        presets.lookup("toy_world:CARTS", "paper")
