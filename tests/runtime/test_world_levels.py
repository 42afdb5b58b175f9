"""eta(N, z): the smallest level whose predicted cost keeps the budget, and never less than the start out of the box."""

import dataclasses

import numpy as np
import pytest

from ashore_runtime import Refused, bundle
from ashore_runtime.calibration_reading import calibration_from_json
from ashore_runtime.schedule import Schedule
from ashore_runtime.schema import WorldCalibration
from ashore_runtime.world_levels import WorldLevels
from runtime import small_bundle
from runtime.small_bundle import CALIBRATION

WORLD = WorldCalibration(
    budget=10.0,
    etas=(0.0, 0.5, 0.9),
    # Before any transition the belief says nothing; from the second count on the first of two latents is the cost.
    intercept=((9.0, 7.0, 5.0),) * 2,
    slope=(((0.0, 0.0),) * 3, ((2.0, 0.0), (1.0, 0.0), (0.5, 0.0))),
    margin=((4.0, 4.0, 3.0), (2.0, 1.0, 1.0)),
    low=(-3.0, -1.0),
    high=(20.0, 1.0),
    eta_percentiles=((0.9, 0.9, 0.9), (0.0, 0.5, 0.9)),
)
TWO_COUNTS = dataclasses.replace(CALIBRATION, counts=(0, 4), eta=(0.9, 0.5), infeasible=(False, False), world=WORLD)


def read(place: int, *latent: float) -> tuple[float, bool]:
    return WorldLevels(WORLD).read(place, np.array(latent, np.float32))


def test_the_smallest_level_that_keeps_the_budget_is_chosen():
    # At the start 9 + 4, 7 + 4 and 5 + 3 are predicted: only the last is at most 10, whatever is believed.
    assert WorldLevels(WORLD).start == read(0, 0.0, 0.0) == read(0, 5.0, 0.0) == (0.9, False)
    # Later 11 + 2 z, 8 + z, 6 + z / 2: on the boundary is enough.
    assert read(1, -0.5, 0.0) == (0.0, False)
    assert read(1, 0.0, 0.0) == read(1, 2.0, 0.0) == (0.5, False)
    assert read(1, 2.5, 0.0) == read(1, 8.0, 0.0) == (0.9, False)
    # 29, 17 and 10.5 at z = 9: nothing is enough, and the last is least.
    assert read(1, 9.0, 0.0) == (0.9, True)


def test_a_level_need_not_be_the_highest_to_be_the_best_of_the_infeasible():
    harmful = dataclasses.replace(WORLD, intercept=((20.0, 12.0, 15.0),) * 2)
    assert WorldLevels(harmful).read(1, np.zeros(2)) == (0.5, True)


def test_outside_the_box_nothing_is_relaxed():
    # Cheap by the prediction, but no simulated world was there, in one dimension or the other.
    assert read(1, -3.0, 1.0) == (0.0, False)
    assert read(1, -3.1, 0.0) == read(1, -1.0, 1.1) == (0.9, False)
    # More careful than the start it may be.
    gentle = dataclasses.replace(WORLD, margin=((1.0, 1.0, 1.0), (1.0, 1.0, 1.0)))
    levels = WorldLevels(gentle)
    assert levels.start == (0.0, False)
    assert levels.read(1, np.array([-1.0, 5.0])) == (0.0, False)
    assert levels.read(1, np.array([4.0, 5.0])) == (0.9, False)
    # What is taken from the start is taken with its mark.
    hopeless = WorldLevels(dataclasses.replace(WORLD, margin=((9.0, 9.0, 9.0), (2.0, 1.0, 1.0))))
    assert hopeless.read(1, np.array([-1.0, 5.0])) == (0.9, True)


