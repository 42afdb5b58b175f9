"""The runtime in the loop: whatever comes in, what goes out is finite, inside the box, explained, and on time."""

import dataclasses
import errno
import math
import os
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ashore_runtime import GuardSettings, Limits, Mode, ModeSettings, Reason, Refused, Runtime
from ashore_runtime import journal as journals
from ashore_runtime.golden import conditioning_eta
from ashore_runtime.policy import PolicyNetworks
from ashore_runtime.results import recorded_decisions
from ashore_runtime.schema import Refinement
from runtime import small_bundle
from runtime.fake_clock import FakeClock
from volumes import examples

PERIOD = round(small_bundle.PERIOD * 1e9)
NEVER_STUCK = Limits(guard=GuardSettings(stuck_steps=0))


def observations(count, seed=0):
    return np.random.default_rng(seed).uniform(-1.5, 1.5, (count, 4)).astype(np.float32)


def assert_may_be_sent(result):
    assert result.action.shape == (2,) and result.action.dtype == np.float32
    assert np.isfinite(result.action).all() and (np.abs(result.action) <= 1.0).all()


# The invariants


@pytest.fixture(scope="session")
def patient(bundle_folder: Path) -> Runtime:
    return Runtime.load(bundle_folder, clock=FakeClock(), freeze=False, limits=NEVER_STUCK)


@examples(200, 10_000)
@given(st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=5))
def test_any_bytes_are_answered(patient, rows):
    patient.reset()
    patient.arm()
    for row in rows:
        given = np.frombuffer(row, np.float32)
        result = patient.act(given)
        assert_may_be_sent(result)
        if not np.isfinite(given).all():
            assert Reason.NOT_FINITE in result.reasons and result.source in ("held", "fallback")


anything = st.one_of(
    st.none(),
    st.text(max_size=3),
    st.floats(),
    st.integers(),
    st.complex_numbers(),
    st.lists(st.floats(), max_size=6),
    st.lists(st.lists(st.floats(), max_size=2), max_size=3),
    st.dictionaries(st.text(max_size=2), st.floats(), max_size=2),
    st.binary(max_size=8),
)


@examples(200, 10_000)
@given(st.lists(st.tuples(anything, anything, anything, st.booleans()), min_size=1, max_size=6))
def test_act_and_observe_never_raise(patient, steps):
    patient.reset()
    patient.arm()
    for observation, reward, cost, good in steps:
        assert_may_be_sent(patient.act(np.zeros(4) if good else observation))
        evidence = patient.observe(np.ones(4) if good else observation, reward, cost)
        assert evidence.used or evidence.reasons


@pytest.mark.parametrize(
    "refinement", [Refinement(), Refinement(keep="last"), Refinement(weight="full", variant="unit")]
)
def test_the_value_that_is_reported_is_that_of_the_action_that_is_sent(tight_folder, make_runtime, refinement):
    limits = dataclasses.replace(NEVER_STUCK, evaluate_always=True)
    runtime = make_runtime(tight_folder, refinement=refinement, limits=limits)
    alone = PolicyNetworks(runtime.bundle.manifest, runtime.bundle.weights)
    assert alone.critics is not None
    sources = set()
    for observation in observations(50):
        result = runtime.act(observation)
        normal = alone.normalisers.observation.normalise(observation)
        alone.critics.prepare(normal, result.z_mean, result.eta)
        assert result.q_c == pytest.approx(alone.critics.cost(result.action), abs=1e-5)
        assert result.q_c <= result.q_c_nominal or refinement.keep == "last"
        sources.add(result.source)
        runtime.observe(observation + 0.1, 0.0, 0.0)
    assert sources == {"refined", "nominal"} and runtime.eta == 0.0


@pytest.fixture(scope="session")
def judged(tight_folder: Path) -> Runtime:
    limits = dataclasses.replace(NEVER_STUCK, evaluate_always=True, deadline=math.inf)
    return Runtime.load(tight_folder, clock=FakeClock(), freeze=False, limits=limits)


