"""SPiDR: what disagreement is, whose it is, and where it is charged."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.compilation import jit
from tests.toy_world import PERIOD, TRAIN, Cart, CartParameters, CartState

from ashore.environments import randomisation, tasks
from ashore.experiments import presets
from ashore.learning import disagreement, normalisation, objectives, replay, train
from ashore.learning.disagreement import DisagreementConfig
from ashore.learning.objectives import ObjectiveConfig
from ashore.learning.replay import ReplayConfig
from ashore.learning.train_config import TrainConfig
from ashore.methods import spidr
from ashore.networks.architecture import Architecture, Sizes
from ashore.networks.critic import COST
from ashore.types import Transition

TASK = Cart()
NORMALISERS = normalisation.init(2, 1)
STATES = CartState(jnp.array([0.3, -0.2]), jnp.array([0.1, 0.4]), jnp.zeros(2))
ACTIONS = jnp.array([[0.7], [-0.4]])


def models(count: int = 8) -> CartParameters:
    return randomisation.sample(TRAIN, CartParameters, jax.random.key(0), count)


def test_disagreement_of_a_linear_system_is_its_variance():
    # v' = v + h k u and x' = x + h v' with k = (1 + thrust) / mass: over the models Var v' = h^2 u^2 Var k and
    # Var x' = h^2 Var v', so the mean over both numbers is h^2 (1 + h^2) u^2 Var k / 2.
    ensemble = models()
    variance = np.var((1.0 + np.asarray(ensemble.thrust)) / np.asarray(ensemble.mass))
    expected = PERIOD**2 * (1.0 + PERIOD**2) * np.square(np.asarray(ACTIONS[:, 0])) * variance / 2.0
    config = DisagreementConfig(weight=3.0)
    charged = disagreement.penalties(config, TASK, NORMALISERS, ensemble, STATES, ACTIONS)
    np.testing.assert_allclose(charged, 3.0 * expected, rtol=1e-4)


def test_models_that_agree_charge_nothing():
    same = jax.tree.map(lambda field: jnp.full(8, field[0]), models())
    alike = disagreement.penalties(DisagreementConfig(), TASK, NORMALISERS, same, STATES, ACTIONS)
    # But for the rounding of their mean.
    np.testing.assert_allclose(alike, np.zeros(2), atol=1e-14)
    # And without an action the physics of the cart does not show.
    still = disagreement.penalties(DisagreementConfig(), TASK, NORMALISERS, models(), STATES, jnp.zeros((2, 1)))
    np.testing.assert_allclose(still, np.zeros(2), atol=1e-12)


def test_dynamics_features_are_compared_in_units_of_their_usual_change():
    # Speed is the cart's only dynamics feature. Its usual change has standard deviation 0.05.
    known = NORMALISERS._replace(change=NORMALISERS.change._replace(variance=jnp.array([0.05**2])))
    ensemble = models()
    speeds = np.asarray(STATES.speed)[:, None] + PERIOD * np.asarray(ACTIONS) * (
        (1.0 + np.asarray(ensemble.thrust)) / np.asarray(ensemble.mass)
    )
    config = DisagreementConfig(weight=1.0, compare="dynamics")
    charged = disagreement.penalties(config, TASK, known, ensemble, STATES, ACTIONS)
    np.testing.assert_allclose(charged, np.var(speeds / 0.05, axis=1), rtol=1e-4)


def test_broken_models_are_not_counted_and_huge_disagreement_is_cut():
    seen = jnp.array([[1.0, 0.0], [3.0, 0.0], [jnp.nan, jnp.inf]])
    # Var(1, 3) = 1 and Var(0, 0) = 0.
    assert disagreement.disagreement(seen) == pytest.approx(0.5)
    assert disagreement.disagreement(jnp.full((3, 2), jnp.nan)) == 0.0
    assert disagreement.disagreement(1e4 * seen) == 1000.0


def test_the_penalty_is_in_the_cost_target_and_nowhere_else():
    config = ReplayConfig(
        2, 2, 1, (1,), capacity=4, window=4, batch_tasks=2, batch_transitions=3, context=0, penalised=True
    )
    objective = ObjectiveConfig(Architecture(2, 1, (1,), Sizes(hidden=(4,), fractions=2)))
    no = jnp.zeros(2, bool)
    step = Transition(jnp.ones((2, 2)), ACTIONS, jnp.ones(2), jnp.array([2.0, 2.0]), jnp.ones((2, 2)), no, no, no)

    @jit
    def drawn():
        rings = replay.add(config, replay.init(config), step, ~no, jnp.array([0.5, 0.5]))
        drawn = replay.sample(config, rings, jax.random.key(0))
        return drawn[0], objectives.prepare(objective, jax.random.key(0), NORMALISERS, *drawn)

    batch, work = drawn()
    np.testing.assert_array_equal(batch.cost, np.full((2, 3), 2.0))
    np.testing.assert_array_equal(batch.penalty, np.full((2, 3), 0.5))
    np.testing.assert_array_equal(work.signals, np.tile([1.0, 2.5], (6, 1)))
    # (change, reward, cost) for the dynamics head, under normalisers that have seen nothing: the true cost.
    np.testing.assert_array_equal(work.dynamics_target[:, -1], np.full(6, 2.0))


def test_the_penalty_of_every_step_is_in_the_target():
    config = ReplayConfig(
        1, 2, 1, (1,), capacity=4, window=4, batch_tasks=1, batch_transitions=20, context=0, penalised=True, steps=3
    )
    nets = Architecture(2, 1, (1,), Sizes(hidden=(4,), fractions=2))
    objective = ObjectiveConfig(nets, discount_reward=0.5, discount_cost=0.5)
    no = jnp.zeros(1, bool)

    @jit
    def drawn():
        rings = replay.init(config)
        for number in (1.0, 2.0, 3.0):
            seen = jnp.full((1, 2), number)
            step = Transition(seen, ACTIONS[:1], jnp.ones(1), jnp.array([number]), seen, no, no, no)
            rings = replay.add(config, rings, step, ~no, jnp.array([8.0 * number]))
        drawn = replay.sample(config, rings, jax.random.key(0))
        return drawn[0].cost[0], objectives.prepare(objective, jax.random.key(0), NORMALISERS, *drawn)

    cost, work = drawn()
    # Nine times the number, penalty included: 9 + 18 / 2 + 27 / 4 = 24.75; 18 + 27 / 2 = 31.5; 27.
    by_hand = {1.0: 24.75, 2.0: 31.5, 3.0: 27.0}
    np.testing.assert_allclose(work.signals[:, COST], [by_hand[float(first)] for first in cost], rtol=1e-6)
    assert set(np.asarray(cost)) == set(by_hand)


def test_everybodys_multiplier_answers_to_the_penalised_cost():
    smoke = presets.lookup("Platoon", "smoke").train
    config = replace(
        smoke, chunk=1, learning_starts=0, spidr=DisagreementConfig(weight=5.0, compare="dynamics", multiplier="pid")
    )
    # In the place of the multiplier: what it was told the cost of a decision is.
    told = replace(
        spidr.recipe(TASK, config),
        constrain=lambda _config, multiplier, cost, _wanted: multiplier._replace(multiplier=cost),
    )

    @jit
    def one_decision():
        state = train.start(TASK, config, jax.random.key(0), told)
        return train.train_chunk(TASK, config, state, told)[1]

    metrics = one_decision()
    per_episode = TASK.description.budget.decisions_per_episode * metrics["multiplier"]
    assert metrics["penalty_rate"] > 0.0
    np.testing.assert_allclose(per_episode, metrics["cost_rate"] + metrics["penalty_rate"], rtol=1e-5)


def test_faithful_ranges_are_spidrs_where_it_has_some():
    family = tasks.lookup("PointGoal2")
    task = family.make(family.presets[family.default_preset])
    rows = {row.name: (row.low, row.high) for row in spidr.ranges_of(task, TrainConfig())}
    assert rows == {
        "damping_xy": (1.0, 1.0),
        "damping_z": (1.0, 1.0),
        "gear_x": (-0.2, 0.2),
        "gear_z": (-0.1, 0.1),
        "mass": (1.0, 1.0),
    }
    assert spidr.remarks(task, TrainConfig()) == ()
    wide = replace(TrainConfig(), spidr=DisagreementConfig(ranges="train"))
    assert spidr.ranges_of(task, wide) == task.description.shifts["train"]
    assert spidr.ranges_of(TASK, TrainConfig()) == TRAIN
    no_own = "SPiDR has no ranges of its own for Cart: worlds and models come from Train."
    normalised = replace(TrainConfig(), spidr=DisagreementConfig(compare="dynamics"))
    assert spidr.remarks(TASK, normalised) == (no_own,)
    # Where raw observations meet ranges that are not SPiDR's, somebody should be told what decides.
    first, raw = spidr.remarks(TASK, TrainConfig())
    assert first == no_own and "compared in raw units" in raw and spidr.remarks(task, wide) == (raw,)


def test_a_wrong_setting_is_answered_in_one_sentence():
    with pytest.raises(ValueError, match="spidr.compare is one of observations, dynamics, not 'all'"):
        DisagreementConfig(compare="all")
