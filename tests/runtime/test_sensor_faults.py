"""A runtime in the loop whose sensors lie: what goes out may be sent, is explained, and teaches nothing false.

The volumes are small here and long under `make soak`; the numbers T1 to T6 are those of the deployment design.
"""

import dataclasses
import itertools

import numpy as np
import pytest

from ashore_runtime import GuardSettings, Limits, Mode, Reason
from ashore_runtime.guard import Guard
from ashore_runtime.modes import ACTING
from ashore_runtime.reasons import OBSERVATION_FAULTS
from ashore_runtime.schema import Field
from runtime import small_bundle
from runtime.fake_clock import FakeClock
from runtime.toy_plant import ToyPlant
from volumes import volume

PERIOD = round(small_bundle.PERIOD * 1e9)
NEVER_STUCK = Limits(guard=GuardSettings(stuck_steps=0))
EPISODE = 40


def assert_may_be_sent(result):
    assert result.action.shape == (2,) and result.action.dtype == np.float32
    assert np.isfinite(result.action).all() and (np.abs(result.action) <= 1.0).all()


# T1

ODD_NUMBERS = (np.nan, np.inf, -np.inf, 1e-45, -1e-40, 1e38, -1e38, 3e38, -0.0, 2.0000002, -5.0)


def test_odd_numbers_in_any_element_are_answered_and_explained(make_runtime):
    runtime = make_runtime(limits=NEVER_STUCK)
    generator = np.random.default_rng(0)
    for _ in range(volume(2_000, 60_000)):
        if runtime.state is Mode.FALLBACK:
            runtime.reset()
            runtime.arm()
        observation = generator.uniform(-1.5, 1.5, 4).astype(np.float32)
        places = generator.integers(0, 4, int(generator.integers(1, 5)))
        if generator.random() < 0.5:
            observation[places] = generator.choice(ODD_NUMBERS, len(places))
        else:
            observation[places] = np.frombuffer(generator.bytes(4 * len(places)), np.float32)
        result = runtime.act(observation)
        assert_may_be_sent(result)
        inside = bool((np.abs(observation) <= 2.0).all())
        assert inside or result.reasons & (OBSERVATION_FAULTS | Reason.CLIPPED), observation
        # What was acted on was believed; what was not is held or left to the fallback.
        believed = not result.reasons & OBSERVATION_FAULTS
        assert believed == (result.source in ("nominal", "refined")), (observation, result)
    assert runtime.health()["tallies"]["errors"] == 0


# T3


def test_far_outside_degrades_at_once_and_falls_back_at_the_third(make_runtime):
    runtime = make_runtime(limits=NEVER_STUCK)
    deviation = runtime.bundle.networks.normalisers.observation.deviation
    generator = np.random.default_rng(0)
    clipped = 0
    for _ in range(volume(300, 30_000)):
        place, sign = int(generator.integers(4)), generator.choice([-1.0, 1.0])
        # Bounds are +-2; beyond them by a thousandth to a thousand times as much.
        value = sign * 2.0 * (1.0 + 10.0 ** generator.uniform(-3.0, 3.0))
        observation = generator.uniform(-1.5, 1.5, 4)
        observation[place] = value
        runtime.reset()
        runtime.arm()
        assert runtime.act(generator.uniform(-1.5, 1.5, 4)).mode is Mode.ACTIVE
        if abs(value) <= 2.0 + 2.999 * deviation[place]:
            result = runtime.act(observation)
            assert Reason.CLIPPED in result.reasons and result.mode is Mode.ACTIVE
            clipped += 1
        elif abs(value) >= 2.0 + 3.001 * deviation[place]:
            modes = [runtime.act(observation + 1e-3 * repeat).mode for repeat in range(3)]
            assert modes == [Mode.DEGRADED, Mode.DEGRADED, Mode.FALLBACK]
    assert clipped > 0


# T4


def test_stuck_sensors_are_found_within_five_steps(make_runtime):
    runtime = make_runtime()
    generator = np.random.default_rng(0)
    for episode in range(volume(20, 1_000)):
        runtime.reset()
        runtime.arm()
        plant, onset = ToyPlant(episode), int(generator.integers(1, EPISODE))
        observation = plant.step(np.zeros(2))
        for _ in range(onset):
            result = runtime.act(observation)
            assert Reason.STUCK not in result.reasons
            observation = plant.step(result.action)
        found = [Reason.STUCK in runtime.act(observation).reasons for _ in range(5)]
        assert found[-1] and runtime.eta == 0.9