@examples(200, 2_500)
@given(st.lists(st.tuples(*4 * [st.floats(-2.0, 2.0, width=32)]), min_size=1, max_size=4), st.floats(0.0, 3.0))
def test_any_value_that_is_reported_is_that_of_the_action_that_is_sent(judged, rows, cost):
    judged.restore({}, "reset")
    judged.reset()
    judged.arm()
    alone = PolicyNetworks(judged.bundle.manifest, judged.bundle.weights)
    assert alone.critics is not None
    for row in rows:
        result = judged.act(row)
        alone.critics.prepare(alone.normalisers.see(np.array(row, np.float32)), result.z_mean, result.eta)
        assert result.q_c == pytest.approx(alone.critics.cost(result.action), abs=1e-5)
        judged.observe(row, 0.0, cost)


def test_no_risk_is_the_actor_bit_for_bit(tight_folder, make_runtime):
    runtime = make_runtime(tight_folder, eta=0.0, limits=NEVER_STUCK)
    alone = PolicyNetworks(runtime.bundle.manifest, runtime.bundle.weights)
    for observation in observations(50):
        result = runtime.act(observation)
        expected = alone.action(alone.normalisers.observation.normalise(observation), np.zeros(3, np.float32))
        assert result.action.tobytes() == expected.tobytes() and result.source == "nominal" and result.k_used == 0
        assert math.isnan(result.q_c)


def test_the_same_observations_give_the_same_bytes(tight_folder, make_runtime):
    def play():
        runtime = make_runtime(tight_folder, limits=NEVER_STUCK)
        sent = []
        for observation, following in zip(observations(40), observations(40, seed=1), strict=True):
            sent.append(runtime.act(observation).action.tobytes())
            runtime.observe(following, 0.1, 0.2)
        return sent

    assert play() == play()


def test_a_journal_can_be_played_again(tight_folder, tmp_path: Path, make_runtime):
    path = tmp_path / "run.jnl"
    runtime = make_runtime(tight_folder, journal=path, limits=NEVER_STUCK, eta=0.9)
    for observation in observations(20):
        runtime.act(observation)
    runtime.close()
    again = make_runtime(tight_folder, limits=NEVER_STUCK, eta=0.9)
    decisions = list(recorded_decisions(path, 4))
    assert len(decisions) == 20 and {decision.source for decision in decisions} <= {"nominal", "refined"}
    for decision in decisions:
        result = again.act(decision.observation)
        assert result.action.tobytes() == decision.action.tobytes()
        assert (result.q_c, result.k_used, result.reasons) == (decision.q_c, decision.k_used, decision.reasons)


def test_a_journal_of_a_run_that_learnt_can_be_played_again(tight_folder, tmp_path: Path, make_runtime):
    path, limits = tmp_path / "run.jnl", dataclasses.replace(NEVER_STUCK, patience=3)
    runtime = make_runtime(tight_folder, journal=path, limits=limits)
    for step, (observation, following) in enumerate(zip(observations(40), observations(40, seed=1), strict=True)):
        runtime.act(observation)
        runtime.observe(following, 0.1, None if step % 7 == 6 else 0.2)
    runtime.close()
    decisions = list(recorded_decisions(path, 4))
    again, ignorant = (make_runtime(tight_folder, limits=limits) for _ in range(2))
    remaining, others = iter(decisions), 0
    for record in journals.records(path):
        if record.kind == journals.BEGIN:
            again.restore(record.json()["state"])
        elif record.kind == journals.TRANSITION:
            again.restore(record.json())
        elif record.kind == journals.DECISION:
            made = next(remaining)
            # All that is kept of a decision: eta, cost, steps, source, reasons and the action.
            assert again.act(made.observation).pack(made.begun, made.observation) == record.body
            others += ignorant.act(made.observation).action.tobytes() != made.action.tobytes()
    assert len(decisions) == 40 and {made.eta for made in decisions} == {0.9, 0.6, 0.3, 0.0}
    assert others > 30, "what was learnt makes no difference, and nothing was shown"


