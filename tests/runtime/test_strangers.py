"""Beliefs unlike all that were simulated: the level that a table has for them, in the runtime and on the device."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from ashore.calibration import risk_level
from ashore_runtime import Refused
from ashore_runtime.calibration_reading import calibration_from_json
from ashore_runtime.world_levels import WorldLevels
from runtime.test_world_levels import TWO_COUNTS, WORLD

# A start at 0: by bounds of 9 + 1, 7 + 1 and 5 + 1 before any transition, 10 + 2 z, 8 + z and 6 + z / 2 later.
GENTLE = dataclasses.replace(WORLD, margin=((1.0, 1.0, 1.0), (1.0, 1.0, 1.0)))
INSIDE, OUTSIDE, DEAR = np.array([-1.0, 0.0]), np.array([-1.0, 5.0]), np.array([9.0, 5.0])


@pytest.mark.parametrize(("strangers", "level"), [(None, 0.0), (0.5, 0.5), (0.9, 0.9)])
def test_a_stranger_gets_its_level_and_nobody_else_does(strangers, level):
    table = dataclasses.replace(GENTLE, strangers=strangers)
    levels, on_device = WorldLevels(table), risk_level.on_device(table)
    assert levels.start == levels.read(1, INSIDE) == (0.0, False)
    assert levels.read(1, OUTSIDE) == (level, False)
    # What its own bound asks for stays if it is more: 28, 17 and 10.5 are all over the budget of 10.
    assert levels.read(1, DEAR) == (0.9, True)
    for belief in (INSIDE, OUTSIDE, DEAR):
        there = risk_level.level_at((0, 4), on_device, jnp.int32(4), jnp.asarray(belief, jnp.float32))
        assert float(there) == pytest.approx(levels.read(1, belief)[0])
    assert float(risk_level.careful_start(on_device)) == 0.0


def test_a_prior_that_is_a_stranger_starts_like_one():
    # The box begins above 0, where every belief starts.
    table = dataclasses.replace(GENTLE, low=(0.5, -1.0), strangers=0.9)
    assert WorldLevels(table).start == (0.9, False)
    assert float(risk_level.careful_start(risk_level.on_device(table))) == pytest.approx(0.9)
    assert WorldLevels(dataclasses.replace(table, strangers=None)).start == (0.0, False)


def test_a_table_with_a_level_for_strangers_travels_and_one_without_is_written_as_before():
    told = dataclasses.replace(TWO_COUNTS, world=dataclasses.replace(WORLD, strangers=0.9))
    assert calibration_from_json(told.to_json()) == told
    assert "strangers" not in TWO_COUNTS.to_json()["world"]
    wrong = told.to_json()
    wrong["world"]["strangers"] = 0.7
    with pytest.raises(Refused, match="must be one of the levels"):
        calibration_from_json(wrong)


@pytest.mark.parametrize("infeasible_start", [False, True])
def test_a_level_that_was_measured_not_to_be_enough_for_strangers_is_infeasible_for_them_alone(infeasible_start):
    # Bounds of 9 + m, 7 + m and 5 + m before any transition: m = 6 leaves no level for the budget of 10.
    start = (6.0,) * 3 if infeasible_start else (1.0,) * 3
    table = dataclasses.replace(GENTLE, margin=(start, (1.0, 1.0, 1.0)), strangers=0.9)
    for enough, marked in ((None, infeasible_start), (True, False), (False, True)):
        levels = WorldLevels(dataclasses.replace(table, strangers_enough=enough))
        assert levels.read(1, OUTSIDE) == (0.9, marked)
        assert levels.read(1, INSIDE) == (0.0, False)
        told = dataclasses.replace(TWO_COUNTS, world=dataclasses.replace(table, strangers_enough=enough))
        assert calibration_from_json(told.to_json()) == told
        assert ("strangers_enough" in told.to_json()["world"]) == (enough is not None)
    wrong = dataclasses.replace(TWO_COUNTS, world=dataclasses.replace(table, strangers_enough=True)).to_json()
    wrong["world"]["strangers_enough"] = "yes"
    with pytest.raises(Refused, match="true or false"):
        calibration_from_json(wrong)