def test_moving_sensors_are_never_called_stuck():
    facts = small_bundle.manifest()
    guard = Guard(facts, np.ones(4, np.float32), GuardSettings())
    plant, action = ToyPlant(0), np.zeros(2)
    assert not any(Reason.STUCK in guard.check(plant.step(action), 0).reasons for _ in range(volume(5_000, 1_000_000)))


ONE_BY_ONE = GuardSettings(stuck_element_after=5)


def test_one_stuck_element_is_found_within_five_steps(make_runtime):
    runtime = make_runtime(limits=Limits(guard=ONE_BY_ONE))
    generator = np.random.default_rng(0)
    for episode in range(volume(20, 1_000)):
        runtime.reset()
        runtime.arm()
        plant, onset, place = ToyPlant(episode), int(generator.integers(2, EPISODE)), int(generator.integers(4))
        observation = plant.step(np.zeros(2))
        for _ in range(onset):
            result = runtime.act(observation)
            assert Reason.STUCK not in result.reasons
            kept = observation[place]
            observation = plant.step(result.action)
        # From here on the element shows what it showed last; the first time was `kept`, before the onset.
        found = []
        for _ in range(4):
            observation[place] = kept
            found.append(Reason.STUCK in runtime.act(observation).reasons)
            observation = plant.step(np.zeros(2))
        assert found == [False, False, False, True] and runtime.eta == 0.9


def test_honest_elements_are_never_called_stuck():
    # Four sensors with noise and twelve lidars: out of range for long, at contact for long, and in between moving.
    lidars = tuple(Field(f"lidar_{i}", "1", 0.0, 1.0) for i in range(12))
    facts = small_bundle.manifest(observation=(*small_bundle.OBSERVATION, *lidars))
    guard = Guard(facts, np.ones(16, np.float32), ONE_BY_ONE)
    plant, generator = ToyPlant(0), np.random.default_rng(1)
    distance = generator.uniform(-1.0, 2.0, 12)
    for _ in range(volume(5_000, 1_000_000)):
        distance = np.clip(distance + generator.normal(scale=0.05, size=12), -2.0, 3.0)
        seen = np.concatenate([plant.step(np.zeros(2)), np.clip(distance, 0.0, 1.0)])
        assert Reason.STUCK not in guard.check(seen, 0).reasons


# T5


def arrivals(fault: str, strength: float, generator: np.random.Generator) -> list[int]:
    """Which of the samples, one per tick, arrives at each tick."""
    if fault == "delayed":
        return [max(tick - round(1 + 9 * strength), 0) for tick in range(EPISODE + 1)]
    if fault == "jittering":
        return [max(tick - int(generator.integers(0, 2 + round(8 * strength))), 0) for tick in range(EPISODE + 1)]
    missing = generator.random(EPISODE + 1) < strength / 2
    if fault == "repeated":
        return [max(tick - int(late), 0) for tick, late in enumerate(missing)]
    # Dropped: what came last is all there is.
    return list(itertools.accumulate(range(EPISODE + 1), lambda last, tick: last if missing[tick] else tick))


@pytest.mark.parametrize("fault", ["delayed", "jittering", "dropped", "repeated"])
def test_old_samples_are_never_acted_on_nor_learnt_from(make_runtime, fault):
    clock = FakeClock()
    runtime = make_runtime(clock=clock, limits=NEVER_STUCK)
    generator = np.random.default_rng(1)
    sources = set()
    for episode in range(volume(12, 300)):
        runtime.reset()
        runtime.arm()
        clock.time += 100 * PERIOD
        begun, plant = clock.time, ToyPlant(episode)
        arrives = arrivals(fault, float(generator.random()), generator)
        samples = [plant.step(np.zeros(2))]
        newest, held, refused = -1, 0, 0
        for tick in range(EPISODE):
            clock.time = begun + tick * PERIOD
            sample = arrives[tick]
            result = runtime.act(samples[sample], t_obs=begun + sample * PERIOD)
            usable = sample > newest and tick - sample <= 1
            newest = max(newest, sample)
            acted = result.source in ("nominal", "refined")
            assert acted == (usable and result.mode in ACTING), (fault, tick, sample)
            sources.add(result.source)
            refused = 0 if usable else refused + 1
            held = held + 1 if result.source == "held" else 0
            assert held <= 2 and (refused < 3 or runtime.state is Mode.FALLBACK)
            samples.append(plant.step(result.action))
            clock.time = begun + (tick + 1) * PERIOD
            following = arrives[tick + 1]
            before = runtime.posterior.count
            evidence = runtime.observe(samples[following], 0.0, 0.0, t=begun + following * PERIOD)
            # A transition is one sample and the next one, and the action in between was decided on the first.
            assert evidence.used <= (usable and following - sample == 1)
            assert runtime.posterior.count == before + evidence.used
            if runtime.state is Mode.FALLBACK and generator.random() < 0.2:
                runtime.reset()
                runtime.arm()
                newest, refused = -1, 0
    assert {"held", "nominal"} <= sources


