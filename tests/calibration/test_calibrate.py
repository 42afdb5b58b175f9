"""Calibration recovers what is known in closed form, stops where it is asked to, and goes on from there."""

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.calibration import careful_deployment, contexts, latent_error, page, realised_cost, record, tempering
from ashore.calibration.calibrate import calibrate
from ashore.calibration.config import CalibrationConfig, Subject
from ashore.calibration.latent_error import ReferenceCheck
from ashore.calibration.ledger import Ledger, Paused
from ashore.calibration.refinement import RefinementConfig
from ashore.environments import randomisation
from tests.calibration.linear_world import DISCOUNT, LENGTH, NOISE, SIGMA, LinearAgent, LinearWorld, error_exceeded_by
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


@pytest.mark.parametrize(("reference", "environments", "settled"), [(64, 400, False), (16384, 99, True)])
def test_half_of_the_reference_says_whether_the_whole_is_settled(reference, environments, settled):
    # In batches of 2000 worlds, as in the other calibrations of this file: nothing is compiled for it.
    config = dataclasses.replace(CONFIG, reference=reference, environments=environments, worlds_at_once=2000)
    task, etas = SUBJECT.task, jnp.zeros(len(CONFIG.counts), jnp.float32)
    ranges, worlds_key, key = task.description.shifts["train"], *jax.random.split(jax.random.key(7))
    worlds = randomisation.sample(ranges, task.parameters_type, worlds_key, config.environments)
    deployed = contexts.deploy(SUBJECT, config, Ledger(), "contexts", worlds, key, etas, 1.0)
    believed = contexts.collect(task, config, deployed)
    half = believed.half_reference
    assert half is not None
    first = latent_error.table(latent_error.errors(believed.latents, believed.reference), 0.9).value[1]
    found = latent_error.check_reference(half, believed.reference, first, 0.9)
    # Half of N sights is SIGMA / sqrt(N) from all of them, next to which the prior is nothing; 90 % are within 1.645 of
    # that. The order statistic of 99 worlds is a tenth unsure.
    assert found.half_error == pytest.approx(1.645 * SIGMA / math.sqrt(reference), rel=0.3)
    assert found.ratio == found.half_error / first and found.settled is settled


def test_a_calibration_says_that_its_reference_is_not_settled(calibration):
    found = calibration.measured.reference_check
    # 64 sights: half of them are 1.645 * 2 / 8 from all of them, a little less for the prior.
    assert found.half_error == pytest.approx(0.37, abs=0.06) and not found.settled
    assert found.ratio == found.half_error / calibration.measured.epsilon.value[1]


def test_a_reference_from_one_deployment_has_no_half_and_a_belief_that_never_moves_is_settled():
    alone = np.ones((3, 1, 2))
    assert latent_error.half_reference(alone, alone) is None
    still = latent_error.check_reference(np.zeros((9, 2)), np.zeros((9, 2)), 0.0, 0.9)
    assert still.settled and math.isnan(still.ratio)


class Repeating(LinearWorld):
    """Four env steps per decision."""

    @property
    def description(self):
        return dataclasses.replace(super().description, action_repeat=4)


def test_the_record_says_what_a_decision_is_and_warns_of_a_reference_that_is_not_settled(calibration):
    policy: Any = SimpleNamespace(
        caution="refinement",
        refinement=RefinementConfig(),
        nets=SimpleNamespace(sizes=SimpleNamespace(compute="float32")),
    )

    def written(check: ReferenceCheck | None) -> tuple[dict[str, Any], str]:
        checked = calibration._replace(measured=calibration.measured._replace(reference_check=check))
        content = record.content(Repeating(), policy, checked, "0" * 64, {})
        return content, page.text("toy", Repeating(), policy, checked)

    content, shown = written(ReferenceCheck(0.2, 0.25, False))
    assert content["action_repeat"] == 4
    assert content["reference_settled"] == {"half_error": 0.2, "ratio": 0.25, "settled": False, "limit": 0.05}
    assert "NOT SETTLED" in content["assumptions"][0] and "0.2 from" in shown and "25% of epsilon(1)" in shown
    content, shown = written(ReferenceCheck(0.0, math.nan, True))
    assert content["reference_settled"]["ratio"] is None and "NOT SETTLED" not in shown
    content, shown = written(None)
    assert content["reference_settled"] is None and "NOT SETTLED" not in shown


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


def test_the_papers_schedule_relaxes_as_the_known_error_falls():
    # The same shapes as the other calibrations of this file: nothing is compiled for it.
    etas = tuple(np.arange(10) / 10)
    found = calibrate(SUBJECT, dataclasses.replace(CONFIG, level=0.5, rule="paper", etas=etas), Ledger())
    schedule = found.schedule
    assert not schedule.infeasible.any() and np.all(np.diff(schedule.eta) <= 0.0)
    for count, eta in zip(CONFIG.counts, schedule.eta, strict=True):
        # Medians: caution gains eta where 1.5 epsilon(N) is needed. Those of slope and grip have errors of their own.
        error, density = error_exceeded_by(0.5, count, 64)
        needed, unsure = 1.5 * error, 1.5 * math.sqrt(0.25 / 400) / density
        tolerance = 4.0 * math.hypot(unsure, needed * 0.025 / 1.5, needed * 0.025)
        assert needed - tolerance <= eta <= needed + 0.1 + tolerance
    # From 0.71 to 0.48 by the closed form: two levels of the grid.
    assert schedule.eta[0] - schedule.eta[-1] == pytest.approx(0.2, abs=0.11)
    # Reward is -eta: unseen worlds were deployed at exactly these levels, each held until the next count.
    held = np.searchsorted(CONFIG.counts, np.arange(2 * LENGTH), side="right") - 1
    assert found.scheduled.episode_return == pytest.approx(-LENGTH * schedule.eta[held].mean(), rel=1e-5)


def test_where_no_level_is_enough_the_highest_is_held_and_unseen_worlds_are_counted(calibration):
    schedule = calibration.schedule
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


def test_wider_ranges_are_calibrated_for_where_they_are_asked_for(calibration):
    wide = dataclasses.replace(CONFIG, rule="world", environments=200, beyond=3.0)
    found = calibrate(SUBJECT, wide, Ledger())
    # theta in [-3, 3] instead of [-1, 1]: a reference of 64 sights lies at 64 / 68 of it, give or take 0.24.
    reference = found.measured.contexts.reference[:, 0]
    assert reference.std() == pytest.approx(math.hypot(64 / 68 * 3 / math.sqrt(3), 0.24), rel=0.15)
    assert found.world is not None
    assert found.world.table.low[0] < -2.5 and found.world.table.high[0] > 2.5
    # Unseen worlds are drawn like them: most of the spread of their costs is theta's, three times as wide.
    assert found.neutral.cost.std() > 2.0 * calibration.neutral.cost.std()
    said = page._ranges(wide.beyond), page._ranges(CONFIG.beyond)
    assert said == ("ranges 3 times as wide as those of training", "the training ranges")


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
        ({"beyond": 0.5}, "at least as wide as those of training, not 0.5"),
        ({"beyond": math.inf}, "at least as wide as those of training, not inf"),
        ({"level": 1.0}, "between 0 and 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        dataclasses.replace(CONFIG, **changes)
