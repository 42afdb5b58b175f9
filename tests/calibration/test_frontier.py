"""The frontier: every way and level in the same worlds, so that what differs is the caution."""

import jax.numpy as jnp
import numpy as np
import pytest

from ashore.calibration.careful_policy import CarefulPolicy
from ashore.calibration.frontier import FrontierConfig, frontier, ways
from ashore.calibration.ledger import Ledger
from ashore.networks.architecture import Architecture
from tests.calibration.linear_world import BASE, LENGTH, LinearAgent, LinearWorld


def test_a_curve_is_what_caution_costs_and_gains():
    config = FrontierConfig(environments=200, episodes=2, etas=(0.0, 0.4, 0.8), worlds_at_once=512)
    curves = frontier(LinearWorld(), {"linear": LinearAgent()}, jnp.float32(1.0), config, Ledger())
    assert set(curves) == {"linear"} and set(curves["linear"]) == {"nominal", "train"}
    nominal = curves["linear"]["nominal"]
    # Grip is 1 in every nominal world: caution takes eta off each decision's cost and as much off its reward.
    np.testing.assert_allclose(nominal.reduction, LENGTH * np.array(config.etas), rtol=1e-4)
    np.testing.assert_allclose(nominal.reduction_error, 0.0, atol=1e-4)
    np.testing.assert_allclose(nominal.episode_return, -LENGTH * np.array(config.etas), rtol=1e-5)
    np.testing.assert_array_equal(nominal.triggered, [0.0, 0.0, 1.0])
    assert nominal.episode_cost[0] == pytest.approx(BASE * LENGTH, abs=5.0 * nominal.cost_error[0])
    train = curves["linear"]["train"]
    # Grip is uniform in [0.5, 1.5] here: the mean is the same within its standard error.
    np.testing.assert_allclose(train.reduction, nominal.reduction, atol=5.0 * max(train.reduction_error))


def test_a_policy_that_takes_a_risk_level_has_two_more_ways():
    plain = ways(CarefulPolicy(Architecture(4, 2, (0,)), 1.0))
    conditioned = ways(CarefulPolicy(Architecture(4, 2, (0,), risk_conditioned=True), 1.0))
    assert set(conditioned) - set(plain) == {"risk-conditioned actor", "actor and refinement"}
    printed = plain["Algorithm 1 as printed"].refinement
    assert (printed.variant, printed.weight, printed.keep) == ("paper", "eta", "last")
    assert all(way.caution == "refinement" for way in plain.values())


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="start at 0"):
        FrontierConfig(etas=(0.5,))
    with pytest.raises(ValueError, match="at least one"):
        FrontierConfig(episodes=0)
