"""What the guard believes: every type, shape and value a stranger can hand in, stuck, stale and shuffled sensors."""

import dataclasses
import time

import numpy as np
import pytest

from ashore_runtime.guard import Guard, GuardSettings
from ashore_runtime.reasons import Reason
from runtime import small_bundle
from volumes import volume

MANIFEST = small_bundle.manifest()
DEVIATION = np.array([1.0, 0.5, 1.0, 1.0], np.float32)
MS = 1_000_000


def guard(**settings):
    return Guard(MANIFEST, DEVIATION, GuardSettings(**settings))


GOOD = np.array([0.5, -0.5, 1.0, 0.0], np.float32)


@pytest.mark.parametrize(
    "given",
    [
        GOOD,
        GOOD.astype(np.float64),
        GOOD.tolist(),
        tuple(GOOD.tolist()),
        GOOD.astype(">f4"),
        GOOD.astype(np.float16),
        np.array([[0.5, -0.5, 1.0, 0.0]] * 2, order="F")[0],
        np.repeat(GOOD, 2)[::2],
        np.array([0, 1, 1, 0]),
        np.array([False, True, True, False]),
    ],
    ids=lambda given: f"{type(given).__name__}-{getattr(given, 'dtype', '')}",
)
def test_numbers_of_any_kind_are_cast(given):
    values, reasons = guard().values(given)
    assert values is not None and values.dtype == np.float32 and values.flags.c_contiguous
    np.testing.assert_allclose(values, np.asarray(given, np.float32))
    assert reasons is Reason.NONE


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, Reason.NOT_AN_ARRAY),
        ("0.5", Reason.NOT_AN_ARRAY),
        ({"sensor_0": 1.0}, Reason.NOT_AN_ARRAY),
        (np.array([object()] * 4), Reason.NOT_AN_ARRAY),
        (np.array([1.0, None, 2.0, 3.0], object), Reason.NOT_AN_ARRAY),
        (np.zeros(4, complex), Reason.NOT_AN_ARRAY),
        (np.zeros(4, "datetime64[s]"), Reason.NOT_AN_ARRAY),
        (np.array(["a"] * 4), Reason.NOT_AN_ARRAY),
        ([[1.0], [1.0, 2.0]], Reason.NOT_AN_ARRAY),
        (1.0, Reason.SHAPE),
        (np.zeros(()), Reason.SHAPE),
        (np.zeros(3), Reason.SHAPE),
        (np.zeros(5), Reason.SHAPE),
        (np.zeros((1, 4)), Reason.SHAPE),
        (np.zeros((4, 1)), Reason.SHAPE),
        ([], Reason.SHAPE),
        (np.array([np.nan, 0, 0, 0]), Reason.NOT_FINITE),
        (np.array([0, np.inf, 0, 0]), Reason.NOT_FINITE),
        (np.array([0, 0, -np.inf, 0]), Reason.NOT_FINITE),
        (np.array([0, 0, 0, 1e300]), Reason.NOT_FINITE),
        (np.array([0, 0, 0, 1e38]), Reason.OUT_OF_RANGE),
    ],
    ids=lambda value: repr(value) if isinstance(value, Reason) else type(value).__name__,
)
def test_what_is_rejected_and_why(given, reason):
    values, reasons = guard().values(given)
    assert values is None and reasons == reason


def test_denormals_are_numbers():
    values, reasons = guard().values(np.full(4, 1e-40, np.float32))
    assert values is not None and reasons is Reason.NONE


def test_a_little_outside_is_clipped_and_far_outside_is_not_used():
    # Bounds +-2, tolerated 3 deviations: up to 5 for sensor 0 (deviation 1), up to 3.5 for sensor 1 (deviation 0.5).
    for place, value, reason in ((0, 2.0, Reason.NONE), (0, 4.9, Reason.CLIPPED), (0, 5.1, Reason.OUT_OF_RANGE)):
        given = np.zeros(4)
        given[place] = value
        values, reasons = guard().values(given)
        assert reasons == reason
        assert values is None if reason is Reason.OUT_OF_RANGE else values is not None and values[place] == 2.0
    assert guard().values([0, 3.4, 0, 0]).reasons == Reason.CLIPPED
    assert guard().values([0, 3.6, 0, 0]).reasons == Reason.OUT_OF_RANGE


def test_a_field_without_bounds_takes_any_finite_number():
    free = dataclasses.replace(MANIFEST.observation[0], low=None, high=None)
    facts = small_bundle.manifest(observation=(free, *MANIFEST.observation[1:]))
    unbounded = Guard(facts, DEVIATION, GuardSettings())
    assert unbounded.values([1e30, 0, 0, 0]).reasons is Reason.NONE
    assert unbounded.values([np.inf, 0, 0, 0]).reasons == Reason.NOT_FINITE
    assert unbounded.values([np.nan, 0, 0, 0]).reasons == Reason.NOT_FINITE


