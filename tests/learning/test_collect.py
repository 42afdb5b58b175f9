"""Experience: who explores, who is measured, and what each world comes to know about itself."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.compilation import jit
from tests.toy_world import TRAIN, Cart, CartConfig, CartParameters

from ashore.environments import randomisation
from ashore.learning import collect, normalisation
from ashore.learning.collect import CollectConfig
from ashore.learning.risk import RiskConfig
from ashore.networks import actor, architecture, encoder
from ashore.networks.architecture import SIZES, Architecture

WORLDS = 8
CONFIG = CollectConfig(quiet_share=0.25, hold_latent=4, random_decisions=0, cost_memory=4)
NETS = Architecture(observation=2, action=1, features=(1,), sizes=SIZES["small"])


@pytest.fixture(scope="session")
def task() -> Cart:
    return Cart(CartConfig(decisions=6))


@pytest.fixture(scope="session")
def parameters() -> CartParameters:
    return randomisation.sample(TRAIN, CartParameters, jax.random.key(3), WORLDS)


@pytest.fixture(scope="session")
def params():
    return jit(architecture.init, static_argnums=1)(jax.random.key(0), NETS)


NORMALISERS = normalisation.init(NETS.observation, len(NETS.features))


@pytest.fixture(scope="session")
def first(task, parameters):
    """The collector before its first decision."""
    return jit(lambda key: collect.start(task, CONFIG, NETS, key, parameters))(jax.random.key(1))


@pytest.fixture(scope="session")
def one(task, parameters, params):
    """One decision in every world."""
    return jit(
        lambda collector: collect.collect(task, CONFIG, RiskConfig(), NETS, params, NORMALISERS, parameters, collector)
    )


@pytest.fixture(scope="session")
def history(first, one):
    """Collectors before each of twelve decisions, and what the decisions did."""
    collector, rows = first, []
    for _ in range(12):
        after, transition, finished = one(collector)
        rows.append((collector, transition, finished, after))
        collector = after
    return rows


def test_quiet_worlds_act_by_the_weights_that_are_kept(task, parameters, params, first):
    other = params | {"actor": jax.tree.map(lambda weights: weights + 0.1, params["actor"])}

    @jit
    def actions(learnt, kept):
        found = collect.collect(
            task, CONFIG, RiskConfig(), NETS, learnt, NORMALISERS, parameters, first, collect.WITH_LATENT, kept
        )
        return found[1].action

    learnt, kept = actions(params, None), actions(other, None)
    assert np.all(np.asarray(learnt) != np.asarray(kept))
    quiet = collect.quiet_worlds(CONFIG, WORLDS)
    both = actions(params, other)
    np.testing.assert_array_equal(both[:quiet], kept[:quiet])
    np.testing.assert_array_equal(both[quiet:], learnt[quiet:])


def test_a_quarter_of_the_worlds_is_quiet_and_acts_on_the_posterior_mean(history, params):
    quiet = collect.quiet_worlds(CONFIG, WORLDS)
    assert quiet == 2

    @jit
    def on_the_mean(posterior, observation):
        seen = normalisation.normalise(NORMALISERS.observation, observation)
        return actor.apply(NETS.actor, params["actor"], seen, encoder.mean(posterior))

    for collector, transition, _, _ in history:
        assert np.all(np.asarray(collector.noise[:quiet]) == 0.0)
        noisy = np.asarray(collector.noise[quiet:])
        assert np.all((noisy >= CONFIG.noise_low) & (noisy <= CONFIG.noise_high))
        for world in range(quiet):
            posterior = jax.tree.map(lambda part, world=world: part[world], collector.posterior)
            expected = on_the_mean(posterior, collector.worlds.observation[world])
            np.testing.assert_allclose(transition.action[world], expected, atol=1e-6)


def test_exploring_worlds_hold_their_latent(history):
    quiet = collect.quiet_worlds(CONFIG, WORLDS)
    for collector, _, _, after in history:
        renewed = np.asarray(collector.worlds.decision[quiet:]) % CONFIG.hold_latent == 0
        changed = np.any(np.asarray(after.latent != collector.latent)[quiet:], axis=1)
        np.testing.assert_array_equal(changed, renewed)


def test_only_quiet_worlds_are_measured(history):
    quiet = collect.quiet_worlds(CONFIG, WORLDS)
    for collector, transition, _, after in history:
        # Exponential average over four decisions: three quarters old, one quarter new.
        expected = 0.75 * collector.cost_rate + 0.25 * jnp.mean(transition.cost[:quiet])
        assert float(after.cost_rate) == pytest.approx(float(expected), abs=1e-6)


def test_the_posterior_is_that_of_the_running_episode_and_starts_at_the_prior(history, params):
    ended_once = False
    for world in range(WORLDS):
        seen = []
        for _, transition, finished, after in history:
            step = jax.tree.map(lambda part, world=world: part[world], transition)
            index = jnp.array(NETS.features)
            before, change = step.observation[index], step.next_observation[index] - step.observation[index]
            seen.append(
                normalisation.encoder_input(
                    NORMALISERS, NETS.features, before, step.action, change, step.reward, step.cost
                )
            )
            if bool(finished.done[world]):
                ended_once, seen = True, []
            batch = jnp.stack(seen) if seen else jnp.zeros((1, NETS.encoder.inputs))
            expected = encoder.encode(NETS.encoder, params["encoder"], batch, jnp.full(len(batch), bool(seen)))
            running = jax.tree.map(lambda part, world=world: part[world], after.posterior)
            for ours, closed in zip(running, expected, strict=True):
                np.testing.assert_allclose(ours, closed, atol=1e-5)
    assert ended_once


def test_a_diverged_transition_says_nothing(task, first, one):
    broken = first.worlds.state._replace(speed=first.worlds.state.speed.at[0].set(jnp.nan))
    worlds = first.worlds._replace(state=broken, decision=jnp.zeros(WORLDS, jnp.int32))
    after, transition, _ = one(first._replace(worlds=worlds))
    np.testing.assert_array_equal(transition.diverged, [True] + [False] * (WORLDS - 1))
    np.testing.assert_array_equal(after.posterior.count, [0] + [1] * (WORLDS - 1))
    assert np.all(np.isfinite(jax.tree.leaves(after.posterior)[0]))
    assert float(transition.cost[0]) == task.description.max_cost
    np.testing.assert_array_equal(after.worlds.diverged, [1] + [0] * (WORLDS - 1))


def test_worlds_start_at_different_moments_of_their_episodes(task, first):
    assert len(np.unique(np.asarray(first.worlds.decision))) > 1
    assert int(jnp.max(first.worlds.decision)) < task.description.decisions_per_episode


def test_noise_with_a_memory_keeps_its_strength_and_changes_slowly(task, params):
    # A first-order process with memory 10: correlation exp(-1/10) = 0.905 from one decision to the next, variance 1.
    remembering = dataclasses.replace(CONFIG, noise_memory=10.0)
    many = randomisation.sample(TRAIN, CartParameters, jax.random.key(3), 512)

    @jit
    def walk(key):
        def one(collector, _):
            after, *_ = collect.collect(task, remembering, RiskConfig(), NETS, params, NORMALISERS, many, collector)
            return after, after.push

        return jax.lax.scan(one, collect.start(task, remembering, NETS, key, many), None, length=60)[1]

    pushes = np.asarray(walk(jax.random.key(1)))[:, :, 0]
    # 512 worlds: three standard errors are 0.09 and 0.03.
    assert np.std(pushes[-1]) == pytest.approx(1.0, abs=0.1)
    assert np.corrcoef(pushes[-2], pushes[-1])[0, 1] == pytest.approx(np.exp(-0.1), abs=0.03)
