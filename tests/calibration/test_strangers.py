"""The level for strangers is the smallest at which simulated ones keep the budget, in closed form."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.calibration import strangers
from ashore.calibration.config import CalibrationConfig, Subject
from ashore.calibration.ledger import Ledger
from ashore.environments import randomisation
from ashore_runtime.schema import WorldCalibration
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


def box(low: float, high: float) -> WorldCalibration:
    """Beliefs between these are no strangers'; nothing else of the table is looked at."""
    return WorldCalibration(1.0, (0.0,), (), (), (), (low,), (high,), ())


EVERYBODY = box(1.0, 2.0)
"""Leaves out the belief 0, which a policy that learns nothing keeps for ever."""


def measured(per_decision: float, where: WorldCalibration = EVERYBODY, evidence: float = 0.0) -> strangers.Strangers:
    """Of a policy that believes 0 a decision costs BASE - grip eta, and noise."""
    budget = dataclasses.replace(LinearWorld().description.budget, per_episode=per_decision * LENGTH)
    subject = Subject(LinearWorld(), LinearAgent(), jnp.float32(evidence), budget)
    return strangers.measure(subject, CONFIG, Ledger(), jax.random.key(3), 1.0, where)


def test_the_level_is_the_smallest_whose_bound_keeps_the_budget():
    found = measured(BASE - 0.08)
    # Each of three ranges doubles, so 7 of 8 draws are strangers. Of those, 2 in 7 have a grip in [0, 0.5): the 10 %
    # quantile of grip is 0.1 / (4 / 7) = 0.175. At 0.3 that takes off 0.05 and at 0.6 it takes off 0.105.
    assert (found.level, found.enough, found.times) == (0.6, True, 2.0)
    np.testing.assert_allclose(found.etas, [0.0, 0.3, 0.6])
    np.testing.assert_allclose(found.mean, FOR_EVER * (BASE - found.etas), atol=0.02 * FOR_EVER)
    # The order statistic of 500 draws errs by 0.023 in grip, the mean of 2,064 noisy decisions by 0.011.
    np.testing.assert_allclose(found.bound, FOR_EVER * (BASE - 0.175 * found.etas), atol=0.03 * FOR_EVER)
    assert found.bound[1] > FOR_EVER * (BASE - 0.08) >= found.bound[2]
    assert found.recognised.tolist() == [500] * 3


def test_where_no_level_is_enough_it_is_the_highest_and_says_so():
    found = measured(0.1 * BASE)
    assert (found.level, found.enough) == (0.9, False)
    assert len(found.bound) == len(CONFIG.etas) and np.isfinite(found.bound).all()


def test_where_nobody_is_recognised_nothing_is_promised():
    found = measured(100.0 * BASE, box(-1.0, 1.0))
    assert (found.level, found.enough) == (0.9, False)
    assert found.recognised.tolist() == [0] * 4 and np.isinf(found.bound).all() and np.isnan(found.mean).all()


def test_only_those_count_whose_beliefs_left_the_box():
    # Beliefs follow theta, and a decision costs slope times the belief: those above 1 are the dear third of theta.
    dear, cheap = (measured(100.0, where, 1.0) for where in (box(-9.0, 1.0), box(-1.0, 9.0)))
    assert (dear.level, cheap.level) == (0.0, 0.0)
    # After 16 sights the belief is 0.8 of their mean: outside where 0.8 (theta + 0.5 g) > 1, a fifth of all draws.
    for found in (dear, cheap):
        assert 0.15 < found.recognised[0] / CONFIG.environments < 0.3
    middle = FOR_EVER * BASE
    assert dear.mean[0] > 1.5 * middle and cheap.mean[0] < 0.5 * middle


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
