"""The gradient through the physics: equal to what can be worked out by hand, and followed to a known optimum."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tests.compilation import jit
from tests.learning import small_learner
from tests.learning.small_learner import LAMBDA
from tests.learning.test_train import CONFIG
from tests.toy_world import PERIOD, Cart, CartConfig, CartParameters

from ashore.environments import tasks
from ashore.experiments.matrix_work import flops
from ashore.learning import normalisation, plain_updates, through_physics, train, train_config, updates
from ashore.learning.risk import RiskConfig
from ashore.learning.through_physics import Episodes, ThroughPhysics
from ashore.methods import registry

LENGTH = 10
TASK = Cart(CartConfig(decisions=LENGTH))
RECIPE = train.paper_recipe(TASK)
TAUGHT = replace(CONFIG, through_physics=ThroughPhysics(steps=2, worlds=4))
PHYSICS = CartParameters(mass=jnp.array([0.5, 1.0, 2.0]), thrust=jnp.array([0.0, 1.0, 0.5]))
GAIN = np.array([2.0, 2.0, 0.75])
"""(1 + thrust) / mass of each."""


def settings(config, recipe=RECIPE):
    return train_config.learner_config(TASK, config, recipe)


def episodes(actor, longest=None, carried=0.0):
    state = train.start(TASK, TAUGHT, jax.random.key(0))
    normalisers = normalisation.init(2, 1)
    levels = jnp.zeros(3, jnp.float32)
    params = state.learner.params | {"actor": actor}
    given = (TASK, settings(TAUGHT), RECIPE, params, normalisers, None, PHYSICS, levels, longest, carried)
    return Episodes(*given).run(jax.random.key(1))


def constant_push(before_squashing: float):
    actor = jax.eval_shape(lambda key: train.start(TASK, TAUGHT, key), jax.random.key(0)).learner.params["actor"]
    actor = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), actor)
    actor["output"]["bias"] = jnp.full(1, before_squashing)
    return actor


@pytest.mark.parametrize(("written_out", "carried"), [(1, 0.0), (4, 0.75), (64, 0.0)])
def test_return_and_its_derivative_are_those_of_the_closed_form(written_out, carried, monkeypatch: pytest.MonkeyPatch):
    # Decisions written out divide the episode, do not, or are more than there are: it is the same episode. What
    # happened before it is given: nothing of that is in return or derivative.
    monkeypatch.setattr(through_physics, "WRITTEN_OUT", {jax.default_backend(): written_out})
    # Under a constant push u the way is h^2 g u n (n + 1) / 2, and every decision costs 0.1 u^2 of effort.
    bias = 0.3
    push, way = np.tanh(bias), PERIOD**2 * GAIN * LENGTH * (LENGTH + 1) / 2
    # A function of its own: one that was traced before would keep what it was traced with.
    returns, costs = jit(lambda actor: episodes(actor, carried=carried))(constant_push(bias))
    np.testing.assert_allclose(returns, way * push - 0.1 * LENGTH * push**2, rtol=1e-5)
    assert not costs.any()
    slopes = jit(jax.jacrev(lambda actor: episodes(actor, carried=carried)[0]))(constant_push(bias))["output"]["bias"][
        :, 0
    ]
    by_hand = (way - 0.2 * LENGTH * push) * (1 - push**2)
    np.testing.assert_allclose(slopes, by_hand, rtol=1e-5)


@pytest.mark.parametrize(
    ("carried", "worlds_by_episodes_before"),
    [(0.0, {0: 96}), (1.0, {1: 32, 2: 32, 3: 32}), (0.5, {0: 48, 1: 16, 2: 16, 3: 16})],
)
def test_an_episode_begins_with_the_belief_that_is_carried_to_it(carried, worlds_by_episodes_before):
    """An encoder that says 1 with precision 1 whatever happens, and an actor that pushes as hard as it believes."""
    state = train.start(TASK, TAUGHT, jax.random.key(0))
    nets = settings(TAUGHT).objective.architecture
    weights = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), state.learner.params)
    actor, latent = weights["actor"], nets.sizes.latent
    actor["dense0"]["kernel"] = actor["dense0"]["kernel"].at[nets.seen, 0].set(1.0)
    actor["output"]["kernel"] = actor["output"]["kernel"].at[0, 0].set(1.0)
    # The second half is a precision before its softplus: log(1 + exp(log(e - 1))) = 1.
    said = np.repeat([1.0, np.log(np.e - 1.0)], latent).astype(np.float32)
    weights["encoder"]["output"]["bias"] = jnp.asarray(said)
    normalisers, levels = normalisation.init(2, 1), jnp.zeros(96, jnp.float32)
    physics = CartParameters(mass=jnp.full(96, 0.5), thrust=jnp.zeros(96))

    def returns(kernel):
        changed = {**actor, "output": {**actor["output"], "kernel": kernel}}
        params = state.learner.params | {"actor": changed, "encoder": weights["encoder"]}
        given = (TASK, settings(TAUGHT), RECIPE, params, normalisers, None, physics, levels, None, carried, 3)
        return Episodes(*given).run(jax.random.key(1))[0]

    kernel = actor["output"]["kernel"]
    found = np.asarray(jit(returns)(kernel))
    slopes = np.asarray(jit(jax.jacfwd(returns))(kernel))[:, 0, 0]
    # With n transitions known, E[z] = n / (1 + n). A weight of w on it gives the push u = tanh(w E[z]), which moves the
    # cart h^2 g u_k in each of the n - k decisions from then on and costs 0.1 u_k^2. What is believed is given.
    k = np.arange(LENGTH)
    belongs = []
    for before in range(4):
        known = (before * LENGTH + k) / (1.0 + before * LENGTH + k)
        push = np.tanh(known)
        by_hand = PERIOD**2 * 2.0 * np.sum(push * (LENGTH - k)) - 0.1 * np.sum(push**2)
        slope = np.sum((PERIOD**2 * 2.0 * (LENGTH - k) - 0.2 * push) * (1 - push**2) * known)
        belongs.append(np.isclose(found, by_hand, atol=2e-6) & np.isclose(slopes, slope, atol=2e-6))
    worlds = np.sum(belongs, axis=1)
    assert worlds.sum() == 96
    # Four standard deviations of a binomial at most.
    expected = np.array([worlds_by_episodes_before.get(before, 0) for before in range(4)])
    assert np.all(np.abs(worlds - expected) <= 4.0 * np.sqrt(expected * (1 - expected / 96)))


def test_the_known_optimum_is_reached():
    # dJ/du_k = h^2 g (n - k) - 0.2 u_k, so the best push is u_k = 5 h^2 g (n - k) in a world that is known, and the
    # best return the sum of 0.1 u_k^2. All worlds are nominal here: g = 1.
    config = replace(
        TAUGHT,
        chunk=1,
        decisions=40,
        updates_per_decision=1,
        actor_learning_rate=1e-2,
        through_physics=ThroughPhysics(steps=8, late=2, worlds=8),
    )
    recipe = replace(train.paper_recipe(TASK), ranges=TASK.description.shifts["nominal"])
    best = float(sum(0.1 * (5 * PERIOD**2 * (LENGTH - k)) ** 2 for k in range(LENGTH)))
    assert best == pytest.approx(0.09625)
    chunk = jit(lambda state: train.train_chunk(TASK, config, state, recipe))
    state, rows = train.start(TASK, config, jax.random.key(0), recipe), []
    for _ in range(40):
        state, metrics = chunk(state)
        rows.append(float(metrics["physics_return"]))
    assert rows[0] < 0.05
    assert 0.95 * best < np.mean(rows[-5:]) < best + 1e-6
    # Of forty chunks the last eight have sixteen steps instead of eight.
    assert int(adam_steps(state.learner)) == 32 * 8 + 8 * 16


@pytest.mark.parametrize("rules", [updates, plain_updates])
def test_only_the_actor_is_taught_elsewhere(rules):
    """Critics, encoder and dynamics head take the very step that they take beside an actor that learns from them."""
    state = small_learner.start()
    after = [
        jit(lambda state, config=config: rules.update_step(config, state, small_learner.prepared(state), LAMBDA)[0])(
            state
        )
        for config in (small_learner.CONFIG, replace(small_learner.CONFIG, actor_steps=8))
    ]
    for name in ("critics", "encoder", "dynamics"):
        leaves = (jax.tree.leaves(learner.params[name]) for learner in after)
        for beside_a_learner, alone in zip(*leaves, strict=True):
            np.testing.assert_allclose(beside_a_learner, alone, rtol=1e-5, atol=1e-7)
    taught_here, left_alone = (learner.params["actor"] for learner in after)
    assert small_learner.moved(state.params["actor"], taught_here)
    assert not small_learner.moved(state.params["actor"], left_alone)


def test_rates_fall_over_the_steps_that_the_actor_takes():
    assert settings(CONFIG).actor_steps is None
    # Twelve decisions in chunks of three: four chunks of two steps.
    assert settings(TAUGHT).actor_steps == 8


def test_the_last_fifth_of_a_run_may_have_more_steps():
    often = ThroughPhysics(steps=2, late=5)
    assert [int(often.steps_after(chunk, 11)) for chunk in range(1, 12)] == [2] * 9 + [10] * 2
    assert often.all_steps(11) == 2 * 9 + 10 * 2 and replace(often, late=1).all_steps(11) == 22
    # Several seeds in one program, as a run has them, are each what they are alone.
    keys = jnp.stack([jax.random.key(0), jax.random.key(1)])
    seeds = jax.vmap(lambda key: train.start(TASK, TAUGHT, key))(keys)

    def improve(state, chunk):
        given = (state.learner, state.normalisers, None)
        steps = often.steps_after(chunk, 11)
        return through_physics.improve(TASK, often, settings(TAUGHT), RECIPE, *given, steps=steps)[0]

    together = jit(jax.vmap(improve))(seeds, jnp.array([9, 10]))
    assert adam_steps(together).tolist() == [2, 10]
    alone = jit(improve)(jax.tree.map(lambda leaf: leaf[1], seeds), 10)
    for one, beside in zip(*(jax.tree.leaves(found.params["actor"]) for found in (alone, together)), strict=True):
        np.testing.assert_allclose(one, beside[1], rtol=1e-4, atol=1e-5)


def adam_steps(learner):
    def of_adam(path, _) -> bool:
        return any(getattr(part, "tuple_name", None) == "ScaleByAdamState" for part in path)

    return np.asarray(optax.tree.get(learner.optimisers["actor"], "count", filtering=of_adam))


def test_what_would_do_nothing_is_refused():
    with pytest.raises(ValueError, match="which are 0"):
        ThroughPhysics(late=2)
    with pytest.raises(ValueError, match="of which an actor with told=False hears nothing"):
        replace(TAUGHT, told=False, through_physics=ThroughPhysics(steps=1, carried=0.5))
    nominal = registry.lookup("nominal")
    with pytest.raises(ValueError, match="told=False is for methods that have a latent"):
        nominal.trained_by(TASK, replace(CONFIG, told=False))
    with pytest.raises(ValueError, match="A run of 4 chunks has no last fifth"):
        replace(TAUGHT, through_physics=ThroughPhysics(steps=1, late=2))


def test_the_work_of_all_steps_is_counted():
    def work(steps: int, told: bool = True) -> int:
        config = replace(TAUGHT, through_physics=ThroughPhysics(steps=steps, worlds=4), told=told)
        state = jax.eval_shape(lambda key: train.start(TASK, config, key), jax.random.key(0))
        return flops(lambda state: train.train_chunk(TASK, config, state), state)

    one, two, three = (work(steps) for steps in (1, 2, 3))
    assert two - one == three - two > 0
    # What the actor is not told need not be believed: in 4 worlds an encoder from 5 numbers over 16 to 10 is saved.
    untold = work(2, told=False) - work(1, told=False)
    assert two - one - untold == LENGTH * 4 * 2 * (5 * 16 + 16 * 10)


def test_an_actor_that_is_not_told_the_latent_learns_the_same_with_beliefs_and_without():
    untold = replace(TAUGHT, told=False, averaging=2.0)
    state = train.start(TASK, untold, jax.random.key(0))
    chunk = jit(lambda state: train.train_chunk(TASK, untold, state)[0])
    after = chunk(chunk(state))
    nets, levels = settings(untold).objective.architecture, jnp.zeros(3, jnp.float32)
    for actor in (after.learner.params["actor"], after.averaged):
        assert actor is not None and small_learner.moved(state.learner.params["actor"], actor)
        assert not np.asarray(actor["dense0"]["kernel"])[nets.seen : nets.seen + nets.sizes.latent].any()

    def found(config, actor):
        given = (RECIPE, after.learner.params | {"actor": actor}, after.normalisers, None, PHYSICS, levels)
        returned, cost = Episodes(TASK, settings(config), *given).run(jax.random.key(1))
        return jnp.sum(returned - cost)

    # Beliefs are formed where the actor is told; one that multiplies them by zero does and learns the same.
    both = [
        jit(jax.value_and_grad(lambda actor, config=config: found(config, actor)))(after.averaged)
        for config in (untold, TAUGHT)
    ]
    (value, slope), (beside, told) = both
    assert float(value) == pytest.approx(float(beside), rel=1e-6) and float(value) != 0.0
    told = updates.as_told(settings(untold), told)
    slope = updates.as_told(settings(untold), slope)
    for one, other in zip(jax.tree.leaves(slope), jax.tree.leaves(told), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_metrics_are_the_mean_over_the_steps_that_were_taken():
    state = train.start(TASK, TAUGHT, jax.random.key(0))
    still = replace(settings(TAUGHT), actor_learning_rate=1e-12, weight_decay=0.0)
    improve = jit(
        lambda steps: through_physics.improve(
            TASK, TAUGHT.through_physics, still, RECIPE, state.learner, state.normalisers, None, steps=steps
        )[1]["physics_return"]
    )
    one, *_, many = (float(improve(steps)) for steps in (1, 4, 16))
    # The same actor in other worlds: not the sum of sixteen.
    assert one != many and many == pytest.approx(one, rel=0.5)


def test_derivatives_are_cut_by_world_on_the_way_back_alone():
    # Of lengths 5, 5 / 2 and not a number; at most 2.5 is left, of each world by itself.
    slope = jnp.array([[3.0, 4.0], [1.5, 2.0], [jnp.nan, 1.0]])
    worlds = {"place": jnp.ones((3, 1)), "speed": jnp.full(3, 2.0), "decision": jnp.arange(3)}

    def total(floats):
        passed = through_physics.cut_on_the_way_back(2.5, worlds | floats)
        counted = passed["decision"].astype(jnp.float32)
        return jnp.sum(slope[:, 0] * passed["place"][:, 0] + slope[:, 1] * passed["speed"] + counted)

    found = jax.grad(total)({"place": worlds["place"], "speed": worlds["speed"]})
    np.testing.assert_allclose(found["place"][:, 0], [1.5, 1.5, 0.0])
    np.testing.assert_allclose(found["speed"], [2.0, 2.0, 0.0])


@pytest.mark.parametrize(("longest", "same"), [(1e6, True), (1e-3, False)])
def test_a_limit_changes_derivatives_that_are_longer_and_no_episode(longest, same):
    def summed(actor, longest):
        returns, costs = episodes(actor, longest)
        return jnp.sum(returns), (returns, costs)

    slope = jit(jax.grad(summed, has_aux=True), static_argnums=1)
    free, happened = slope(constant_push(0.3), None)
    limited, happened_too = slope(constant_push(0.3), longest)
    np.testing.assert_array_equal(happened, happened_too)
    closeness = np.isclose(free["output"]["bias"], limited["output"]["bias"], rtol=1e-6)
    assert np.all(closeness) == same


@pytest.mark.parametrize(("neutral_share", "strays"), [(0.999, False), (0.0, True)])
def test_worlds_stray_where_the_policy_is_careful_and_nowhere_else(neutral_share, strays):
    risk = RiskConfig(conditioned=True, neutral_share=neutral_share)
    config = settings(replace(TAUGHT, risk=risk))
    state = train.start(TASK, replace(TAUGHT, risk=risk), jax.random.key(0))
    improve = jit(
        lambda beyond: through_physics.improve(
            TASK, TAUGHT.through_physics, config, RECIPE, state.learner, state.normalisers, None, beyond=beyond, steps=2
        )[1]["physics_return"],
        static_argnums=0,
    )
    assert (improve(1.0) != improve(3.0)) == strays


@pytest.mark.parametrize("method", ["pearl", "spidr"])
def test_methods_with_an_actor_of_their_own_keep_it(method):
    make = registry.lookup(method).recipe
    assert make is not None
    assert settings(TAUGHT, make(TASK, TAUGHT)).actor_steps is None


def test_contacts_are_refused():
    family = tasks.lookup("PointGoal2")
    with pytest.raises(ValueError, match="PointGoal2 cannot be differentiated"):
        registry.lookup("risk_adaptive").trained_by(family.make(family.presets["default"]), TAUGHT)
    with pytest.raises(ValueError, match="no negative steps"):
        ThroughPhysics(steps=-1)
    with pytest.raises(ValueError, match="carried is a share of the worlds, from 0 to 1, and not 1.5"):
        ThroughPhysics(carried=1.5)
    with pytest.raises(ValueError, match="about the worlds of through_physics.steps, which are 0"):
        ThroughPhysics(carried=0.5)
    with pytest.raises(ValueError, match="carried_episodes must be at least 1"):
        ThroughPhysics(steps=1, carried_episodes=0)
    with pytest.raises(ValueError, match="longest must be above 0"):
        ThroughPhysics(longest=0.0)


@pytest.mark.parametrize(("method", "told"), [("pearl", 1), ("robust", 1), ("domain_randomisation", 0)])
def test_who_keeps_to_the_critics_says_so(method, told):
    platoon = tasks.lookup("Platoon")
    task = platoon.make(platoon.presets[platoon.default_preset])
    assert len(registry.lookup(method).advice(task, TAUGHT)) == told
    assert registry.lookup(method).advice(task, CONFIG) == ()
