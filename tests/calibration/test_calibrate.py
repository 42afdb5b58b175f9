"""Calibration recovers what is known in closed form, stops where it is asked to, and goes on from there."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.calibration import careful_deployment, contexts, realised_cost, tempering
from ashore.calibration.calibrate import calibrate
from ashore.calibration.config import CalibrationConfig, Subject
from ashore.calibration.ledger import Ledger, Paused
from ashore.environments import randomisation
from tests.calibration.linear_world import DISCOUNT, LENGTH, NOISE, LinearAgent, LinearWorld, error_exceeded_by
from tests.compilation import quickly

pytestmark = pytest.mark.usefixtures("compiled_quickly")
CONFIG = CalibrationConfig(
    level=0.9,
    environments=400,
    episodes=2,
    first_episodes=1,
    largest_count=16,
    reference=64,
    etas=(0.0, 0.3, 0.6, 0.9),
    reduction_counts=(0, 4),
    rule="max",
    worlds_at_once=4096,
)
SUBJECT = Subject(LinearWorld(), LinearAgent(), jnp.float32(1.0), LinearWorld().description.budget)
FOR_EVER = 1.0 / (1.0 - DISCOUNT)
"""From cost per decision to the discounted unit."""


def order_statistic_error(density: float) -> float:
    """Standard deviation of the 90 % order statistic of 400 draws."""
    return math.sqrt(0.9 * 0.1 / 400) / density


@pytest.fixture(scope="session")
def calibration():
    with quickly():
        return calibrate(SUBJECT, CONFIG, Ledger())


def test_the_latent_error_is_the_known_one_within_sampling_error(calibration):
    assert CONFIG.counts == (0, 1, 2, 4, 8, 16)
    reference = LENGTH * 2 * (contexts.replicas(SUBJECT.task, CONFIG) - 1)
    assert reference == 64
    for count, measured in zip(CONFIG.counts, calibration.measured.epsilon.value, strict=True):
        expected, density = error_exceeded_by(0.1, count, reference)
        assert measured == pytest.approx(expected, abs=4.0 * order_statistic_error(density))


def test_the_sensitivity_is_the_known_one_within_sampling_error(calibration):
    # The ratio is slope / (1 - gamma) in every world, slope uniform in [1, 2]: its 90 % quantile is 1.9 / (1 - gamma).
    tolerance = 4.0 * order_statistic_error(1.0 / FOR_EVER)
    np.testing.assert_allclose(calibration.measured.lipschitz.value, 1.9 * FOR_EVER, atol=tolerance)
    # Common random numbers leave no noise: the bootstrap's error is that of the draw of worlds.
    np.testing.assert_allclose(
        calibration.measured.lipschitz.standard_error, order_statistic_error(1.0 / FOR_EVER), rtol=0.6
    )
    np.testing.assert_allclose(calibration.measured.episode_error, 0.0, atol=1e-4)


def test_the_direct_difference_is_below_the_product_of_the_two_quantiles(calibration):
    measured = calibration.measured
    assert np.all(measured.direct.value > 0.0)
    assert np.all(measured.direct.value < measured.lipschitz.value * measured.epsilon.value)


def test_the_cost_reduction_is_the_known_one_within_sampling_error(calibration):
    # grip eta / (1 - gamma) in every world, grip uniform in [0.5, 1.5]: 90 % of worlds gain at least 0.6 of it.
    expected = 0.6 * np.array(CONFIG.etas) * FOR_EVER
    tolerance = 4.0 * order_statistic_error(1.0) * FOR_EVER
    np.testing.assert_allclose(calibration.measured.delta.value, np.tile(expected, (6, 1)), atol=tolerance)
    np.testing.assert_allclose(
        calibration.measured.mean_delta, np.tile(np.array(CONFIG.etas) * FOR_EVER, (2, 1)), atol=0.5
    )
    assert np.all(calibration.measured.delta.value[:, 0] == 0.0)
    np.testing.assert_array_equal(calibration.measured.triggered, np.tile([0.0, 0.0, 1.0, 1.0], (2, 1)))
    np.testing.assert_allclose(calibration.measured.episode_return, -LENGTH * np.tile(CONFIG.etas, (2, 1)), rtol=1e-5)


def test_the_noise_floor_is_that_of_two_independent_means(calibration):
    # Two means over two episodes of eight decisions: N(0, 2 NOISE^2 / 16), 90 % of it within 1.645 deviations.
    expected = 1.645 * NOISE * math.sqrt(2.0 / (2 * LENGTH)) * FOR_EVER
    assert calibration.measured.noise_floor.value[0] == pytest.approx(expected, rel=0.2)


def test_an_honest_posterior_needs_little_tempering_and_a_boastful_one_as_much_as_it_boasts():
    known = tempering.measure
    generator = np.random.default_rng(0)
    truth = generator.normal(size=(2000, 1))
    counts = np.array([1, 4, 16])
    sights = [truth + generator.normal(size=truth.shape) / np.sqrt(count) for count in counts]
    precision = np.ones((3, 2000, 1)) * counts[:, None, None]
    sums = np.stack(sights) * precision
    assert known(sums, precision, truth).factor > 0.9
    boastful = known(4.0 * sums, 4.0 * precision, truth)
    assert boastful.factor == pytest.approx(0.25, rel=0.15)
    assert np.all(boastful.square_before > 1.5)
    np.testing.assert_allclose(boastful.square_after, 1.0, atol=0.2)


def test_the_schedule_relaxes_with_evidence_and_unseen_worlds_are_counted(calibration):
    schedule = calibration.schedule
    assert np.all(np.diff(schedule.eta) <= 0.0)
    # 19 epsilon(N) >= 19 * 0.5 is more than the largest reduction, 5.4: nothing on the grid is enough.
    assert schedule.infeasible.all() and np.all(schedule.eta == 0.9)
    scheduled, neutral = calibration.scheduled, calibration.neutral
    # Fed z = a_N theta on average, half the worlds cost more than BASE; at eta = 0.9 nearly none does.
    assert 0.35 < neutral.coverage.share < 0.65
    assert scheduled.coverage.share > neutral.coverage.share
    assert scheduled.coverage.lower_bound < scheduled.coverage.share
    assert scheduled.coverage.worlds == 400 and scheduled.diverged == 0


def test_the_budget_rule_asks_for_no_more_than_the_cost_itself(calibration):
    # Fed z_0 = 0 a decision costs BASE - grip eta: at the budget without caution, under it with any.
    bounds = calibration.measured.cost_bound.value
    expected = (1.0 - 0.6 * np.array(CONFIG.etas)) * FOR_EVER
    np.testing.assert_allclose(bounds[0, 1:], expected[1:], atol=2.5)
    assert np.all(calibration.measured.schedules["budget"].eta <= calibration.schedule.eta)


def test_caution_that_follows_the_world_is_relaxed_where_the_belief_is_cheap():
    programs = careful_deployment.deploy._cache_size  # pyright: ignore[reportAttributeAccessIssue]
    before = programs()
    found = calibrate(SUBJECT, dataclasses.replace(CONFIG, rule="world", environments=200), Ledger())
    # The strongest level, the first schedule, the second one and no caution at all.
    assert programs() == before + 1
    world = found.world
    assert world is not None and found.schedule is world.typical
    # Fed z a decision costs BASE + slope z - grip eta with a budget of BASE: after 16 sights z <= -0.5 needs nothing,
    # and z > 0.5 needs more than there is in most worlds.
    last = found.measured.contexts.latents[-1, :, 0]
    inside = (last >= world.table.low) & (last <= world.table.high)
    assert np.all(world.eta[-1][(last < -0.5) & inside] == 0.0)
    assert np.all(world.eta[-1][last > 0.3] >= 0.6) and world.infeasible[-1][last > 0.8].all()
    assert len(set(world.eta[0])) == 1 and np.all(np.diff(world.table.margin, axis=0) <= 0.0)
    np.testing.assert_allclose(np.asarray(world.table.slope)[-1, :, 0], 1.5 * FOR_EVER, rtol=0.15)
    assert np.all(world.r_squared > 0.8)
    # Half the worlds are under the budget without caution; here nearly all that can be are.
    assert found.scheduled.coverage.share > found.neutral.coverage.share + 0.2
    # And it costs less ease than the highest level for all.
    assert found.scheduled.episode_return > -0.85 * LENGTH


def test_the_same_belief_costs_the_same_bit_for_bit():
    task, agent, weights = SUBJECT[:3]
    keys = jax.random.split(jax.random.key(0), (1, 3, 2))
    worlds = randomisation.sample(task.description.shifts["train"], task.parameters_type, jax.random.key(1), 3)
    latent = np.full((3, 3, 1), 0.25)
    latent[2] += 0.5
    asked = realised_cost.Candidates(latent, np.zeros(3), np.zeros(3, int))
    # Batches of four worlds: the two candidates meet in different places of different batches.
    answer = realised_cost.measure(task, agent, weights, Ledger(), "same", worlds, keys, asked, 4)
    np.testing.assert_array_equal(answer.cost[0], answer.cost[1])
    slope = np.asarray(worlds.slope)[:, None]
    np.testing.assert_allclose(answer.cost[2] - answer.cost[0], np.repeat(0.5 * slope, 2, axis=1), rtol=1e-4)


def test_a_stopped_calibration_goes_on_where_it_was(tmp_path):
    pieces: list[str] = []
    small = dataclasses.replace(CONFIG, environments=9)

    def once() -> list[str]:
        done: list[str] = []
        ledger = Ledger(tmp_path, lambda progress: done.append(progress.piece), stop=lambda: len(done) > 1)
        with pytest.raises(Paused):
            calibrate(SUBJECT, small, ledger)
        return done

    pieces += once()
    pieces += once()
    last: list[str] = []
    finished = calibrate(SUBJECT, small, Ledger(tmp_path, lambda progress: last.append(progress.piece)))
    pieces += last
    # Four deployments, and costs in one and in two batches.
    assert len(pieces) == len(set(pieces)) == 7
    # A damaged piece is computed again, and only that one.
    (tmp_path / "second_costs" / "0000.safetensors").write_bytes(b"nothing")
    again: list[str] = []
    repeated = calibrate(SUBJECT, small, Ledger(tmp_path, lambda progress: again.append(progress.piece)))
    assert again == ["second_costs/0000"]
    straight = calibrate(SUBJECT, small, Ledger())
    for other in (finished, repeated):
        for mine, theirs in zip(jax.tree.leaves(other.measured), jax.tree.leaves(straight.measured), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_the_plan_is_what_is_done():
    small = dataclasses.replace(CONFIG, environments=9)
    reported = []
    calibrate(SUBJECT, small, Ledger(None, reported.append))
    assert reported[-1].done == reported[-1].planned and reported[-1].seconds_left == 0.0


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"etas": (0.1, 0.5)}, "start at 0"),
        ({"etas": (0.0, 0.5, 0.5)}, "rise"),
        ({"rule": "hope"}, "must be one of world, budget, max, paper, direct"),
        ({"environments": 8}, "needs at least 9 environments, not 8"),
        ({"rule": "world", "environments": 17}, "'world' needs at least 18 environments at a level of 0.9, not 17"),
        ({"episodes": 0}, "at least one"),
        ({"level": 1.0}, "between 0 and 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        dataclasses.replace(CONFIG, **changes)
