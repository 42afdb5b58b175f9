"""The mean over all weights of a run, the later ones counting more."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.compilation import jit
from tests.toy_world import Cart

from ashore.experiments import presets
from ashore.learning import averaging, train

SMOKE = presets.lookup("Platoon", "smoke").train
TASK = Cart()


@pytest.mark.parametrize(
    ("exponent", "shares"),
    [
        (0.0, [1 / 4, 1 / 4, 1 / 4, 1 / 4]),
        # t (t + 1): 2, 6, 12, 20 of 40.
        (2.0, [2 / 40, 6 / 40, 12 / 40, 20 / 40]),
    ],
)
def test_later_weights_count_in_proportion_to_a_power_of_their_place(exponent: float, shares: list[float]):
    # Each of the four weights is a unit vector, so that the mean shows the share of each.
    mean = {"kernel": jnp.full(4, 7.0)}
    for place in range(4):
        mean = averaging.include(exponent, jnp.float32(place + 1), mean, {"kernel": jnp.eye(4)[place]})
    np.testing.assert_allclose(mean["kernel"], shares, rtol=1e-6)


def test_what_a_run_keeps_is_the_mean_of_its_actors_and_changes_nothing_else():
    one_by_one = replace(SMOKE, chunk=1, learning_starts=3)
    averaged = replace(one_by_one, averaging=0.0)
    plain, mean = (train.start(TASK, config, jax.random.key(0)) for config in (one_by_one, averaged))
    go_on, go_on_averaged = (
        jit(lambda state, config=config: train.train_chunk(TASK, config, state)[0]) for config in (one_by_one, averaged)
    )
    actors = []
    for _ in range(6):
        plain, mean = go_on(plain), go_on_averaged(mean)
        actors.append(plain.learner.params["actor"]["output"]["kernel"])
    assert plain.policy is plain.learner.params
    jax.tree.map(np.testing.assert_array_equal, plain.learner.params, mean.learner.params)
    # Learning starts with the third decision: four of the six actors have learnt something.
    np.testing.assert_allclose(
        mean.policy["actor"]["output"]["kernel"], np.mean(actors[2:], axis=0), rtol=1e-5, atol=1e-8
    )
    assert (
        np.any(np.asarray(actors[2]) != np.asarray(actors[1]))
        and mean.policy["critics"] is mean.learner.params["critics"]
    )
