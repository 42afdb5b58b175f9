from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ashore.environments import randomisation
from ashore.environments.randomisation import Randomised
from toy_world import TRAIN, CartParameters


def test_nominal_parameters_are_the_declared_ones():
    assert randomisation.nominal(TRAIN, CartParameters) == CartParameters(1.0, 0.0)


def test_draws_fill_their_ranges_and_are_independent():
    drawn = randomisation.sample(TRAIN, CartParameters, jax.random.key(0), 4096)
    for row, values in zip(TRAIN, drawn, strict=True):
        width = row.high - row.low
        assert row.low <= values.min() < row.low + 0.01 * width
        assert row.high - 0.01 * width < values.max() <= row.high
        # The mean of n uniform draws has standard deviation width / sqrt(12 n); five of them are allowed.
        assert abs(float(values.mean()) - (row.low + row.high) / 2) < 5 * width / np.sqrt(12 * 4096)
    assert abs(np.corrcoef(drawn.mass, drawn.thrust)[0, 1]) < 5 / np.sqrt(4096)


def test_a_fixed_parameter_is_drawn_exactly():
    drawn = randomisation.sample(randomisation.at_nominal(TRAIN), CartParameters, jax.random.key(1), 7)
    np.testing.assert_array_equal(drawn.mass, np.full(7, 1.0, np.float32))


@given(st.floats(allow_nan=True, allow_infinity=True), st.floats(allow_nan=True, allow_infinity=True))
def test_a_range_is_accepted_exactly_when_it_is_finite_and_ordered(low, high):
    sensible = np.isfinite(low) and np.isfinite(high) and low <= high
    with nullcontext() if sensible else pytest.raises(ValueError, match="finite and ordered"):
        Randomised("mass", "kg", 1.0, low, high, "scale")


def test_ranges_must_cover_exactly_the_declared_parameters():
    with pytest.raises(ValueError, match="thrust"):
        randomisation.with_ranges(TRAIN, {"mass": (0.5, 1.0)})
    with pytest.raises(ValueError, match="mas"):
        randomisation.with_ranges(TRAIN, {"mas": (0.5, 1.0), "thrust": (0.0, 1.0), "mass": (1.0, 1.0)})


def test_parameters_by_name_leave_the_others_nominal():
    chosen = randomisation.from_names(TRAIN, CartParameters, {"thrust": 0.5})
    assert chosen == CartParameters(1.0, 0.5)
    assert chosen.thrust.dtype == np.float32


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "heavy", None, [1.0]])
def test_a_value_that_is_no_finite_number_is_refused_with_the_known_names(value):
    with pytest.raises(ValueError, match="'mass' must be a finite number.*mass, thrust"):
        randomisation.from_names(TRAIN, CartParameters, {"mass": value})


def test_an_unknown_parameter_is_refused_with_the_known_names():
    with pytest.raises(ValueError, match="Unknown physical parameter 'mas'.*mass, thrust"):
        randomisation.from_names(TRAIN, CartParameters, {"mas": 1.0})


def test_shifts_that_leave_training_are_named():
    deploy = randomisation.with_ranges(TRAIN, {"mass": (0.4, 1.0), "thrust": (0.0, 1.0)})
    assert randomisation.leaves_training(TRAIN, deploy) == ["mass [0.4, 1] leaves Train [0.5, 2]"]
    assert randomisation.leaves_training(TRAIN, TRAIN) == []


def test_wider_ranges_have_the_same_middles_and_no_scale_falls_to_nothing():
    rows = (
        Randomised("brake", "N", 1.0, 0.5, 1.0, "scale"),
        Randomised("mass", "kg", 1.0, 0.2, 1.0, "scale"),
        Randomised("wind", "N", 0.0, -1.0, 3.0, "add"),
        Randomised("fixed", "kg", 1.0, 1.0, 1.0, "scale"),
        Randomised("lag", "s", 1.0, 0.0, 1.0, "scale"),
    )
    found = {row.name: (row.low, row.high) for row in randomisation.widened(rows, 2.0)}
    # 0.75 give or take 0.5; 0.6 give or take 0.8 would be negative, and half of 0.2 is not; 1 give or take 4.
    assert found["brake"] == pytest.approx((0.25, 1.25))
    assert found["mass"] == pytest.approx((0.1, 1.4))
    assert found["wind"] == pytest.approx((-3.0, 5.0))
    assert found["fixed"] == (1.0, 1.0)
    assert found["lag"] == (0.0, 1.5)
    assert randomisation.widened(rows, 1.0) == rows


def test_strange_worlds_come_from_wider_ranges_and_others_from_the_ranges_themselves():
    key = jax.random.key(2)
    strangeness = jnp.repeat(jnp.array([0.0, 0.5, 1.0]), 4096)
    drawn = randomisation.sample_beyond(TRAIN, CartParameters, key, 2.0, strangeness)
    # Mass [0.5, 2]: twice as wide would be [-0.25, 2.75], and no scale falls below half of 0.5. Thrust [0, 1] is added.
    edges = {"mass": ((0.5, 2.0), (0.375, 2.375), (0.25, 2.75)), "thrust": ((0.0, 1.0), (-0.25, 1.25), (-0.5, 1.5))}
    for name, values in drawn._asdict().items():
        for (low, high), part in zip(edges[name], np.split(np.asarray(values), 3), strict=True):
            assert low <= part.min() < low + 0.01 * (high - low)
            assert high - 0.01 * (high - low) < part.max() <= high
    nobody_strays = randomisation.sample_beyond(TRAIN, CartParameters, key, 2.0, 0.0 * strangeness)
    usual = randomisation.sample(TRAIN, CartParameters, key, len(strangeness))
    np.testing.assert_array_equal(nobody_strays, usual)
