"""Robust: the attacker finds what is worst, stays in its ball, fools the policy alone, and comes in slowly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.toy_world import TRAIN, Cart, CartConfig, CartParameters

from ashore import quantiles
from ashore.environments import randomisation
from ashore.learning import collect, evaluate, normalisation, observation_attack
from ashore.learning.collect import WITHOUT_LATENT, CollectConfig
from ashore.learning.observation_attack import AttackConfig
from ashore.learning.risk import RiskConfig
from ashore.networks import actor, architecture, critic
from ashore.networks.architecture import Architecture, Sizes

NETS = Architecture(2, 1, (1,), Sizes(critic_width=8, fractions=4, hidden=(8,), critic_blocks=1, cosines=8, latent=2))
WORLDS = 4


def test_worst_disturbance_of_a_quadratic_critic_is_found():
    # Q_c(s, a) = (a - w.s)^2 with pi(s) = w.s + b: Q_c(s, pi(s + delta)) = (w.delta + b)^2, largest at the corner
    # eps sign(w) sign(b) of the ball, where it is (eps |w|_1 + |b|)^2.
    weights, radius = jnp.array([2.0, -1.0, 0.5]), jnp.float32(0.1)
    offsets = jnp.array([0.3, -0.2, 0.01])

    def value(delta):
        return jnp.square(delta @ weights + offsets)

    begin = jnp.array([[0.0, 0.0, 0.0], [0.05, 0.0, 0.0], [5.0, 0.0, -5.0]])
    found = observation_attack.ascend(value, begin, radius, steps=5)
    side = np.sign(np.asarray(offsets))[:, None]
    expected = 0.1 * np.sign(np.asarray(weights))[None] * side
    np.testing.assert_allclose(found[:2], expected[:2], rtol=1e-6)
    np.testing.assert_allclose(value(found)[:2], (0.1 * 3.5 + np.abs(np.asarray(offsets[:2]))) ** 2, rtol=1e-5)
    # The last one was handed something far outside the ball: it starts from the surface, and gets higher from there.
    assert np.all(np.abs(found) <= 0.1 + 1e-7)
    assert float(value(found)[2]) > float(value(jnp.clip(begin, -0.1, 0.1))[2])


@pytest.mark.parametrize("kind", ["cost", "reward"])
def test_attacker_raises_what_it_maximises_and_the_critic_knows_the_truth(kind):
    params = architecture.init(jax.random.key(0), NETS)
    # An actor that moves: its last layer starts too small to be fooled.
    params["actor"]["output"]["kernel"] = params["actor"]["output"]["kernel"] * 30.0
    normalisers = normalisation.init(2, 1)
    normalisers = normalisers._replace(observation=normalisers.observation._replace(variance=jnp.array([4.0, 0.25])))
    observations = jax.random.normal(jax.random.key(1), (64, 2))
    condition, still = jnp.zeros((64, 2)), jnp.zeros((64, 2))

    def see(observation):
        return normalisation.normalise(normalisers.observation, observation)

    config = AttackConfig(kind=kind, radius=0.2, steps=6)
    attack = observation_attack.at_full_radius(config)
    delta = attack(NETS, params, normalisers, see, observations, condition, still, jnp.int32(0))
    assert delta.shape == (64, 2) and float(jnp.max(jnp.abs(delta))) <= 0.2 + 1e-7

    place = observation_attack.KINDS[kind]
    ask = critic.cost_quantiles if kind == "cost" else critic.reward_quantiles
    weights = critic.one_of(params["critics"], place)

    def value(observation, delta):
        # One unit of delta is one standard deviation: 2 in the first number, 0.5 in the second.
        shown = observation + delta * jnp.array([2.0, 0.5])
        action = actor.apply(NETS.actor, params["actor"], see(shown), jnp.zeros(2))
        fractions = quantiles.midpoints(0.0, 8)
        return jnp.mean(ask(NETS.critic, weights, see(observation), action, jnp.zeros(2), fractions))

    values = jax.vmap(value)
    attacked, clean = values(observations, delta), values(observations, still)
    # Having started from no disturbance, it never ends below that.
    assert np.all(attacked >= clean - 1e-6) and float(jnp.mean(attacked - clean)) > 0.005
    # No random disturbance of the same size does as well on average.
    random = 0.2 * jnp.sign(jax.random.normal(jax.random.key(2), delta.shape))
    assert float(jnp.mean(attacked)) > float(jnp.mean(values(observations, random)))


def test_radius_grows_from_its_start():
    # eps (1 - exp(-5 (t - 10) / 30)) in a run of 100 decisions.
    config = AttackConfig(radius=0.05, start=0.1, ramp=0.3)
    times = jnp.array([0, 10, 16, 40, 100], jnp.int32)
    radii = jax.vmap(lambda t: observation_attack.radius_after(config, t, 100))(times)
    expected = 0.05 * (1.0 - np.exp(-5.0 * np.array([0.0, 0.0, 6.0, 30.0, 90.0]) / 30.0))
    np.testing.assert_allclose(radii, expected, rtol=1e-5)


def test_the_disturbed_sight_is_acted_on_and_remembered_and_the_next_one_is_clean():
    task = Cart(CartConfig(decisions=6))
    parameters = randomisation.sample(TRAIN, CartParameters, jax.random.key(3), WORLDS)
    params = architecture.init(jax.random.key(0), NETS)
    normalisers = normalisation.init(2, 1)
    settings = CollectConfig(random_decisions=0, quiet_share=1.0)

    def shift(nets, params, normalisers, see, observations, condition, last, decisions):
        return last + jnp.array([0.1, -0.2])[None]

    habits = collect.Habits(WITHOUT_LATENT.believe, WITHOUT_LATENT.latents, attack=shift)
    collector = collect.start(task, settings, NETS, jax.random.key(1), parameters, attacked=True)
    for times in (1, 2):
        before = collector
        collector, transition, _ = collect.collect(
            task, settings, RiskConfig(), NETS, params, normalisers, parameters, before, habits
        )
        # What the attacker did before is handed to it: the shift grows with every decision.
        shown = np.asarray(before.worlds.observation) + times * np.array([0.1, -0.2])
        np.testing.assert_allclose(transition.observation, shown, atol=1e-6)
        act = jax.vmap(lambda seen: actor.apply(NETS.actor, params["actor"], seen, jnp.zeros(2)))
        np.testing.assert_allclose(transition.action, act(jnp.asarray(shown, jnp.float32)), atol=1e-5)
        going = np.asarray(collector.worlds.decision) > 0
        np.testing.assert_array_equal(transition.next_observation[going], collector.worlds.observation[going])


def test_evaluation_under_attack_differs_from_evaluation_without():
    task = Cart(CartConfig(decisions=5))
    parameters = randomisation.sample(TRAIN, CartParameters, jax.random.key(0), WORLDS)
    params = architecture.init(jax.random.key(1), NETS)
    params["actor"]["output"]["kernel"] = params["actor"]["output"]["kernel"] * 30.0
    normalisers = normalisation.init(2, 1)

    def deploy(attack):
        return evaluate.deploy(task, NETS, params, normalisers, parameters, jax.random.key(2), 1, attack=attack)

    clean, harmless, attacked = (
        deploy(attack)
        for attack in (
            None,
            observation_attack.at_full_radius(AttackConfig(radius=0.0, steps=1)),
            observation_attack.at_full_radius(AttackConfig(kind="reward", radius=0.5, steps=2)),
        )
    )
    np.testing.assert_array_equal(clean.episode_return, harmless.episode_return)
    assert np.all(np.asarray(clean.episode_return) != np.asarray(attacked.episode_return))


def test_a_wrong_setting_is_answered_in_one_sentence():
    with pytest.raises(ValueError, match="An attack maximises the cost or the reward, not 'pain'"):
        AttackConfig(kind="pain")