# Sensors


def test_out_of_range_is_held_and_then_falls_back(make_runtime):
    runtime = make_runtime()
    first = runtime.act(np.zeros(4))
    assert first.source == "nominal" and runtime.state is Mode.ACTIVE
    for _ in range(2):
        result = runtime.act(np.array([0.0, 900.0, 0.0, 0.0]))
        assert result.source == "held" and result.action.tobytes() == first.action.tobytes()
        assert Reason.OUT_OF_RANGE in result.reasons and runtime.state is Mode.DEGRADED
    result = runtime.act(np.array([0.0, 900.0, 0.0, 0.0]))
    assert result.source == "fallback" and runtime.state is Mode.FALLBACK
    result = runtime.act(np.ones(4))
    assert result.source == "fallback" and Reason.LATCHED in result.reasons, "the latch opened by itself"
    assert runtime.reset() is Mode.READY
    assert Reason.NOT_ARMED in runtime.act(np.ones(4)).reasons
    assert runtime.arm() is Mode.ACTIVE and runtime.act(np.zeros(4)).source != "fallback"


def test_a_little_out_of_range_is_clipped_and_acted_on(make_runtime):
    runtime = make_runtime()
    result = runtime.act(np.array([2.5, 0.0, 0.0, 0.0]))
    assert result.source == "nominal" and Reason.CLIPPED in result.reasons and runtime.state is Mode.ACTIVE


def test_the_first_observation_is_bad_and_nothing_can_be_held(make_runtime):
    runtime = make_runtime(fallback="zero")
    result = runtime.act(np.full(4, np.nan))
    assert result.source == "fallback" and result.action.tolist() == [0.0, 0.0]


def test_a_stuck_sensor_falls_back(make_runtime):
    runtime = make_runtime()
    reasons = [runtime.act(np.full(4, 0.3)).reasons for _ in range(7)]
    assert [Reason.STUCK in reason for reason in reasons] == [False] * 4 + [True] * 3
    assert runtime.state is Mode.FALLBACK


def test_health_says_which_field_was_bad(make_runtime):
    clock = FakeClock()
    runtime = make_runtime(clock=clock)
    assert runtime.health()["last_fault"] is None
    runtime.act([0.0, 0.0, 11.25, 0.0])
    assert runtime.health()["last_fault"] == "sensor_2 is 11.25, allowed -2 to 2"
    runtime.act(np.ones(4))
    runtime.new_episode()
    assert runtime.health()["last_fault"] == "sensor_2 is 11.25, allowed -2 to 2", "it is kept for whoever looks later"
    runtime.observe([0.0, np.nan, 0.0, 0.0], 0.0, 0.0)
    assert runtime.health()["last_fault"] == "sensor_1 is nan, allowed -2 to 2"
    runtime.act(np.zeros(3))
    assert runtime.health()["last_fault"] == "the observation has the shape (3,) instead of (4,)"
    runtime.act("far")
    assert runtime.health()["last_fault"] == "the observation is not an array of numbers"
    runtime.act(np.zeros(4), t_obs=clock.time - 2 * PERIOD)
    assert runtime.health()["last_fault"] == "the observation is stale"


def test_delayed_shuffled_and_repeated_observations_are_never_acted_on(make_runtime):
    clock = FakeClock()
    runtime = make_runtime(clock=clock, limits=Limits(modes=ModeSettings(hold_steps=10**6)))
    generator = np.random.default_rng(0)
    newest = clock.time
    assert runtime.act(np.zeros(4), t_obs=newest).source == "nominal"
    for observation in observations(400):
        clock.time += PERIOD
        taken = clock.time - int(generator.choice([0, 0, 1, 3])) * PERIOD - int(generator.integers(2)) * PERIOD // 4
        result = runtime.act(observation, t_obs=taken)
        old = clock.time - taken > 1.5 * PERIOD
        assert (result.source == "held") == (old or taken <= newest)
        if taken > newest:
            newest = taken