def test_a_stuck_sensor_is_found_at_the_fifth_repeat_and_a_moving_one_never():
    watching = guard(stuck_steps=5)
    found = [watching.check(GOOD, 0).reasons for _ in range(6)]
    assert found == [Reason.NONE] * 4 + [Reason.STUCK] * 2
    assert watching.check(GOOD + 1e-6, 0).reasons is Reason.NONE
    generator = np.random.default_rng(0)
    noise = generator.uniform(-1, 1, (20_000, 4)).astype(np.float32)
    assert not any(Reason.STUCK in watching.check(row, 0).reasons for row in noise)
    assert all(guard(stuck_steps=0).check(GOOD, 0).reasons is Reason.NONE for _ in range(50))


def rows(*columns: list[float]) -> list[list[float]]:
    """Observations one after the other, from what each of their elements shows."""
    return [list(row) for row in zip(*columns, strict=True)]


MOVES = [0.1 * (i + 1) for i in range(8)]


@pytest.mark.parametrize(
    ("element", "found_at"),
    [
        # It moved once, at the second observation; the third one with that number is the fourth observation.
        ([0.1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], 4),
        ([0.1, 0.5, 0.5, 0.6, 0.6, 0.7, 0.7, 0.7], 8),
        ([0.1, 0.5, 0.5, 0.6, 0.6, 0.7, 0.7, 0.8], None),
        # Never moved: a constant, or stuck from the start, which cannot be told apart.
        ([0.5] * 8, None),
        # Zero and the declared bounds (-2, 2) are places to rest.
        ([0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], None),
        ([0.1, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0], None),
        ([0.1, -2.0, -2.0, -2.0, -2.0, -2.0, -2.0, -2.0], None),
        # Clipped to its bound.
        ([0.1, 2.1, 2.1, 2.1, 2.1, 2.1, 2.1, 2.1], None),
    ],
)
def test_one_stuck_element_is_found_on_request(element, found_at):
    watching, trusting = guard(stuck_element_after=3), guard()
    stream = rows(MOVES, element, [-x for x in MOVES], [1.0 - x for x in MOVES])
    found = [Reason.STUCK in watching.check(row, 0).reasons for row in stream]
    assert (found.index(True) + 1 if any(found) else None) == found_at
    assert not any(Reason.STUCK in trusting.check(row, 0).reasons for row in stream), "nobody asked"


def test_elements_that_rest_with_most_others_are_not_stuck():
    # Only one of four goes on: the robot stands, and three quiet sensors show it.
    resting = [0.1, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2]
    watching = guard(stuck_element_after=3)
    assert not any(Reason.STUCK in watching.check(row, 0).reasons for row in rows(MOVES, resting, resting, resting))
    # Two of four: at least half of them move, and the others do not follow.
    watching = guard(stuck_element_after=3)
    found = [Reason.STUCK in watching.check(row, 0).reasons for row in rows(MOVES, MOVES, resting, resting)]
    assert found == [False] * 3 + [True] * 5


def test_a_new_stream_forgets_what_rested():
    watching = guard(stuck_element_after=3)
    stream = rows(MOVES, [0.1] + [0.5] * 7, MOVES, MOVES)
    for row in stream[:3]:
        watching.check(row, 0)
    watching.forget()
    assert not any(Reason.STUCK in watching.check(row, 0).reasons for row in stream[3:]), "it has not moved since"


def test_old_repeated_shuffled_and_future_observations():
    # The period is 50 ms, so that an observation may be 75 ms old.
    watching = guard(stuck_steps=0)
    assert watching.check(GOOD, 100 * MS, 50 * MS).reasons is Reason.NONE
    assert watching.check(GOOD, 150 * MS, 50 * MS).reasons == Reason.OUT_OF_ORDER, "the same again"
    assert watching.check(GOOD, 150 * MS, 40 * MS).reasons == Reason.OUT_OF_ORDER, "an older one"
    assert watching.check(GOOD, 200 * MS, 120 * MS).reasons == Reason.STALE
    assert watching.check(GOOD, 250 * MS, 250 * MS).reasons is Reason.NONE
    assert watching.check(GOOD, 300 * MS, 3_600_000 * MS).reasons == Reason.OUT_OF_ORDER, "from the future"
    assert watching.check(GOOD, 300 * MS, 300 * MS).reasons is Reason.NONE, "the future one must not be remembered"


def test_random_bytes_never_get_through_and_never_raise():
    generator = np.random.default_rng(0)
    watching = guard(stuck_steps=0)
    for _ in range(volume(20_000, 1_000_000)):
        given = np.frombuffer(generator.bytes(16), np.float32)
        values, reasons = watching.check(given, 0)
        if values is None:
            assert reasons
        else:
            assert np.isfinite(values).all() and (np.abs(values) <= 2.0).all()


@pytest.mark.parametrize("stuck_element_after", [0, 5])
def test_checking_is_cheap(stuck_element_after):
    watching = guard(stuck_element_after=stuck_element_after)
    given = np.random.default_rng(0).uniform(-1, 1, (2000, 4)).astype(np.float32)
    times = []
    for row in given:
        begun = time.perf_counter_ns()
        watching.check(row, 0)
        times.append(time.perf_counter_ns() - begun)
    # Some ten microseconds; the bound leaves room for a machine that is busy with something else.
    assert np.median(times) < 100_000
