"""The short way through Algorithm 1 finds what the plain way finds, in every form, and really is shorter."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.calibration import quick_refinement, refinement
from ashore.calibration.careful_policy import CarefulPolicy
from ashore.calibration.refinement import AS_PRINTED, RefinementConfig
from ashore.learning import normalisation
from ashore.networks import architecture, critic
from ashore.networks.architecture import Architecture, Sizes
from tests.compilation import jit

SIZES = Sizes(critic_width=24, fractions=6, hidden=(8,), latent=3, context=8, critic_blocks=2, cosines=8)
NETS = Architecture(observation=5, action=3, features=(0, 2), sizes=SIZES)
COARSE = RefinementConfig(steps=4, reward_step=0.05, cost_step=0.2)
FORMS = [
    COARSE,
    replace(COARSE, keep="last"),
    replace(COARSE, variant="unit", weight="sqrt"),
    replace(COARSE, weight="full"),
    replace(COARSE, variant="unit", weight="full", keep="last"),
]


@pytest.fixture(scope="module")
def critics():
    pair = critic.init_pair(jax.random.key(3), NETS.critic)
    # Fresh norms and biases are one and zero, with which half of the formulas cannot be told from wrong ones.
    leaves, shape = jax.tree.flatten(pair)
    keys = jax.random.split(jax.random.key(4), len(leaves))
    moved = [leaf + 0.3 * jax.random.normal(key, leaf.shape) for leaf, key in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(shape, moved)


def states(count):
    keys = jax.random.split(jax.random.key(5), 4)
    seen = jax.random.normal(keys[0], (count, NETS.observation))
    condition = jax.random.normal(keys[1], (count, NETS.critic.condition))
    nominal = jax.random.uniform(keys[2], (count, NETS.action), minval=-1.0, maxval=1.0)
    return seen, condition, nominal, jnp.linspace(0.0, 0.95, count)


def both_ways(config, critics, threshold):
    def plainly(seen, condition, nominal, eta):
        values = refinement.critic_values(NETS, critics, seen, condition, eta)
        return refinement.refine(config, values, nominal, eta, threshold)

    def quickly(seen, condition, nominal, eta):
        return quick_refinement.refine(config, NETS, critics, seen, condition, nominal, eta, threshold)

    return tuple(jit(jax.vmap(way))(*states(16)) for way in (plainly, quickly))


@pytest.mark.parametrize("config", FORMS, ids=lambda form: f"{form.variant}-{form.weight}-{form.keep}")
def test_both_ways_find_the_same(critics, config):
    # Between the costs of the states, so that some fit, some are brought to fit, and some never do.
    plain, quick = both_ways(config, critics, 1.0)
    for name in ("triggered", "steps"):
        np.testing.assert_array_equal(getattr(quick, name), getattr(plain, name))
    for name in ("action", "cost_before", "cost_after"):
        np.testing.assert_allclose(getattr(quick, name), getattr(plain, name), rtol=2e-4, atol=2e-5)
    # The first state is at eta = 0: no bit of its action may change.
    np.testing.assert_array_equal(quick.action[0], states(16)[2][0])
    steps = set(np.asarray(plain.steps).tolist())
    assert 0 in steps and max(steps) == config.steps


def test_a_policy_that_decides_alone_acts_the_same(critics):
    params = architecture.init(jax.random.key(6), NETS) | {"critics": critics}
    weights = (params, normalisation.init(NETS.observation, len(NETS.features)))
    situation = (jnp.linspace(-1.0, 1.0, NETS.observation), jnp.array([0.3, -0.2, 0.9]), jnp.float32(0.8))
    careful = [CarefulPolicy(NETS, 1e-6, "refinement", AS_PRINTED, alone) for alone in (False, True)]
    plain, quick = (jit(policy.act)(weights, *situation) for policy in careful)
    assert int(plain.steps) > 0
    np.testing.assert_allclose(quick.action, plain.action, atol=2e-5)


def test_the_chain_of_matrix_products_is_half_as_long(critics):
    config = RefinementConfig(steps=3)

    def products(way):
        return str(jax.make_jaxpr(way)(*(part[1] for part in states(2)))).count("dot_general")

    def plainly(seen, condition, nominal, eta):
        values = refinement.critic_values(NETS, critics, seen, condition, eta)
        return refinement.refine(config, values, nominal, eta, 0.0).action

    def quickly(seen, condition, nominal, eta):
        return quick_refinement.refine(config, NETS, critics, seen, condition, nominal, eta, 0.0).action

    # Inside the loop: 14 + 1 forward and as many back, twice, and 7 + 1 + 1 to judge, against two passes of 8.
    assert products(quickly) < 0.55 * products(plainly)