def test_a_transition_with_a_gap_is_not_evidence(make_runtime):
    clock = FakeClock()
    runtime = make_runtime(clock=clock)
    a, b = observations(2)

    def transition(delay):
        clock.time += 10 * PERIOD
        runtime.act(a + 1e-3 * (clock.time % 7), t_obs=clock.time)
        return runtime.observe(b, 0.0, 0.0, t=clock.time + round(delay * PERIOD))

    assert transition(1.0).used
    for delay in (2.0, 10.0, 0.0, -1.0):
        evidence = transition(delay)
        assert not evidence.used and evidence.reasons == Reason.GAP and evidence.n_real == 1
    assert runtime.observe(b, 0.0, 0.0).reasons == Reason.GAP, "nothing was decided since"


def test_who_says_when_the_first_was_measured_need_not_say_it_of_the_second(make_runtime):
    clock = FakeClock()
    runtime = make_runtime(clock=clock, limits=NEVER_STUCK)
    for periods, used in ((1.0, True), (20.0, False), (1.4, True), (1.6, False)):
        runtime.act(observations(1)[0], t_obs=clock.time)
        clock.time += round(periods * PERIOD)
        evidence = runtime.observe(observations(1, seed=1)[0], 0.0, 0.0)
        assert evidence.used == used and (Reason.GAP in evidence.reasons) != used
    # Without any time it may be a simulator, whose time is not that of the clock.
    runtime.act(observations(1)[0])
    clock.time += 20 * PERIOD
    assert runtime.observe(observations(1, seed=1)[0], 0.0, 0.0).used


@pytest.mark.parametrize("cost", [None, -1.0, math.nan, math.inf, "much", [1.0, 2.0]])
def test_without_a_cost_there_is_no_evidence_and_no_relaxing(make_runtime, cost):
    runtime = make_runtime(limits=NEVER_STUCK)
    for observation in observations(30):
        runtime.act(observation)
        evidence = runtime.observe(observation + 0.1, 0.0, cost)
        assert not evidence.used and Reason.COST_FAULT in evidence.reasons
        assert evidence.eta == 0.9 and evidence.n_real == 0


# Caution


def test_it_relaxes_on_evidence_and_tightens_on_a_bad_sensor(make_runtime):
    runtime = make_runtime(limits=dataclasses.replace(NEVER_STUCK, patience=5, detect_changes=False))
    etas = []
    for observation in observations(20):
        etas.append(runtime.act(observation).eta)
        runtime.observe(observation + 0.1, 0.0, 0.0)
    # The table says 0.9 at 0 and 1, 0.6 from 2, 0.3 from 8, 0 from 16 transitions on.
    assert etas == [0.9] * 2 + [0.6] * 6 + [0.3] * 8 + [0.0] * 4
    runtime.act(np.full(4, np.nan))
    assert runtime.eta == 0.9
    for step, observation in enumerate(observations(6, seed=2)):
        assert runtime.act(observation).eta == (0.9 if step < 5 else 0.0)
        runtime.observe(observation + 0.1, 0.0, 0.0)


def test_too_much_cost_tightens(make_runtime):
    runtime = make_runtime(limits=dataclasses.replace(NEVER_STUCK, detect_changes=False))
    for step, observation in enumerate(observations(40)):
        result = runtime.act(observation)
        # Twice the budget of 25 is passed with the 26th cost of 2, and said with the next decision.
        assert (Reason.OVER_BUDGET in result.reasons) == (step >= 26)
        assert result.eta == 0.9 if step >= 26 else True
        runtime.observe(observation + 0.1, 0.0, 2.0)


def test_infeasible_calibration_is_said(make_runtime):
    runtime = make_runtime()
    assert Reason.NOT_CALIBRATED in runtime.act(np.zeros(4)).reasons
    runtime.observe(np.ones(4), 0.0, 0.0)
    assert Reason.NOT_CALIBRATED not in runtime.act(np.ones(4)).reasons


