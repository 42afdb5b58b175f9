"""The level for strangers is the smallest at which all simulated ones keep the budget, in closed form."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.calibration import strangers
from ashore.calibration.calibrate import calibrate
from ashore.calibration.config import CalibrationConfig, Subject
from ashore.calibration.ledger import Ledger, Paused
from ashore.environments import randomisation
from tests.calibration.linear_world import BASE, DISCOUNT, LENGTH, LinearAgent, LinearWorld

pytestmark = pytest.mark.usefixtures("compiled_quickly")
CONFIG = CalibrationConfig(
    environments=500,
    largest_count=16,
    reference=2048,
    etas=(0.0, 0.3, 0.6, 0.9),
    reduction_counts=(0, 4),
    strangers="measured",
    worlds_at_once=1 << 19,
)
FOR_EVER = 1.0 / (1.0 - DISCOUNT)
"""From cost per decision to the discounted unit."""


def measured(per_decision: float) -> strangers.Strangers:
    """By a policy that learns nothing and believes 0: a decision costs BASE - grip eta, and noise."""
    budget = dataclasses.replace(LinearWorld().description.budget, per_episode=per_decision * LENGTH)
    subject = Subject(LinearWorld(), LinearAgent(), jnp.float32(0.0), budget)
    return strangers.measure(subject, CONFIG, Ledger(), jax.random.key(3))


def test_the_level_is_the_smallest_at_which_the_dearest_keeps_the_budget():
    # Ranges that double reach down to a grip of 0 and up to 2: the dearest stranger costs BASE whatever the level, and
    # a budget above that by more than its noise is kept at once, one below it at no level.
    kept, not_kept = measured(BASE + 0.1), measured(BASE - 0.1)
    assert (kept.level, kept.enough, kept.times, kept.diverged) == (0.0, True, 2.0, 0)
    assert (not_kept.level, not_kept.enough) == (0.9, False)
    np.testing.assert_allclose(not_kept.etas, CONFIG.etas)
    # The mean grip is 1; the mean of 2,064 noisy decisions errs by 0.011, and the largest of 500 by three times that.
    np.testing.assert_allclose(not_kept.mean, FOR_EVER * (BASE - not_kept.etas), atol=0.05 * FOR_EVER)
    np.testing.assert_allclose(not_kept.largest, FOR_EVER * BASE, atol=0.05 * FOR_EVER)


class Gripping(LinearWorld):
    """Caution takes off between 0.4 and 0.6 in training, and so at least 0.3 among strangers."""

    @property
    def description(self):
        known = super().description
        theta, slope, grip = known.shifts["train"]
        rows = (theta, slope, dataclasses.replace(grip, nominal=0.5, low=0.4, high=0.6))
        return dataclasses.replace(known, shifts=dict.fromkeys(known.shifts, rows))


def test_a_level_between_is_found():
    # The dearest costs BASE - 0.3 eta: 0.09 less at 0.3, 0.18 less at 0.6.
    budget = dataclasses.replace(Gripping().description.budget, per_episode=(BASE - 0.13) * LENGTH)
    subject = Subject(Gripping(), LinearAgent(), jnp.float32(0.0), budget)
    found = strangers.measure(subject, CONFIG, Ledger(), jax.random.key(3))
    assert (found.level, found.enough) == (0.6, True)
    np.testing.assert_allclose(found.largest, FOR_EVER * (BASE - 0.3 * np.array([0.0, 0.3, 0.6])), atol=0.04 * FOR_EVER)


def test_what_was_measured_before_a_stop_is_not_measured_again(tmp_path):
    budget = dataclasses.replace(LinearWorld().description.budget, per_episode=0.1 * LENGTH)
    subject = Subject(LinearWorld(), LinearAgent(), jnp.float32(0.0), budget)

    def going_on(stop: bool) -> tuple[strangers.Strangers, list[str]]:
        pieces: list[str] = []
        ledger = Ledger(tmp_path, lambda progress: pieces.append(progress.piece), lambda: stop)
        return strangers.measure(subject, CONFIG, ledger, jax.random.key(3)), pieces

    for level in CONFIG.etas[:-1]:
        with pytest.raises(Paused, match="strangers_"):
            going_on(stop=True)
        assert (tmp_path / f"strangers_{level:g}").exists()
    found, pieces = going_on(stop=False)
    assert pieces == ["strangers_0.9/0000"]
    np.testing.assert_array_equal(found.largest, measured(0.1).largest)


def test_strangers_lie_outside_of_what_is_calibrated_and_inside_one_more_width_of_training():
    task = LinearWorld()
    wide = dataclasses.replace(CONFIG, beyond=2.0)
    drawn = strangers.draw(task, wide, jax.random.key(0))
    theta, slope, grip = (np.asarray(values) for values in drawn)
    assert theta.shape == slope.shape == grip.shape == (500,)
    calibrated = (abs(theta) <= 2.0) & (abs(slope - 1.5) <= 1.0) & (abs(grip - 1.0) <= 1.0)
    assert not calibrated.any()
    assert (abs(theta) <= 3.0).all() and (abs(slope - 1.5) <= 1.5).all() and (abs(grip - 1.0) <= 1.5).all()
    # On every side, and not by all parameters at once.
    assert theta.min() < -2.0 and theta.max() > 2.0 and (abs(theta) < 2.0).any()


class Still(LinearWorld):
    """Whose ranges are points: no wider one is wider."""

    @property
    def description(self):
        known = super().description
        return dataclasses.replace(known, shifts=dict.fromkeys(known.shifts, known.shifts["nominal"]))


def test_a_task_without_strangers_is_told_what_to_choose_instead():
    with pytest.raises(ValueError, match="choose strangers=start or strangers=highest"):
        strangers.draw(Still(), CONFIG, jax.random.key(0))


def test_only_the_rule_that_knows_strangers_meets_them():
    assert CONFIG.measures_strangers
    assert not dataclasses.replace(CONFIG, rule="budget").measures_strangers
    assert not dataclasses.replace(CONFIG, strangers="highest").measures_strangers


def test_outside_is_outside_in_any_parameter():
    task = LinearWorld()
    some = task.parameters_type(
        theta=jnp.array([0.0, 1.5, 0.0, -1.0]), slope=jnp.array([1.5, 1.5, 0.9, 2.0]), grip=jnp.array([1.0] * 4)
    )
    outside = randomisation.leaves(task.description.shifts["train"], some)
    assert outside.tolist() == [False, True, True, False]


def test_the_table_has_what_was_measured_and_the_plan_is_what_is_done():
    reported = []
    # One replica, counts up to an episode: nothing here is about how well anything is known.
    config = dataclasses.replace(CONFIG, environments=40, reference=8, largest_count=8, episodes=1, first_episodes=1)
    budget = dataclasses.replace(Gripping().description.budget, per_episode=(BASE + 10.0) * LENGTH)
    subject = Subject(Gripping(), LinearAgent(), jnp.float32(1.0), budget)
    found = calibrate(subject, config, Ledger(report=reported.append))
    assert found.strangers is not None and found.world is not None
    assert found.world.table.strangers == found.strangers.level == 0.0 and found.strangers.enough
    # The first pass, whose schedule collects the contexts of the second, has it too.
    assert found.first_schedule.eta.tolist() == [0.0] * len(config.counts)
    # Planned for all levels at first, and for the one that was enough once that is known.
    assert reported[0].planned > reported[-1].planned == reported[-1].done
    assert reported[0].piece == "strangers_0/0000"
