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


def test_what_a_run_keeps_is_the_mean_of_its_actors():
    config = replace(SMOKE, chunk=1, learning_starts=3, averaging=0.0)
    state = train.start(TASK, config, jax.random.key(0))
    go_on = jit(lambda state: train.train_chunk(TASK, config, state)[0])
    actors = []
    for _ in range(6):
        state = go_on(state)
        actors.append(np.asarray(state.learner.params["actor"]["output"]["kernel"]))
    assert np.any(actors[2] != actors[1])
    # Learning starts with the third decision: four of the six actors have learnt something.
    kept = state.policy["actor"]["output"]["kernel"]
    np.testing.assert_allclose(kept, np.mean(actors[2:], axis=0), rtol=1e-5, atol=1e-8)
    assert state.policy["critics"] is state.learner.params["critics"]


def test_without_averaging_the_last_actor_is_kept():
    state = jax.eval_shape(lambda key: train.start(TASK, SMOKE, key), jax.random.key(0))
    assert state.averaged is None and state.policy is state.learner.params


@pytest.mark.parametrize(("name", "value"), [("averaging", -1.0), ("averaging", float("nan")), ("smoothness", -0.1)])
def test_what_makes_no_sense_is_refused(name: str, value: float):
    with pytest.raises(ValueError, match=f"{name} must be at least 0, not {value}"):
        replace(SMOKE, **{name: value})
