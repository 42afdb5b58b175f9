"""A constrained problem with a known answer, solved by the whole update and the multiplier.

As many worlds are wired the wrong way round as the right way: a policy that does not know the world earns a E[g] = 0.
"""

import jax
import jax.numpy as jnp
import pytest
from tests.learning.aliased_worlds import BUDGET, TASKS, Learner, train

MAGNITUDES = jnp.linspace(0.7, 1.4, TASKS // 2)
GAINS = jnp.concatenate([MAGNITUDES, -MAGNITUDES])


def test_constrained_optimum_is_found_at_the_constraint():
    _, log = train(Learner(), GAINS, jax.random.key(0), 1000)
    reward, cost, multiplier = (float(jnp.mean(series[-250:])) for series in (log.reward, log.cost, log.multiplier))
    assert cost == pytest.approx(BUDGET, rel=0.1)
    # The optimum is sqrt(0.25) = 0.5; without knowing the world it is 0.
    assert 0.46 < reward < 0.52
    assert multiplier == pytest.approx(1.0, abs=0.35)
    assert log.metrics["active_dimensions"][-1] > 0.0