def test_where_eta_goes_for_networks_that_know_it(tmp_path: Path, make_runtime):
    network = dataclasses.replace(small_bundle.NETWORK, risk_conditioned=True)
    facts = small_bundle.manifest(network, caution="both", discounted=0.05)
    folder = small_bundle.write(tmp_path / "knowing", facts)
    alone = None
    for caution, fed, refines in (("refinement", 0.0, True), ("actor", 0.6, False), ("both", 0.6, True)):
        runtime = make_runtime(folder, caution=caution, eta=0.6, limits=NEVER_STUCK)
        alone = PolicyNetworks(facts, runtime.bundle.weights)
        assert conditioning_eta(runtime.bundle.manifest, 0.6) == fed
        steps = 0
        for observation in observations(20):
            result = runtime.act(observation)
            normal = alone.normalisers.observation.normalise(observation)
            nominal = alone.action(normal, np.array([0.0, 0.0, 0.0, fed], np.float32))
            if result.source == "nominal":
                assert result.action.tobytes() == nominal.tobytes()
            assert refines or result.source == "nominal"
            steps += result.k_used
        assert (steps > 0) == refines
    plain = small_bundle.write(tmp_path / "plain")
    with pytest.raises(Refused, match="an actor that does not know eta"):
        make_runtime(plain, caution="actor")


def test_when_nothing_fits_the_fallback_can_be_asked(tight_folder, make_runtime):
    limits = dataclasses.replace(NEVER_STUCK, over_threshold="fallback")
    runtime = make_runtime(tight_folder, fallback="zero", limits=limits)
    results = [runtime.act(observation) for observation in observations(20)]
    over = [result for result in results if Reason.OVER_THRESHOLD in result.reasons]
    assert over and all(result.source == "fallback" and not result.action.any() for result in over)
    assert runtime.state is Mode.ACTIVE, "a fallback for one decision must not latch"


def test_rate_and_box(make_runtime):
    limits = dataclasses.replace(NEVER_STUCK, rate=0.1, low=(-0.5, -0.5), high=(0.5, 0.2))
    runtime = make_runtime(limits=limits, eta=0.9)
    before = None
    for observation in observations(50):
        action = runtime.act(observation).action
        assert (action >= -0.5).all() and (action <= [0.5, 0.2001]).all()
        if before is not None:
            assert np.abs(action - before).max() <= 0.1 + 1e-6
        before = action
    with pytest.raises(Refused, match="leave no action"):
        make_runtime(limits=Limits(low=(0.5, 0.5), high=(0.4, 0.6)))


# Errors


def test_an_error_in_the_policy_latches_the_fallback_and_is_written_down(tmp_path: Path, make_runtime, monkeypatch):
    runtime = make_runtime(journal=tmp_path / "run.jnl", fallback="zero")
    runtime.act(np.zeros(4))
    monkeypatch.setattr(runtime.bundle.networks, "action", lambda *_: 1 / 0)
    result = runtime.act(np.ones(4))
    assert result.source == "fallback" and Reason.ERROR in result.reasons and runtime.state is Mode.FALLBACK
    runtime.close()
    events = [record.json() for record in journals.records(tmp_path / "run.jnl") if record.kind == journals.EVENT]
    assert any("ZeroDivisionError" in event["words"] for event in events)


def test_actions_that_are_not_finite_are_never_sent(make_runtime, monkeypatch):
    runtime = make_runtime(fallback="zero")
    monkeypatch.setattr(runtime.bundle.networks, "action", lambda *_: np.full(2, np.nan, np.float32))
    result = runtime.act(np.zeros(4))
    assert result.source == "fallback" and Reason.ERROR in result.reasons


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"eta": "0.5"}, r"A risk level is in \[0, 1\), not '0.5'."),
        ({"eta": math.nan}, r"A risk level is in \[0, 1\), not nan."),
        ({"fallback": None}, "There is no fallback called None; there are hold"),
        ({"fallback": 3}, "There is no fallback called 3; there are hold"),
    ],
)
def test_options_of_another_kind_are_refused(make_runtime, wrong, message):
    with pytest.raises(Refused, match=message):
        make_runtime(**wrong)


