"""The short way through Algorithm 1 finds what the plain way finds, in every form, and really is shorter."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.calibration import lone_decisions, quick_refinement, refinement
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

    ready = quick_refinement.prepare(NETS, critics)

    def quickly(seen, condition, nominal, eta):
        level = quick_refinement.at_level(NETS, ready, eta)
        return quick_refinement.refine(config, NETS, ready, level, seen, condition, nominal, threshold)

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


@pytest.mark.parametrize("caution", ["refinement", "both", "actor"])
def test_a_policy_that_decides_alone_acts_the_same(critics, caution):
    nets = replace(NETS, risk_conditioned=caution != "refinement")
    params = architecture.init(jax.random.key(6), nets)
    params |= {"critics": critics} if caution == "refinement" else {}
    weights = (params, normalisation.init(nets.observation, len(nets.features)))
    observation, latent = np.linspace(-1.0, 1.0, nets.observation), np.array([0.3, -0.2, 0.9])
    policy = CarefulPolicy(nets, 1e-6, caution, AS_PRINTED)
    decide = lone_decisions.compiled(policy, weights)
    actions = []
    # There and back: what was prepared for one risk level must not answer for another.
    for eta in (0.8, 0.3, 0.8):
        situation = (jnp.float32(observation), jnp.float32(latent), jnp.float32(eta))
        plain, quick = jit(policy.act)(weights, *situation), decide(observation, latent, eta)
        assert (int(plain.steps) > 0) == (caution != "actor")
        assert (quick.triggered, quick.steps) == (bool(plain.triggered), int(plain.steps))
        np.testing.assert_allclose(quick.action, plain.action, atol=2e-5)
        np.testing.assert_allclose(quick.cost_after, plain.cost_after, rtol=1e-4)
        actions.append(quick.action)
    assert not np.allclose(actions[0], actions[1], atol=1e-4)


@pytest.mark.parametrize(("activation", "blocks"), [("relu", 1), ("silu", 3)])
def test_networks_of_other_shapes_are_carried_through_as_well(activation, blocks):
    shape = {"critic_blocks": blocks, "critic_heads": 3, "action_scale": 2.5}
    nets = replace(NETS, sizes=replace(SIZES, activation=activation, **shape))
    pair = critic.init_pair(jax.random.key(8), nets.critic)
    seen, condition, nominal, eta = (part[-1] for part in states(4))
    values = refinement.critic_values(nets, pair, seen, condition, eta)
    ready = quick_refinement.prepare(nets, pair)
    plain = jit(lambda: refinement.refine(COARSE, values, nominal, eta, 0.0))()
    level = quick_refinement.at_level(nets, ready, eta)
    quick = jit(lambda: quick_refinement.refine(COARSE, nets, ready, level, seen, condition, nominal, 0.0))()
    assert int(plain.steps) == COARSE.steps
    np.testing.assert_allclose(quick.action, plain.action, atol=2e-5)


def test_fewer_passes_wait_for_one_another(critics):
    steps = 3
    config, ready = RefinementConfig(steps=steps), quick_refinement.prepare(NETS, critics)

    def quickly(seen, condition, nominal, eta):
        level = quick_refinement.at_level(NETS, ready, eta)
        return quick_refinement.refine(config, NETS, ready, level, seen, condition, nominal, 0.0).action

    products = str(jax.make_jaxpr(quickly)(*(part[1] for part in states(2)))).count("dot_general")
    # In a pass: the second feature layer, and five in a head of two blocks. Once: the surroundings, the embedding.
    assert products == (1 + 2 * steps) * (1 + 5) + 2
