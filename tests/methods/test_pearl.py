"""PEARL: critics and encoder learn together, the actor leaves the encoder alone, and its density is a density."""

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.learning.small_learner import CONFIG, LAMBDA, NETS, jit, largest, moved, prepared
from tests.toy_world import Cart

from ashore.environments.rollout import Worlds
from ashore.learning import lagrangian, losses, objectives, soft_updates
from ashore.learning.collect import CollectConfig, Collector
from ashore.learning.soft_updates import SacConfig
from ashore.learning.train_config import TrainConfig
from ashore.methods import pearl
from ashore.networks import actor
from ashore.networks.encoder import NaturalPosterior

SAC = SacConfig()


@functools.cache
def start():
    return jit(soft_updates.init, static_argnums=(0, 1, 2))(SAC, CONFIG, lagrangian.PIDConfig(), jax.random.key(1))


@functools.cache
def steps():
    """The learner after each step of an update, from the same start."""

    @jit
    def compute(state):
        work = prepared(state)
        latents = objectives.latents_of(objectives.posteriors(CONFIG.objective, state.params["encoder"], work), work)
        targets = soft_updates.soft_targets(CONFIG, state, work, latents)
        critics, _ = soft_updates.critic_and_encoder_step(CONFIG, state, work, targets)
        policy, _, _ = soft_updates.actor_step(CONFIG, state, work, latents, LAMBDA)
        colder, _ = soft_updates.temperature_step(CONFIG, state, jnp.float32(-5.0), wanted=-1.0)
        hotter, _ = soft_updates.temperature_step(CONFIG, state, jnp.float32(5.0), wanted=-1.0)
        return {"critics": critics, "actor": policy, "colder": colder, "hotter": hotter}, work, targets

    return compute(start())


def test_each_step_moves_its_own_networks_and_no_other():
    state, (after, _, _) = start(), steps()
    owners = {"critics": {"critics", "encoder"}, "actor": {"actor", "deviation"}, "colder": {"temperature"}}
    before = state.params | state.private
    for step, owned in owners.items():
        now = after[step].params | after[step].private
        for name, weights in before.items():
            assert moved(weights, now[name]) == (name in owned), (step, name)
    # The dynamics head is not PEARL's.
    assert not moved(state.params["dynamics"], after["critics"].params["dynamics"])


def test_encoder_learns_from_the_critics_in_the_same_backward_pass():
    # Without the KL, whatever moves the encoder has come through the critics' loss and z, at the critics before their
    # own step: the paper's alternating step would have taken it at the critics after.
    state, (_, work, targets) = start(), steps()

    @jit
    def gradients(encoder, critics):
        def loss(encoder, critics):
            posterior = objectives.posteriors(CONFIG.objective, encoder, work)
            query = objectives.taken_query(CONFIG.objective, work, objectives.latents_of(posterior, work))
            (values,) = objectives.ask(CONFIG.objective, critics, query)
            return jnp.sum(objectives.critic_losses(CONFIG.objective, values, work, targets))

        gradients = jax.grad(loss, argnums=(0, 1))(encoder, critics)
        state_without_kl = replace(CONFIG, encoder_objective=replace(CONFIG.encoder_objective, beta_kl=0.0))
        _, metrics = soft_updates.critic_and_encoder_step(state_without_kl, state, work, targets)
        return gradients, metrics["gradient_norm_encoder"]

    (to_encoder, to_critics), norm = gradients(state.params["encoder"], state.params["critics"])
    assert largest(to_encoder) > 1e-6 and largest(to_critics) > 1e-6
    length = np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(to_encoder)))
    assert norm == pytest.approx(length, rel=1e-4)


def test_with_no_nats_free_all_of_them_cost_the_excess_as_well():
    state, (_, work, targets) = start(), steps()
    usual = CONFIG.encoder_objective

    @jit
    def norms():
        priced = (replace(usual, kl_limit=0.0), replace(usual, beta_kl=usual.beta_kl + losses.EXCESS), usual)
        configs = [replace(CONFIG, encoder_objective=objective) for objective in priced]
        steps = [soft_updates.critic_and_encoder_step(config, state, work, targets) for config in configs]
        return [metrics["gradient_norm_encoder"] for _, metrics in steps]

    limited, dearer, free = norms()
    assert limited == pytest.approx(float(dearer), rel=1e-5) and abs(limited - free) > 1e-3 * free