def test_a_fallback_that_fails_later_is_replaced_by_zero(make_runtime):
    answers = {"good": True}

    def moody(observation, last_action):
        if not answers["good"]:
            raise RuntimeError("not today")
        return last_action

    runtime = make_runtime(fallback=moody, armed=False)
    answers["good"] = False
    result = runtime.act(np.zeros(4))
    assert result.action.tolist() == [0.0, 0.0] and Reason.FALLBACK_FAULT in result.reasons


def test_not_armed_and_closed_runtimes_do_not_act(make_runtime):
    runtime = make_runtime(armed=False, fallback="zero")
    assert runtime.state is Mode.READY
    result = runtime.act(np.ones(4))
    assert result.source == "fallback" and Reason.NOT_ARMED in result.reasons
    assert not runtime.observe(np.zeros(4), 0.0, 0.0).used, "nobody knows what was really done"
    runtime.arm()
    runtime.close()
    runtime.close()
    assert runtime.state is Mode.STOPPED and runtime.arm() is Mode.STOPPED
    assert runtime.act(np.zeros(4)).source == "fallback"


def test_a_result_is_an_array(make_runtime):
    result = make_runtime().act(np.zeros(4))
    np.testing.assert_array_equal(np.asarray(result), result.action)
    assert np.asarray(result, np.float64).dtype == np.float64
    assert np.clip(result, -0.1, 0.1).shape == (2,)


# Time


@pytest.mark.parametrize("slowness", [1, 10, 100])
def test_slow_steps_cost_at_most_one_step_past_the_deadline(tight_folder, make_runtime, monkeypatch, slowness):
    clock = FakeClock()
    runtime = make_runtime(tight_folder, clock=clock, eta=0.9, limits=NEVER_STUCK)
    critics = runtime.bundle.networks.critics
    step = slowness * 2_000_000
    quick = critics.cost_gradient

    def slow(action):
        clock.time += step
        return quick(action)

    monkeypatch.setattr(critics, "cost_gradient", slow)
    used = []
    for observation in observations(20):
        begun = clock.time
        result = runtime.act(observation)
        assert result.deadline_ns == begun + round(0.6 * PERIOD)
        assert clock.time <= result.deadline_ns + step
        assert result.missed == (clock.time > result.deadline_ns)
        assert_may_be_sent(result)
        used.append(result.k_used)
    # 30 ms allow all five steps of 2 ms, one of 20 ms, and none of 200 ms once the first has shown what it costs.
    assert used[-1] in {1: (0, 1, 2, 3, 4, 5), 10: (0, 1), 100: (0,)}[slowness]


def test_a_deadline_that_has_passed_is_answered_with_the_nominal_action(tight_folder, make_runtime):
    runtime = make_runtime(tight_folder, eta=0.9)
    result = runtime.act(np.zeros(4), deadline=0)
    assert result.missed and result.k_used == 0 and result.source == "nominal"


def test_times_that_are_no_times_do_not_raise(make_runtime):
    runtime = make_runtime(fallback="zero")
    for odd in ("soon", math.nan, [], 1.5):
        assert_may_be_sent(runtime.act(np.zeros(4), deadline=odd))
        assert_may_be_sent(runtime.act(np.ones(4), t_obs=odd))


def test_a_deadline_that_is_no_time_is_said_and_the_usual_one_kept(make_runtime):
    clock = FakeClock()
    runtime = make_runtime(clock=clock, limits=NEVER_STUCK)
    for odd in ("fast", 0.03, math.nan):
        result = runtime.act(np.zeros(4), deadline=odd)
        assert Reason.DEADLINE_FAULT in result.reasons and result.source == "nominal"
        assert result.deadline_ns == clock.time + round(0.6 * PERIOD)
    assert Reason.DEADLINE_FAULT not in runtime.act(np.ones(4)).reasons