def test_the_schedule_relaxes_on_evidence_tightens_at_once_and_returns_to_the_start():
    schedule = Schedule(TWO_COUNTS, patience=3)
    cheap, dear = np.array([-1.0, 0.0], np.float32), np.array([3.0, 0.0], np.float32)
    state = schedule.start()
    assert (state.eta, state.infeasible) == (0.9, False)
    state = schedule.after(state, 1, 1.0, clean=True, alarm=False, latent=cheap)
    assert state.eta == 0.9
    state = schedule.after(state, 4, 1.0, clean=True, alarm=False, latent=cheap)
    assert state.eta == 0.0
    # Another belief tightens without waiting; with it comes no wait, because nothing was wrong.
    state = schedule.after(state, 5, 1.0, clean=True, alarm=False, latent=dear)
    assert state.eta == 0.9
    state = schedule.after(state, 6, 1.0, clean=True, alarm=False, latent=cheap)
    assert state.eta == 0.0
    state = schedule.after(state, 6, 1.0, clean=False, alarm=True, latent=cheap)
    assert state.eta == 0.9
    for step in range(1, 4):
        state = schedule.after(state, 6 + step, 1.0, clean=True, alarm=False, latent=cheap)
        assert state.eta == (0.9 if step < 3 else 0.0)


def test_a_wide_posterior_is_read_at_the_count_that_it_resembles():
    schedule = Schedule(dataclasses.replace(TWO_COUNTS, spread=(1.0, 0.5)))
    cheap = np.array([-1.0, 0.0], np.float32)
    assert schedule.table(10, 0.5, cheap)[0] == 0.0 and schedule.table(10, 0.6, cheap)[0] == 0.9


def test_a_table_survives_the_way_through_json_and_calibrations_without_one_do_not_get_one():
    assert calibration_from_json(TWO_COUNTS.to_json()) == TWO_COUNTS
    assert "world" not in CALIBRATION.to_json()
    assert calibration_from_json({**CALIBRATION.to_json(), "world": None}) == CALIBRATION


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("etas", [0.0, 0.5, 0.5], "must rise within"),
        ("etas", [0.0, 0.5, 1.0], "must rise within"),
        ("etas", [], "must rise within"),
        ("intercept", [[9.0, 7.0, 5.0]], "'world intercept' does not have the shape"),
        ("intercept", [[9.0, 7.0]] * 2, "'world intercept' does not have the shape"),
        ("intercept", 9.0, "'world intercept' does not have the shape"),
        ("slope", [[[0.0, 0.0]] * 3, [[0.0]] * 3], "'world slope' does not have the shape"),
        ("slope", [[0.0] * 3] * 2, "'world slope' does not have the shape"),
        ("slope", [[[0.0, float("nan")]] * 3] * 2, "'world slope' is nan"),
        ("margin", [[1.0, 1.0, 1.0], [1.0, 1.0, float("inf")]], "'world margin' is inf"),
        ("margin", [[1.0, 1.0, 1.0], [1.0, 1.0, 1.1]], "must never rise"),
        ("margin", [[1.0, 1.0, 1.0]] * 3, "does not have the shape"),
        ("low", [-3.0, None], "'world low' is not a number"),
        ("low", [-3.0, 2.0], "'world low' is above"),
        ("high", [20.0], "'world high' does not have the shape"),
        ("budget", 0.0, "'world budget' must be positive"),
        ("eta_percentiles", [[0.9, 0.9]] * 2, "'world eta_percentiles' does not have the shape"),
        ("surprise", 1.0, "which nothing here understands"),
    ],
)
def test_a_wrong_table_is_refused_in_one_sentence(name, value, complaint):
    content = TWO_COUNTS.to_json()
    content["world"][name] = value
    with pytest.raises(Refused, match=complaint):
        calibration_from_json(content)


def test_tables_of_another_length_or_another_latent_are_refused(tmp_path):
    with pytest.raises(Refused, match="differ in length"):
        calibration_from_json({**TWO_COUNTS.to_json(), "counts": [0], "eta": [0.9], "infeasible": [False]})
    with pytest.raises(Refused, match="2 latents, the networks' 3"):
        small_bundle.write(tmp_path / "a.bundle", calibration=TWO_COUNTS)


def test_a_bundle_with_a_table_is_saved_again_byte_for_byte(tmp_path):
    wider = dataclasses.replace(
        WORLD, slope=(((0.0,) * 3,) * 3, ((2.0, 0.0, 0.0),) * 3), low=(-3.0,) * 3, high=(20.0,) * 3
    )
    known = dataclasses.replace(TWO_COUNTS, world=wider)
    found = bundle.load(small_bundle.write(tmp_path / "a.bundle", calibration=known))
    assert found.calibration == known
    again = bundle.save_again(found, tmp_path / "b.bundle")
    for file in sorted(found.path.iterdir()):
        assert (again / file.name).read_bytes() == file.read_bytes()
