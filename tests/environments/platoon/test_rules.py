"""Observation, reward and cost: hand-computed moments, and a second transcription on random ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.environments.platoon import Platoon, PlatoonConfig, c_rules, rules
from ashore.environments.platoon.rules import Moment

CONFIG = PlatoonConfig()


def moment(**values: float) -> Moment:
    quiet = Moment(*(jnp.float32(value) for value in (10, 0, 0, 10, 0, 0, 20, 10, 20)))
    return quiet._replace(**{name: jnp.float32(value) for name, value in values.items()})


def test_reward_by_hand() -> None:
    terms = rules.reward_terms(CONFIG, moment(ego_speed=12, ego_acceleration=2, ego_jerk=-3, lead_gap=9))
    # -0.1 (12 - 10)^2, 12^2 / 225, -0.1 x 4, -0.01 x 9
    expected = {"closing": -0.4, "speed": 0.64, "acceleration": -0.4, "jerk": -0.09}
    assert {name: float(term) for name, term in terms.items()} == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("values", "name", "expected"),
    [
        ({"ego_speed": 12, "lead_gap": 10}, "closing", 0.0),
        ({"ego_speed": 8, "lead_gap": 5}, "closing", 0.0),
        ({"ego_speed": 30}, "speed", 1.0),
    ],
)
def test_rewards_at_their_thresholds(values: dict[str, float], name: str, expected: float) -> None:
    assert float(rules.reward_terms(CONFIG, moment(**values))[name]) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("values", "front", "rear"),
    [
        # Two metres per second faster than the car 20 m ahead: 0.1 per second; nobody closes in from behind.
        ({"ego_speed": 12}, 0.1, 0.0),
        # The car 5 m behind is 1 m/s faster: 0.2.
        ({"follow_speed": 11, "follow_gap": 5}, 0.0, 0.2),
        # Both sides: 2 / 20 = 0.1 ahead, 3 / 10 = 0.3 behind; only the worse one pays.
        ({"ego_speed": 12, "follow_speed": 15, "follow_gap": 10}, 0.0, 0.3),
        # The gap is floored at 0.5 m: 0.4 / 0.5; also when the cars overlap.
        ({"ego_speed": 10.4, "lead_gap": 0.1}, 0.8, 0.0),
        ({"ego_speed": 10.4, "lead_gap": -3}, 0.8, 0.0),
        # The cap; a tie at the cap is the front's.
        ({"ego_speed": 18, "lead_gap": 1, "follow_speed": 25, "follow_gap": 1}, 2.0, 0.0),
        # Opening gaps cost nothing.
        ({"ego_speed": 9, "lead_gap": 1, "follow_speed": 8, "follow_gap": 1}, 0.0, 0.0),
    ],
)
def test_cost_by_hand(values: dict[str, float], front: float, rear: float) -> None:
    terms = rules.cost_terms(CONFIG, moment(**values))
    assert (float(terms["front"]), float(terms["rear"])) == pytest.approx((front, rear), abs=1e-6)


def test_a_thousand_random_moments_in_two_transcriptions() -> None:
    low = (0, -8, -40, 0, -8, -40, -8, 0, -8)
    high = (50, 8, 40, 50, 8, 40, 70, 50, 70)
    draws = np.random.default_rng(7).uniform(low, high, (1000, 9)).astype(np.float32)
    # A third of them in the near, slow regime where most clauses switch.
    draws[:333, [0, 3, 7]] /= 5
    draws[:333, [6, 8]] /= 5

    @jax.jit
    @jax.vmap
    def both(row: jax.Array) -> tuple[jax.Array, dict[str, jax.Array], dict[str, jax.Array]]:
        values = Moment(*row)
        return rules.observation(values), rules.reward_terms(CONFIG, values), rules.cost_terms(CONFIG, values)

    observation, reward, cost = jax.tree.map(np.asarray, both(jnp.asarray(draws)))
    for index, row in enumerate(draws.astype(float)):
        again = tuple(row.tolist())
        np.testing.assert_allclose(observation[index], c_rules.observation(again), rtol=1e-6, atol=1e-6)
        for name, term in c_rules.reward_terms(CONFIG, again).items():
            assert reward[name][index] == pytest.approx(term, rel=1e-5, abs=1e-5), name
        for name, term in c_rules.cost_terms(CONFIG, again).items():
            assert cost[name][index] == pytest.approx(term, rel=1e-4, abs=1e-6), name
    # Every clause was exercised.
    assert (cost["front"] == 2).any()
    assert (cost["rear"] == 2).any()
    assert ((cost["front"] > 0) & (cost["front"] < 2)).any()
    assert ((cost["rear"] > 0) & (cost["rear"] < 2)).any()
    assert (reward["closing"] < 0).any()
    assert (reward["closing"] == 0).any()


def test_scales_of_the_observation() -> None:
    seen = rules.observation(Moment(*(jnp.float32(value) for value in (15, 3, 5, 30, -6, -10, 30, 7.5, 45))))
    np.testing.assert_allclose(seen, [1, 1, 1, 2, -2, -2, 1, 0.5, 1.5], rtol=1e-6)


def test_observations_stay_within_their_declared_bounds(task: Platoon) -> None:
    low, high = task.description.observation_bounds
    for extreme, bound in ((-1e9, low), (1e9, high)):
        seen = rules.observation(Moment(*(jnp.float32(extreme) for _ in range(9))))
        np.testing.assert_array_equal(np.asarray(seen), bound)