def test_no_gradient_of_the_actor_reaches_the_encoder():
    # One whole update: how the actor comes out depends on z, but z is a constant to its step.
    state = start()

    def actor_after(encoder):
        changed = state._replace(params=state.params | {"encoder": encoder})
        work = prepared(changed)
        posterior = objectives.posteriors(CONFIG.objective, encoder, work)
        latents = jax.lax.stop_gradient(objectives.latents_of(posterior, work))
        after, _, _ = soft_updates.actor_step(CONFIG, changed, work, latents, LAMBDA)
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(after.params["actor"]))

    assert largest(jit(jax.grad(actor_after))(state.params["encoder"])) == 0.0


def test_density_of_a_squashed_gaussian():
    # The density of a one-dimensional action integrates to one, and noise 0 gives the deterministic policy.
    nets = replace(NETS, action=1)
    weights = {
        "actor": actor.init(jax.random.key(2), nets.actor),
        "deviation": actor.init(jax.random.key(3), nets.actor),
    }
    weights["deviation"]["output"]["bias"] = jnp.array([-0.7])
    observation, condition = jnp.linspace(-1.0, 1.0, 4), jnp.zeros(3)
    noise = jnp.linspace(-6.0, 6.0, 20_001)[:, None]
    drawn = jax.vmap(lambda noise: soft_updates.draw(nets, weights, observation, condition, noise))(noise)
    assert np.trapezoid(np.exp(drawn.log_density), drawn.action[:, 0]) == pytest.approx(1.0, abs=1e-3)
    middle = soft_updates.draw(nets, weights, observation, condition, jnp.zeros(1))
    np.testing.assert_allclose(middle.action, actor.apply(nets.actor, weights["actor"], observation, condition))


def test_temperature_rises_while_the_policy_is_too_certain():
    after, _, _ = steps()
    # ln pi = -5 is an entropy of 5, far above the wanted -1: the temperature falls; ln pi = 5 raises it.
    before = float(soft_updates.temperature_of(start()))
    assert float(soft_updates.temperature_of(after["colder"])) < before
    assert float(soft_updates.temperature_of(after["hotter"])) > before


def test_quiet_worlds_act_on_the_mean():
    weights = start().params | start().private
    seen, condition = jnp.ones((2, 4)), jnp.zeros((2, 3))
    actions = soft_updates.act_at_random(NETS, weights, seen, condition, jnp.array([0.0, 0.1]), jnp.ones((2, 2)))
    np.testing.assert_allclose(actions[0], actor.apply(NETS.actor, weights["actor"], seen[0], condition[0]))
    assert not np.allclose(actions[0], actions[1])


def test_some_worlds_keep_one_draw_of_the_prior_for_an_episode():
    config = TrainConfig(worlds=8, collect=CollectConfig(quiet_share=0.25), sac=SacConfig(prior_share=0.5))
    untouched: Any = None
    collector = Collector(
        worlds=Worlds(*[untouched] * 7)._replace(decision=jnp.array([0, 1, 0, 1, 0, 5, 0, 5], jnp.int32)),
        posterior=NaturalPosterior(jnp.zeros((8, 2)), jnp.zeros((8, 2)), jnp.zeros(8, jnp.int32)),
        latent=jnp.full((8, 2), 7.0),
        risk_level=untouched,
        noise=jnp.array([0.0, 0.0, *[0.1] * 6]),
        push=untouched,
        cost_rate=untouched,
        key=untouched,
        decisions=untouched,
    )
    noise = jnp.arange(16.0).reshape(8, 2)
    latents = np.asarray(pearl.recipe(Cart(), config).habits.latents(collector, jnp.ones(8, bool), noise))
    # Two quiet worlds on the prior's mean; three exploring ones on posterior samples, here the noise itself; the last
    # three on the prior: a new draw where an episode begins, and otherwise the old one.
    np.testing.assert_array_equal(latents[:2], np.zeros((2, 2)))
    np.testing.assert_allclose(latents[2:5], noise[2:5])
    np.testing.assert_array_equal(latents[5], [7.0, 7.0])
    np.testing.assert_array_equal(latents[6], noise[6])
    np.testing.assert_array_equal(latents[7], [7.0, 7.0])


def test_an_actor_that_is_told_nothing_is_refused():
    with pytest.raises(ValueError, match="told=False is not for pearl"):
        pearl.recipe(Cart(), TrainConfig(told=False))
