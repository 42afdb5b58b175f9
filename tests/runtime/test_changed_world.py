"""A runtime in a world that changes: noticed, careful at once, and learnt anew from what came after the change."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from ashore_runtime import GuardSettings, Limits, Reason, Runtime
from ashore_runtime.schema import ChangeCalibration
from runtime import small_bundle

NOISE = 0.05
LIMITS = Limits(guard=GuardSettings(stuck_steps=0))
CALIBRATION = dataclasses.replace(small_bundle.CALIBRATION, change=ChangeCalibration(threshold=20.0))
ONE, OTHER = np.array([0.3, 0.0, -0.2, 0.0]), np.array([0.1, 0.0, 0.1, 0.0])
"""What one decision adds to the observation; the dynamics features are the first and the third number."""


def telling_weights() -> dict[str, np.ndarray]:
    """An encoder that says z = change of the features, and a head that predicts just that: the exact model of a world
    whose features move by z and a noise of 0.05."""
    rows = {"encoder": (8, (4, 5)), "dynamics/network": (9, (6, 7))}
    found: dict[str, np.ndarray] = {}
    for name, (inputs, (first, second)) in rows.items():
        enter = np.zeros((inputs, 8))
        enter[first, :2], enter[second, 2:4] = (1.0, -1.0), (1.0, -1.0)
        out = np.zeros((8, 6 if name == "encoder" else 4))
        # relu(x) - relu(-x) = x.
        out[:2, 0], out[2:4, 1] = (1.0, -1.0), (1.0, -1.0)
        for layer, kernel in (("dense0", enter), ("dense1", np.eye(8)), ("output", out)):
            found |= {f"{name}/{layer}/kernel": kernel, f"{name}/{layer}/bias": np.zeros(kernel.shape[1])}
    # softplus(400) = 400 = 1 / 0.05^2; the third number of z means nothing.
    found["encoder/output/bias"] = np.array([0.0, 0.0, 0.0, 400.0, 400.0, 0.0])
    found["dynamics/log_scale"] = np.log([NOISE, NOISE, 1.0, 1.0])
    found |= {"normaliser/change/mean": np.zeros(2), "normaliser/change/variance": np.ones(2)}
    return {name: np.asarray(tensor, np.float32) for name, tensor in found.items()}


@pytest.fixture(scope="session")
def telling_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundles") / "telling.bundle"
    return small_bundle.write(path, calibration=CALIBRATION, known=telling_weights())


def live(runtime, generator, count, moved):
    found = []
    for _ in range(count):
        before = generator.uniform(-0.2, 0.2, 4)
        runtime.act(before)
        found.append(runtime.observe(before + moved + NOISE * generator.normal(size=4), 0.0, 0.0))
    return found


def test_it_is_noticed_and_caution_returns_at_once(make_runtime, telling_folder):
    runtime = make_runtime(telling_folder, limits=LIMITS)
    generator = np.random.default_rng(0)
    assert not any(evidence.changed for evidence in live(runtime, generator, 400, ONE))
    assert runtime.eta == 0.0 and runtime.posterior.count == 400
    # A jump of 4 and 6 standard deviations is worth (16 + 36) / 2 nats, as soon as recent evidence knows of it.
    evidence = live(runtime, generator, 30, OTHER)
    delay = [one.changed for one in evidence].index(True)
    assert delay <= 10 and sum(one.changed for one in evidence) == 1
    # The sum was zero before the change, so nothing from before it is kept.
    assert 2 <= evidence[delay].n_real <= delay + 1 and evidence[delay].eta == 0.9
    assert runtime.health()["tallies"]["changes"] == 1 and runtime.health()["change"] < 5.0
    # Careful for 50 transitions, and then as the table says for what has been seen since.
    evidence = [*evidence[delay:], *live(runtime, generator, 40, OTHER)]
    assert [one.eta for one in evidence[:52]] == [0.9] * 50 + [0.0] * 2
    # What is believed is the new world, although four hundred transitions spoke of the other.
    mean = runtime.posterior.weighted_mean_sum / (1.0 + runtime.posterior.precision_sum)
    np.testing.assert_allclose(mean[:2], OTHER[[0, 2]], atol=0.05)


def test_the_next_decision_says_so(make_runtime, telling_folder):
    runtime = make_runtime(telling_folder, limits=LIMITS)
    generator = np.random.default_rng(1)
    live(runtime, generator, 100, ONE)
    while not live(runtime, generator, 1, OTHER)[0].changed:
        pass
    assert Reason.CHANGED in runtime.act(np.zeros(4)).reasons
    assert Reason.CHANGED not in runtime.act(np.zeros(4)).reasons


def test_what_nobody_asked_to_watch_is_not_watched(make_runtime, telling_folder):
    runtime = make_runtime(telling_folder, limits=dataclasses.replace(LIMITS, detect_changes=False))
    generator = np.random.default_rng(0)
    evidence = live(runtime, generator, 100, ONE) + live(runtime, generator, 100, OTHER)
    assert not any(one.changed for one in evidence) and runtime.posterior.count == 200


def test_one_broken_transition_is_no_change(make_runtime, telling_folder):
    runtime = make_runtime(telling_folder, limits=LIMITS)
    generator = np.random.default_rng(2)
    live(runtime, generator, 100, ONE)
    assert not live(runtime, generator, 1, -5 * ONE)[0].changed
    for broken in (np.full(4, np.nan), np.full(4, 1e30), None):
        runtime.act(np.zeros(4))
        assert not runtime.observe(broken, 0.0, 0.0).changed
    assert not any(one.changed for one in live(runtime, generator, 100, ONE))


@pytest.mark.parametrize("into", [1, 2, 3])
def test_killed_in_the_middle_of_a_change_it_is_noticed_at_the_same_transition(
    make_runtime, telling_folder, tmp_path: Path, into
):
    def story(runtime, generator, count):
        return [one.changed for one in live(runtime, generator, count, OTHER)]

    first, generator = make_runtime(telling_folder, limits=LIMITS), np.random.default_rng(3)
    live(first, generator, 120, ONE)
    expected = story(first, generator, 20)
    assert expected.index(True) > into
    journal = tmp_path / "run.jnl"
    second, generator = make_runtime(telling_folder, limits=LIMITS, journal=journal), np.random.default_rng(3)
    live(second, generator, 120, ONE)
    begun = story(second, generator, into)
    assert (second.snapshot()["detector"]["total"] > 0.0) == (into > 1), "the first is predicted by the old alone"
    second.close()
    third = Runtime.resume(journal, rule="trust", limits=LIMITS, freeze=False)
    third.arm()
    assert begun + story(third, generator, 20 - into) == expected
    assert json.dumps(third.snapshot()) == json.dumps(first.snapshot())
    third.close()


def test_after_a_restart_that_discounts_the_watch_starts_again(make_runtime, telling_folder):
    first, second = (make_runtime(telling_folder, limits=LIMITS) for _ in range(2))
    generator = np.random.default_rng(4)
    live(first, generator, 200, ONE)
    second.restore(first.snapshot(), "discount")
    assert second.posterior.count == 100 and second.health()["change"] == 0.0
    assert not any(one.changed for one in live(second, generator, 100, ONE))
    assert any(one.changed for one in live(second, generator, 15, OTHER))