# T6


def test_without_a_believable_cost_nothing_is_learnt_and_nothing_relaxes(make_runtime):
    limits = dataclasses.replace(NEVER_STUCK, patience=3, detect_changes=False)
    generator = np.random.default_rng(2)
    faults = (None, -1e-9, -1.0, -np.inf, np.inf, np.nan, "1.0.0", [], {}, 1j, np.array([0.1, 0.2]), b"x")
    runtime = make_runtime(limits=limits)
    wrong = 0
    for _ in range(volume(60, 3_000)):
        if generator.random() < 0.2:
            runtime.restore({}, "reset")
        plant = ToyPlant(int(generator.integers(1 << 30)))
        for _ in range(int(generator.integers(1, 12))):
            result = runtime.act(plant.step(np.zeros(2)))
            good = generator.random() < 0.6
            cost = 0.0 if good else faults[int(generator.integers(len(faults)))]
            before, eta = runtime.posterior.count, runtime.eta
            evidence = runtime.observe(plant.step(result.action), 0.0, cost)
            assert evidence.used == good and runtime.posterior.count == before + good
            if not good:
                assert Reason.COST_FAULT in evidence.reasons and runtime.eta >= eta
                wrong += 1
    assert wrong > 50


# T2: what is cast and what is refused, for every kind of number in every layout.

NUMBERS = ("f2", "f4", "f8", ">f4", ">f8", "longdouble", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")
NO_NUMBERS = ("c8", "c16", "U3", "S3", "M8[s]", "m8[s]", "O", "V4")
LAYOUTS = {
    "plain": lambda row: row.copy(),
    "read only": lambda row: (lambda copy: (copy.setflags(write=False), copy)[1])(row.copy()),
    "every second": lambda row: np.repeat(row, 2)[::2],
    "backwards": lambda row: row[::-1].copy()[::-1],
    "column of a Fortran array": lambda row: np.array([row, row], order="F")[0],
    "column of a C array": lambda row: np.stack([row, row], axis=1)[:, 0],
    "unaligned": lambda row: np.frombuffer(b"\0" + row.tobytes(), np.uint8)[1:].view(row.dtype),
    "subclass": lambda row: row.view(np.recarray),
}
SHAPES = ((), (0,), (1,), (3,), (5,), (1, 4), (4, 1), (2, 2), (4, 4), (1, 1, 4))


def variants():
    for kind, layout in itertools.product(NUMBERS, LAYOUTS):
        yield f"{kind} {layout}", LAYOUTS[layout](np.array([0, 1, 1, 0], kind)), True
    for kind in NUMBERS:
        yield f"list of {kind}", list(np.array([0, 1, 1, 0], kind)), True
        for shape in SHAPES:
            yield f"{kind} of shape {shape}", np.zeros(shape, kind), False
    for kind, count in itertools.product(NO_NUMBERS, (1, 4)):
        yield f"{count} of {kind}", np.zeros(count, kind), False


def test_every_kind_of_number_in_every_layout_is_cast_or_refused():
    guard = Guard(small_bundle.manifest(), np.ones(4, np.float32), GuardSettings(stuck_steps=0))
    seen = 0
    for name, given, good in variants():
        values, reasons = guard.values(given)
        seen += 1
        if good:
            assert values is not None and values.dtype == np.float32 and values.tolist() == [0, 1, 1, 0], name
        else:
            assert values is None and reasons & (Reason.SHAPE | Reason.NOT_AN_ARRAY), name
    assert seen > 200