@pytest.mark.parametrize("share", ["fast", None])
def test_a_broken_deadline_setting_does_not_raise_in_the_loop(make_runtime, share):
    limits = Limits()
    runtime = make_runtime(limits=limits)
    object.__setattr__(limits, "deadline", share)
    result = runtime.act(np.zeros(4))
    assert result.source == "fallback" and Reason.ERROR in result.reasons


def test_a_deadline_beyond_all_numbers_is_none(make_runtime):
    assert make_runtime(limits=Limits(deadline=1e308)).act(np.zeros(4)).source == "nominal"


def test_setting_the_date_has_no_effect(make_runtime, monkeypatch):
    clock = FakeClock()
    runtime = make_runtime(clock=clock, limits=NEVER_STUCK)
    for step, observation in enumerate(observations(20)):
        monkeypatch.setattr(time, "time", lambda step=step: 3600.0 * (-1) ** step)
        clock.time += PERIOD
        assert runtime.act(observation, t_obs=clock.time).source == "nominal"


def test_waking_up_disarms(make_runtime):
    clock = FakeClock()
    runtime = make_runtime(clock=clock, limits=NEVER_STUCK)
    runtime.act(np.zeros(4))
    clock.asleep += 100_000_000
    assert runtime.act(np.ones(4)).source == "nominal", "clocks drift; a tenth of a second is no sleep"
    clock.asleep += 3_600_000_000_000
    result = runtime.act(np.zeros(4))
    assert result.source == "fallback" and Reason.SUSPENDED in result.reasons and runtime.state is Mode.READY


# Storage


def test_a_full_disk_degrades_at_once_and_acting_goes_on(tmp_path: Path, make_runtime, monkeypatch):
    runtime = make_runtime(journal=tmp_path / "run.jnl", limits=NEVER_STUCK)
    assert runtime.act(np.zeros(4)).mode is Mode.ACTIVE
    really_write = os.write

    def full(handle, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    runtime.observe(np.ones(4), 0.0, 0.0)
    for observation in observations(20):
        result = runtime.act(observation)
        assert Reason.JOURNAL_LOST in result.reasons and result.source == "nominal" and result.mode is Mode.DEGRADED
        assert runtime.observe(observation + 0.1, 0.0, 0.0).used
    assert runtime.health()["journal"] == "lost"
    monkeypatch.setattr(os, "write", really_write)
    for observation in observations(15, seed=1):
        result = runtime.act(observation)
        runtime.observe(observation + 0.1, 0.0, 0.0)
    assert result.mode is Mode.ACTIVE and runtime.health()["journal"] == "ok"
    runtime.close()


def test_a_snapshot_continues_exactly(make_runtime):
    first = make_runtime(limits=NEVER_STUCK)
    second = make_runtime(limits=NEVER_STUCK)
    for observation in observations(10):
        first.act(observation)
        first.observe(observation + 0.1, 0.5, 0.0)
    second.restore(first.snapshot())
    for observation in observations(10, seed=1):
        one, two = first.act(observation), second.act(observation)
        assert one.action.tobytes() == two.action.tobytes() and one.eta == two.eta
        first.observe(observation + 0.1, 0.5, 0.0)
        second.observe(observation + 0.1, 0.5, 0.0)
    assert first.snapshot() == second.snapshot()
    for broken in (
        {"count": 3},
        second.snapshot() | {"precision_sum": [1.0]},
        second.snapshot() | {"count": -1},
        second.snapshot() | {"count": math.inf},
        second.snapshot() | {"detector": {"total": 1.0}},
        second.snapshot() | {"strangeness": {"mean": math.nan, "seen": 3}},
        second.snapshot() | {"schedule": {"eta": math.nan, "infeasible": False, "clean": 0}},
    ):
        with pytest.raises(Refused, match="snapshot"):
            second.restore(broken)
