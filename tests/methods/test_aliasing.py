"""Worlds that look alike and must be treated differently: who finds out, and what not knowing costs.

The problem and its answers are those of `tests/learning/aliased_worlds.py`; `tests/learning/test_toy_cmdp.py` has the
paper's method on it. A quarter of the worlds is wired the wrong way round.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.learning.aliased_worlds import BUDGET, Learner, train

from ashore.learning import plain_updates, soft_updates
from ashore.learning.soft_updates import SacConfig

MAGNITUDES = jnp.linspace(0.7, 1.4, 8)
GAINS = jnp.concatenate([MAGNITUDES, MAGNITUDES, MAGNITUDES, -MAGNITUDES])
MEAN, SQUARE = float(jnp.mean(GAINS)), float(jnp.mean(jnp.square(GAINS)))
BLIND = Learner(plain_updates.init, plain_updates.update_step, contextual=False)
SAC = SacConfig()
PEARL = Learner(
    functools.partial(soft_updates.init, SAC),
    functools.partial(soft_updates.update_step, SAC),
    soft_updates.act_at_random,
)
ITERATIONS, SETTLED = 600, 200


def settled(log):
    """Reward and cost of the noise-free policy over the last iterations."""
    return float(jnp.mean(log.reward[-SETTLED:])), float(jnp.mean(log.cost[-SETTLED:]))


def test_pearl_reaches_the_optimum_of_every_world():
    reward, cost = settled(train(PEARL, GAINS, jax.random.key(0), ITERATIONS)[1])
    assert cost == pytest.approx(BUDGET, rel=0.15)
    # The optimum is 0.5; one action for all worlds cannot earn more than 0.25.
    assert 0.43 < reward < 0.52


def test_one_policy_for_all_worlds_pays_for_not_knowing():
    _, log = train(BLIND, GAINS, jax.random.key(0), ITERATIONS)
    reward, cost = settled(log)
    # m sqrt(d / q) = 0.525 * sqrt(0.25 / 1.147) = 0.245, half of what there is to earn.
    assert cost == pytest.approx(BUDGET, rel=0.15)
    assert reward == pytest.approx(MEAN * np.sqrt(BUDGET / SQUARE), abs=0.03)
    # It does much the same everywhere.
    assert float(jnp.mean(jnp.std(log.action[-SETTLED:], axis=1))) < 0.1


def test_a_policy_of_the_nominal_world_is_too_bold_in_the_others():
    _, log = train(BLIND, jnp.ones_like(GAINS), jax.random.key(0), ITERATIONS)
    reward, cost = settled(log)
    # At home it is right: x = 0.5.
    assert (reward, cost) == (pytest.approx(0.5, abs=0.03), pytest.approx(BUDGET, rel=0.1))
    action = float(jnp.mean(log.action[-SETTLED:]))
    abroad = np.asarray(GAINS) * action
    assert abroad.mean() == pytest.approx(MEAN / 2.0, abs=0.03)
    assert np.square(abroad).mean() == pytest.approx(SQUARE * BUDGET, rel=0.1)
    assert np.square(abroad).mean() > BUDGET
