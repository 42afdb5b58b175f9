"""The alternating frozen update: who moves in which step, on what, and how often it is traced."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tests.learning.small_learner import (
    BATCH,
    CONFIG,
    CONTEXT,
    LAMBDA,
    NETS,
    SIZES,
    jit,
    largest,
    make_batch,
    moved,
    pieces,
    prepared,
    start,
)

from ashore.learning import objectives, updates
from ashore.learning.losses import ENCODER_OBJECTIVES
from ashore.networks import encoder
from ashore.networks.critic import COST, REWARD

PAPER_OBJECTIVE = dataclasses.replace(CONFIG, encoder_objective=ENCODER_OBJECTIVES["critic"])
TRACES = []


@functools.partial(jit, static_argnums=0)
def compiled(config, *arguments):
    TRACES.append(config)
    state, batch, context, multiplier = arguments
    work = prepared(state, config, batch, context)
    return updates.update_step(config, state, work, multiplier)


@functools.cache
def once():
    return compiled(CONFIG, start(), BATCH, CONTEXT, LAMBDA)


def test_an_actor_that_is_not_told_the_latent_never_hears_of_it():
    deaf = dataclasses.replace(CONFIG, told=False)
    before = start(deaf)
    after, _ = compiled(deaf, before, BATCH, CONTEXT, LAMBDA)
    told, _ = once()
    of_latent = slice(NETS.seen, NETS.seen + NETS.sizes.latent)

    def kernel(state):
        return np.asarray(state.params["actor"]["dense0"]["kernel"])

    assert not kernel(before)[of_latent].any() and not kernel(after)[of_latent].any()
    assert (kernel(after)[: NETS.seen] != kernel(before)[: NETS.seen]).all()
    assert (kernel(told)[of_latent] != kernel(start())[of_latent]).all()
    # Critics hear of it all the same.
    first, then = (state.params["critics"]["features"]["dense0"]["kernel"] for state in (before, after))
    assert (first != then).any(axis=(0, 2)).all()


def test_each_step_moves_its_own_networks_and_no_other():
    state, (work, latents, targets) = start(), pieces()

    @jit
    def all_steps(state):
        return {
            ("critics",): updates.critic_step(CONFIG, state, work, latents, targets)[0],
            ("encoder", "dynamics", "actor"): updates.encoder_and_actor_step(
                CONFIG, state, work, latents, targets, LAMBDA
            )[0],
            ("encoder", "actor"): updates.encoder_and_actor_step(
                PAPER_OBJECTIVE, state, work, latents, targets, LAMBDA
            )[0],
        }

    for owned, after in all_steps(state).items():
        for name, params in state.params.items():
            assert moved(params, after.params[name]) == (name in owned), (owned, name)
            assert moved(state.optimisers[name], after.optimisers[name]) == (name in owned), (owned, name)
        assert not moved(state.targets, after.targets)


@jit
def sensitivities():
    """Gradients of all new weights of a network, after a whole update, with respect to the old ones of each."""
    state = start()

    def totals(weights):
        changed = state._replace(params=state.params | weights)
        after, _ = updates.update_step(CONFIG, changed, prepared(changed), LAMBDA)
        return {of: sum(jnp.sum(leaf) for leaf in jax.tree.leaves(after.params[of])) for of in changing}

    changing = ("critics", "actor")
    _, pull = jax.vjp(totals, {to: state.params[to] for to in ("encoder", "actor")})
    return {of: pull({other: jnp.float32(other == of) for other in changing})[0] for of in changing}


def test_no_gradient_of_the_critics_or_the_actor_reaches_the_encoder():
    found = sensitivities()
    # The numbers depend on z, but z is a constant to both steps: the derivative is exactly zero.
    assert largest(found["critics"]["encoder"]) == 0.0
    assert largest(found["actor"]["encoder"]) == 0.0
    # And no target is differentiated: the critics do not see how the actor chose the next action.
    assert largest(found["critics"]["actor"]) == 0.0
    # What is asked for is not zero by itself: a network follows its own weights.
    assert largest(found["actor"]["actor"]) > 0.0


def test_whole_update_is_critics_then_encoder_at_the_new_critics_then_actor():
    # Replayed from its parts with plain optax: the encoder's and the actor's losses use theta_{k+1}, and all use one z.
    state, (work, latents, targets) = start(), pieces()
    objective = CONFIG.objective

    def step(name, gradients, pair=False):
        optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(3e-4, weight_decay=1e-4))
        update = jax.vmap(optimiser.update) if pair else optimiser.update
        with jax.numpy_dtype_promotion("standard"):
            change, _ = update(gradients, state.optimisers[name], state.params[name])
        return optax.apply_updates(state.params[name], change)

    def critic_losses(critics, latents):
        (values,) = objectives.ask(objective, critics, objectives.taken_query(objective, work, latents))
        return objectives.critic_losses(objective, values, work, targets)

    @jit
    def replay_update():
        critics = step(
            "critics",
            jax.grad(lambda critics: jnp.sum(critic_losses(critics, latents)))(state.params["critics"]),
            pair=True,
        )

        def encoder_loss(weights, critics):
            posterior = objectives.posteriors(objective, weights, work)
            z = objectives.latents_of(posterior, work)
            per_critic = critic_losses(critics, z)
            kl = jnp.mean(jax.vmap(encoder.kl_to_prior)(posterior))
            dynamics = objectives.dynamics_loss(objective, state.params["dynamics"], work, z)
            return 0.1 * per_critic[REWARD] + 0.1 * per_critic[COST] + 1e-3 * kl + dynamics

        value, gradients = jax.value_and_grad(encoder_loss)(state.params["encoder"], critics)
        stale = encoder_loss(state.params["encoder"], state.params["critics"])

        def actor_loss(weights, critics):
            query, manners = objectives.actor_query(objective, weights, work, latents)
            (values,) = objectives.ask(objective, critics, query)
            return objectives.actor_loss(objective, values, work, manners, LAMBDA)

        actor_value, actor_gradients = jax.value_and_grad(actor_loss)(state.params["actor"], critics)
        stale_actor = actor_loss(state.params["actor"], state.params["critics"])
        params = (critics, step("encoder", gradients), step("actor", actor_gradients))
        return params, (value, optax.tree.norm(gradients), stale), (actor_value, stale_actor)

    params, (encoder_value, encoder_norm, stale), (actor_value, stale_actor) = replay_update()
    after, metrics = once()
    for name, expected in zip(("critics", "encoder", "actor"), params, strict=True):
        jax.tree.map(functools.partial(np.testing.assert_allclose, atol=2e-6), after.params[name], expected)
    # Adam's first step hardly depends on the size of a gradient; the losses tell old and new critics apart.
    assert metrics["encoder_loss"] == pytest.approx(float(encoder_value), rel=1e-6)
    assert metrics["gradient_norm_encoder"] == pytest.approx(float(encoder_norm), rel=1e-4)
    assert abs(encoder_value - stale) > 1e-5 * abs(stale)
    assert metrics["actor_loss"] == pytest.approx(float(actor_value), rel=1e-5)
    assert abs(actor_value - stale_actor) > 1e-3 * abs(stale_actor)


def test_targets_follow_by_polyak_averaging():
    state, (after, _) = start(), once()
    expected = jax.tree.map(lambda old, new: 0.995 * old + 0.005 * new, state.targets, after.params["critics"])
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7), after.targets, expected)


def test_same_key_same_numbers_and_another_key_others():
    again, metrics = compiled(CONFIG, start(), BATCH, CONTEXT, LAMBDA)
    jax.tree.map(np.testing.assert_array_equal, again.params, once()[0].params)
    jax.tree.map(np.testing.assert_array_equal, metrics, once()[1])
    other, _ = compiled(CONFIG, start()._replace(key=jax.random.key(99)), BATCH, CONTEXT, LAMBDA)
    assert moved(other.params, once()[0].params)


def test_traced_once_over_many_updates():
    state = start()
    for seed in range(4):
        state, metrics = compiled(CONFIG, state, *make_batch(seed), jnp.float32(seed))
    assert TRACES.count(CONFIG) == 1
    assert state.updates.dtype == jnp.int32
    assert state.updates == 4
    assert state.skipped == 0
    assert all(value.shape == () and value.dtype == jnp.float32 for value in metrics.values())
    assert all(bool(jnp.isfinite(value)) for value in metrics.values())


def test_metrics_agree_with_the_losses_they_name():
    _, metrics = once()
    terms = {name: float(value) for name, value in metrics.items()}
    assert terms["potential"] == pytest.approx(terms["encoder_loss"] - terms["dynamics_loss"], rel=1e-4)
    # Contexts of 6, 2 and 0 transitions.
    assert terms["context_size"] == pytest.approx(8.0 / 3.0)
    assert terms["kl"] > 0.0 and 0.0 <= terms["active_dimensions"] <= 3.0
    assert terms["q_cost"] > 0.0


def test_step_with_a_gradient_that_is_not_finite_is_not_made_and_counted():
    spoilt = BATCH._replace(reward=BATCH.reward.at[0, 0].set(jnp.nan))
    after, _ = compiled(CONFIG, start(), spoilt, CONTEXT, LAMBDA)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves((after.params, after.targets)))
    # The reward critic (its target is NaN), the encoder (its loss contains that critic's) and the dynamics head (it
    # predicts that reward) stay; the cost critic and the actor move.
    assert after.skipped == 3
    before = start().params["critics"]
    reward, cost = (
        [jax.tree.map(lambda leaf, place=place: leaf[place], tree) for tree in (before, after.params["critics"])]
        for place in (REWARD, COST)
    )
    assert not moved(*reward) and moved(*cost)


def test_critics_are_clipped_separately():
    # A huge reward gives the reward critic a huge gradient; the cost critic's step must not feel it.
    loud = BATCH._replace(reward=BATCH.reward * 1e4)
    plain, _ = once()
    after, metrics = compiled(CONFIG, start(), loud, CONTEXT, LAMBDA)
    assert metrics["gradient_norm_critic_reward"] > 1.0
    cost_kernels = [s.params["critics"]["features"]["dense0"]["kernel"][COST] for s in (plain, after)]
    np.testing.assert_array_equal(*cost_kernels)


def test_bfloat16_runs_and_keeps_float32_weights():
    nets = dataclasses.replace(NETS, sizes=dataclasses.replace(SIZES, compute="bfloat16"))
    config = dataclasses.replace(CONFIG, objective=dataclasses.replace(CONFIG.objective, architecture=nets))
    after, metrics = compiled(config, start(), BATCH, CONTEXT, LAMBDA)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(after.params)} == {"float32"}
    for name in ("critic_loss_reward", "critic_loss_cost", "actor_loss", "kl"):
        assert metrics[name] == pytest.approx(float(once()[1][name]), rel=0.05, abs=0.02)
