import jax
import jax.numpy as jnp
import numpy as np

from ashore.environments import randomisation
from ashore.environments.branching import branch
from toy_world import PERIOD, TRAIN, Cart, CartParameters

CART = Cart()


def test_one_moment_under_three_masses():
    start = CART.reset(jax.random.key(0), randomisation.nominal(TRAIN, CartParameters))
    masses = CartParameters(jnp.array([0.5, 1.0, 2.0], jnp.float32), jnp.zeros(3, jnp.float32))
    result = branch(CART, start.state, jnp.array([1.0], jnp.float32), masses)
    # From rest, one period under force 1: v = h / m.
    np.testing.assert_allclose(result.state.speed, [PERIOD / 0.5, PERIOD / 1.0, PERIOD / 2.0], rtol=1e-6)
    assert result.reward.shape == result.cost.shape == result.diverged.shape == (3,)


def test_branches_equal_separate_steps():
    start = CART.reset(jax.random.key(1), randomisation.nominal(TRAIN, CartParameters))
    physics = randomisation.sample(TRAIN, CartParameters, jax.random.key(2), 5)
    action = jnp.array([-0.7], jnp.float32)
    together = branch(CART, start.state, action, physics)
    for index in range(5):
        alone = CART.step(start.state, action, jax.tree.map(lambda field, index=index: field[index], physics))
        np.testing.assert_allclose(together.observation[index], alone.observation, rtol=1e-6)
