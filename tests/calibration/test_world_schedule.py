"""Caution that follows the identified world: hand-derived tables, and worlds whose cost is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.calibration import world_schedule
from ashore.calibration.risk_level import careful_start, level_at, on_device, throughout
from ashore_runtime.world_levels import WorldLevels
from runtime.test_world_levels import WORLD

COUNTS, MEASURED = (0, 1, 2, 4, 8), (0, 4)
ETAS = (0.0, 0.5, 0.9)


def test_a_line_is_found_and_a_latent_that_stays_still_is_left_alone():
    latents = np.array([[0.0, 3.0], [1.0, 3.0], [2.0, 3.0], [3.0, 3.0]])
    costs = np.stack([1.0 + 2.0 * latents[:, 0], 5.0 - latents[:, 0]])
    # The ridge shrinks by one part in a thousand.
    np.testing.assert_allclose(world_schedule.slopes(costs, latents), np.array([[2.0, 0.0], [-1.0, 0.0]]) / 1.001)


def test_slopes_are_held_and_the_line_goes_through_the_mean_belief_of_every_count():
    # One latent, two worlds: at N = 0 nothing is known; at N = 4 beliefs -1 and 1 cost 2 and 6.
    latents = np.array([[0.0, 0.0], [-0.5, 0.5], [-0.4, 0.6], [-1.0, 1.0], [0.0, 2.0]])[:, :, None]
    costs = np.array([[[3.0, 5.0]], [[2.0, 6.0]]])
    found = world_schedule.predict(costs, latents, MEASURED, COUNTS)
    slope = 2.0 / 1.001
    np.testing.assert_allclose(found.slope[:, 0, 0], [0.0, 0.0, 0.0, slope, slope])
    np.testing.assert_allclose(found.intercept[:, 0], [4.0, 4.0, 4.0, 4.0, 4.0 - slope])
    np.testing.assert_allclose(found.at(latents)[4, 0], [4.0 - slope, 4.0 + slope])


def test_a_margin_is_conformal_the_larger_neighbours_and_never_rising():
    # At level 0.75 the next of three values is bounded by the largest.
    neutral = np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 1.0], [0.0, 0.0, 2.0], [-1.0, 0.0, 1.0], [-5.0, -4.0, -3.0]])
    careful = np.array([[[1.0, 2.0, 3.0], [1.0, 1.0, 2.0]], [[-1.0, 0.0, 1.0], [3.0, 2.0, 4.0]]])
    found = world_schedule.margins(neutral, careful, MEASURED, COUNTS, 0.75)
    # eta = 0 was measured everywhere: 3, 1, 2, 1, -3, where the 1 before the 2 is raised. The other level: 2 at N = 0
    # and 4 at N = 4, which holds before it, too.
    np.testing.assert_array_equal(found[:, 0], [3.0, 2.0, 2.0, 1.0, -3.0])
    np.testing.assert_array_equal(found[:, 1], [4.0] * 5)


def worlds(count: int, noise: float = 0.0, seed: int = 0):
    """Worlds of one latent z in [-1, 1]: level eta costs 10 + 6 z - 8 eta; beliefs are exact from N = 4 on."""
    generator = np.random.default_rng(seed)
    truth = generator.uniform(-1.0, 1.0, count)
    known = np.array([0.0, 0.3, 0.6, 1.0, 1.0])
    latents = (known[:, None] * truth)[:, :, None]
    costs = 10.0 + 6.0 * truth[None, :] - 8.0 * np.array(ETAS)[:, None]
    careful = np.tile(costs[None, :, :, None], (2, 1, 1, 3)) + noise * generator.normal(size=(2, 3, count, 3))
    neutral = np.tile(costs[None, 0, :, None], (5, 1, 3)) + noise * generator.normal(size=(5, count, 3))
    return truth, latents, neutral, careful


def build(latents, neutral, careful, level=0.9):
    reference = latents[-1]
    return world_schedule.build(ETAS, COUNTS, MEASURED, level, 12.0, latents, reference, neutral, careful)


def test_cheap_worlds_are_relaxed_and_dear_ones_are_not():
    truth, latents, neutral, careful = worlds(200)
    found = build(latents, neutral, careful)
    # At the start a world may cost 10 + 6 * 0.8 - 8 eta: 14.8, 10.8 and 7.6 of 12.
    assert set(found.eta[0]) == set(found.eta[1]) == {0.5}
    # Once z is known: 10 + 6 z <= 12 up to a third, then 6 + 6 z <= 12 in all of them.
    clear = np.abs(truth - 1.0 / 3.0) > 0.05
    expected = np.where(truth < 1.0 / 3.0, 0.0, 0.5)
    np.testing.assert_array_equal(found.eta[3][clear], expected[clear])
    assert not found.infeasible.any()
    np.testing.assert_allclose(found.r_squared, 1.0, atol=1e-5)
    # The typical world believes z = 0, nearly: careful first, without caution later.
    np.testing.assert_array_equal(found.typical.eta, [0.5, 0.5, 0.5, 0.0, 0.0])
    assert found.table.eta_percentiles[3] == (0.0, 0.0, 0.5)
    # The box is that of all worlds, fitted or judged.
    np.testing.assert_array_equal([found.table.low, found.table.high], [[truth.min()], [truth.max()]])


def test_beliefs_that_are_acted_on_are_in_the_box_however_narrow_the_reference_is():
    truth, latents, neutral, careful = worlds(200)
    reference = 0.01 * latents[-1]
    found = world_schedule.build(ETAS, COUNTS, MEASURED, 0.9, 12.0, latents, reference, neutral, careful)
    np.testing.assert_array_equal([found.table.low, found.table.high], [[truth.min()], [truth.max()]])
    # Outside the box everybody would keep the careful start of 0.5.
    assert (found.eta[-1] == 0.0).mean() > 0.5


def test_the_bound_covers_worlds_that_nobody_has_seen_at_its_level():
    # The level of 0.8 is an expectation over calibrations: 200 of them, one new world in each, 160 +- 6 covered.
    covered, draws = np.zeros(2), 200
    for seed in range(draws):
        _, latents, neutral, careful = worlds(37, noise=3.0, seed=seed)
        old = build(latents[:, :-1], neutral[:, :-1], careful[:, :, :-1], level=0.8)
        slope, margin = np.asarray(old.table.slope), np.asarray(old.table.margin)
        for row, place in enumerate((0, 3)):
            bound = old.table.intercept[place][1] + slope[place, 1] @ latents[place, -1] + margin[place, 1]
            covered[row] += careful[row, 1, -1].mean() <= bound
    # Margins are only ever raised, so that early ones may cover more.
    assert covered[0] >= 140 and 140 <= covered[1] <= 180


@pytest.mark.parametrize("latent", [(0.0, 0.0), (-0.4, 0.0), (2.2, 0.5), (9.0, 0.0), (-3.2, 0.0), (1.0, -1.5)])
def test_the_device_reads_the_table_as_the_runtime_does(latent):
    levels, table = WorldLevels(WORLD), on_device(WORLD)
    for seen, place in ((0, 0), (3, 0), (4, 1), (100, 1)):
        level = level_at((0, 4), table, jnp.int32(seen), jnp.array(latent, jnp.float32))
        assert float(level) == pytest.approx(levels.read(place, np.array(latent, np.float32))[0])
    assert float(careful_start(table)) == pytest.approx(0.9)


def test_one_level_throughout_has_the_form_of_a_table():
    constant, table = throughout((0.0, 0.5, 0.9), 2, 2, 1), on_device(WORLD)
    assert jax.tree.map(jnp.shape, constant) == jax.tree.map(jnp.shape, table)
    assert jax.tree.structure(constant) == jax.tree.structure(table)
    for belief in (-1e6, 0.0, 1e6):
        assert float(level_at((0, 4), constant, jnp.int32(9), jnp.full(2, belief, jnp.float32))) == 0.5
