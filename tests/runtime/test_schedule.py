"""eta: careful first, relaxed on evidence, tightened at once, and slow to relax again."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ashore_runtime.schedule import Schedule
from ashore_runtime.schema import Calibration, WorldCalibration
from runtime.small_bundle import CALIBRATION
from volumes import examples


def test_the_table_is_read_at_the_count_that_was_reached():
    schedule = Schedule(CALIBRATION)
    assert [schedule.table(n, 1.0)[0] for n in (0, 1, 2, 3, 7, 8, 15, 16, 10**9)] == [
        0.9, 0.9, 0.6, 0.6, 0.6, 0.3, 0.3, 0.0, 0.0,
    ]  # fmt: skip
    assert schedule.table(0, 1.0)[1] and not schedule.table(1, 1.0)[1]


def test_a_posterior_that_stayed_wide_is_read_where_it_belongs():
    schedule = Schedule(dataclasses.replace(CALIBRATION, spread=(1.0, 0.9, 0.8, 0.7, 0.6, 0.5)))
    assert schedule.table(16, 0.5)[0] == 0.0
    assert schedule.table(16, 0.55)[0] == 0.3
    assert schedule.table(16, 0.99)[0] == 0.9


def test_an_alarm_tightens_at_once_and_patience_passes_before_it_relaxes():
    schedule = Schedule(CALIBRATION, patience=5)
    state = schedule.start()
    for count in range(1, 21):
        state = schedule.after(state, count, 0.5, clean=True, alarm=False)
    assert state.eta == 0.0
    state = schedule.after(state, 20, 0.5, clean=False, alarm=True)
    assert state.eta == 0.9
    for _ in range(4):
        state = schedule.after(state, 20, 0.5, clean=True, alarm=False)
        assert state.eta == 0.9
    # A transition that could not be used starts the wait again without tightening further.
    state = schedule.after(state, 20, 0.5, clean=False, alarm=False)
    for step in range(1, 6):
        state = schedule.after(state, 20, 0.5, clean=True, alarm=False)
        assert state.eta == (0.9 if step < 5 else 0.0)


def test_on_a_border_between_two_levels_it_does_not_flicker():
    border = dataclasses.replace(
        CALIBRATION,
        counts=(0,),
        eta=(0.5,),
        infeasible=(False,),
        # 8 + z and 6 + z at the two levels, of 10: the first is enough up to z = 2.
        world=WorldCalibration(
            budget=10.0,
            etas=(0.1, 0.5),
            intercept=((8.0, 6.0),),
            slope=(((1.0,), (1.0,)),),
            margin=((0.0, 0.0),),
            low=(-9.0,),
            high=(9.0,),
            eta_percentiles=((0.1, 0.1, 0.5),),
        ),
    )
    schedule = Schedule(border, patience=10)
    state, seen = schedule.start(), []
    for step in range(40):
        latent = np.array([2.5 if step % 2 else 1.5], np.float32)
        state = schedule.after(state, step, 0.5, clean=True, alarm=False, latent=latent)
        assert state.eta >= schedule.table(step, 0.5, latent)[0]
        seen.append(state.eta)
    # It relaxes with the first transition and rises with the second; then five pass before the next chance to relax.
    assert seen[:9] == [0.1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.1, 0.5, 0.5]
    assert sum(now != last for last, now in itertools.pairwise(seen)) <= 2 * 40 / 6 + 1


def test_without_calibration_there_is_no_caution():
    schedule = Schedule(None)
    state = schedule.after(schedule.start(), 0, 1.0, clean=False, alarm=True)
    assert state.eta == 0.0


# Small whole numbers, of which sums are exact: beliefs on a border between two levels are common.
beliefs = st.tuples(*[st.integers(-5, 5).map(float)] * 2)
slopes = st.tuples(*[st.integers(-2, 2).map(float)] * 2)


def by_count_and_level(entries: st.SearchStrategy) -> st.SearchStrategy[tuple]:
    """[count][eta] entries, for the two counts and three levels below."""
    return st.tuples(*[st.tuples(*[entries] * 3)] * 2)


@st.composite
def world_tables(draw: st.DrawFn) -> Calibration:
    first, second = draw(by_count_and_level(st.integers(0, 4).map(float)))
    world = WorldCalibration(
        budget=8.0,
        etas=(0.0, 0.5, 0.9),
        intercept=draw(by_count_and_level(st.integers(0, 10).map(float))),
        slope=draw(by_count_and_level(slopes)),
        margin=(first, tuple(map(min, first, second))),
        low=(-4.0, -4.0),
        high=(4.0, 4.0),
        eta_percentiles=((0.0, 0.5, 0.9),) * 2,
        strangers=draw(st.sampled_from([None, 0.0, 0.5, 0.9])),
    )
    return dataclasses.replace(CALIBRATION, counts=(0, 4), eta=(0.9, 0.5), infeasible=(False, False), world=world)


# Mostly clean: the wait after an alarm must sometimes pass.
kinds = st.sampled_from([*["clean"] * 7, "unused", "alarm"])
happenings = st.lists(st.tuples(kinds, st.integers(1, 3), beliefs), min_size=10, max_size=30)


@pytest.mark.parametrize("tables", [st.just(CALIBRATION), world_tables()], ids=["by count", "by world"])
@examples(200, 10_000)
@given(st.data(), happenings, st.integers(0, 10))
def test_it_relaxes_only_on_evidence_and_tightens_at_once(tables, data, events, patience):
    calibration = data.draw(tables)
    schedule = Schedule(calibration, patience)
    start = state = schedule.start()
    assert calibration.world is not None or start.eta == 0.9
    count, clean_in_a_row, since_rise = 0, patience, patience
    for event, seen, belief in events:
        before, latent = state, np.array(belief, np.float32)
        # A world that changed is an alarm, and leaves little of what was known.
        count = count + seen if event == "clean" else count // 2 if event == "alarm" else count
        state = schedule.after(state, count, 0.5, clean=event == "clean", alarm=event == "alarm", latent=latent)
        clean_in_a_row = clean_in_a_row + 1 if event == "clean" else 0
        since_rise += 1
        if state.eta < before.eta:
            assert event == "clean" and clean_in_a_row >= patience and since_rise >= patience // 2
        # However long the wait, never less than what is known now asks for.
        wanted, infeasible = schedule.table(count, 0.5, latent)
        assert state.eta >= wanted
        if calibration.world is not None and np.abs(latent).max() > 4.0:
            assert wanted >= start.eta, "a belief outside the box relaxed it"
        if event == "alarm":
            assert state.eta == max(before.eta, start.eta, wanted)
        elif state.eta != before.eta:
            assert (state.eta, state.infeasible) == (wanted, infeasible)
        if state.eta > before.eta:
            since_rise = 0
