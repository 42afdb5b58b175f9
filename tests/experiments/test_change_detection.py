"""The change detector calibrated from simulation and tried on worlds that change."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.calibration.careful_deployment import start_worlds
from ashore.cli.main import main
from ashore.environments import randomisation, rollout
from ashore.experiments import change_detection, deployment
from ashore.experiments.change_detection import Schedule, streams
from ashore.experiments.deployment import Caution
from ashore.experiments.exporting import export_run, load_trained, read_calibration
from ashore.experiments.jax_twin import twin
from ashore_runtime import bundle
from ashore_runtime.schema import ChangeCalibration
from experiments import cart_run
from toy_world import Cart


@pytest.fixture(autouse=True)
def cart(monkeypatch):
    cart_run.register(monkeypatch)


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        cart_run.register(patch)
        # Caution from the actor: its rollouts compile in a moment.
        folder = cart_run.write(tmp_path_factory.mktemp("runs") / "carts", risk_conditioned=True)
        cart_run.calibrate(folder, caution="actor")
        return folder


def physics(count: int):
    task = Cart()
    return task, randomisation.sample(task.description.shifts["train"], task.parameters_type, jax.random.key(1), count)


def test_surprise_and_eta_are_the_runtimes(run):
    trained = load_trained(run, 0)
    calibrated = read_calibration(trained)
    assert calibrated is not None
    made = export_run(trained, run / "a.bundle", calibrated)
    runtime = deployment.load_runtime(made.path, Caution(deadline=float("inf"), over_budget=None), freeze=False)
    task, parameters = physics(1)
    found = streams(
        task,
        twin(made.manifest, made.weights),
        change_detection.schedule_of(made.calibration),
        parameters,
        parameters,
        seed=3,
        decisions=40,
    )
    assert set(found.eta[0].tolist()) == {np.float32(0.9), np.float32(0.5), np.float32(0.0)}
    # The same world played by hand: the batched cart's first scene, the runtime's actions.
    worlds = start_worlds(task, jax.random.split(jax.random.key(3), 1), parameters)
    for decision in range(40):
        if decision % 20 == 0:
            runtime.new_episode()
        result = runtime.act(np.asarray(worlds.observation[0]))
        worlds, transition, _ = rollout.advance(task, worlds, jnp.asarray(result.action[None]), parameters)
        evidence = runtime.observe(
            np.asarray(transition.next_observation[0]), float(transition.reward[0]), float(transition.cost[0])
        )
        assert result.eta == pytest.approx(found.eta[0, decision])
        assert evidence.surprise == pytest.approx(found.surprise[0, decision], rel=1e-3)


def test_a_world_changes_and_forgets_where_it_is_told(run):
    trained = load_trained(run, 0)
    manifest = export_run(trained, run / "b.bundle", None).manifest
    task, parameters = physics(3)
    other = parameters._replace(mass=parameters.mass * 3.0)
    ways = Schedule((0, 4), (0.9, 0.0), 1.0)
    found = twin(manifest, trained.weights)
    quiet = streams(task, found, ways, parameters, other, 0, 30)
    changed = streams(task, found, ways, parameters, other, 0, 30, change_at=12)
    np.testing.assert_array_equal(quiet.surprise[:, :12], changed.surprise[:, :12])
    assert (quiet.surprise[:, 12] != changed.surprise[:, 12]).all()
    forget = np.array([[10, -1], [-1, -1], [10, 20]])
    told = streams(task, found, ways, parameters, other, 0, 30, change_at=12, forget_at=forget)
    # The transition that gives the alarm is the first of what is learnt anew; three more and eta falls.
    assert told.eta[0].tolist() == pytest.approx([0.9] * 4 + [0.0] * 7 + [0.9] * 3 + [0.0] * 16)
    np.testing.assert_array_equal(told.eta[1], changed.eta[1])
    assert told.eta[2, 21] == pytest.approx(0.9)


def test_alarms_start_again_after_one_that_is_known():
    calibration = ChangeCalibration(threshold=8.0)
    generator = np.random.default_rng(0)
    stream = np.exp(generator.normal(size=900))
    stream[300:] *= np.exp(4.0)
    stream[600:] *= np.exp(4.0)
    stream[10] = np.nan
    none = np.array([-1, -1])
    first = change_detection.alarms(calibration, stream, none)
    assert 300 <= first < 320
    second = change_detection.alarms(calibration, stream, np.array([first, -1]))
    assert 600 <= second < 620
    assert change_detection.alarms(calibration, stream[:300], none) == -1


def test_export_calibrates_the_detector_once_and_the_benchmark_uses_it(run, tmp_path, capsys):
    path = run / "c.bundle"
    words = ["export", str(run), "--out", str(path), "--change-decisions", "6000", "--false-alarms", "10"]
    assert main(words) == 0
    calibration = bundle.load(path).calibration
    assert calibration is not None and calibration.change is not None
    kept = run / "calibration" / "seed_0" / "change.json"
    stamp = kept.stat().st_mtime_ns
    assert json.loads(kept.read_text())["change"]["threshold"] == calibration.change.threshold
    assert main(words) == 0 and kept.stat().st_mtime_ns == stamp
    capsys.readouterr()
    small = ["--worlds", "4", "--quiet-worlds", "4", "--before", "200", "--after", "100"]
    assert main(["bench", "change", str(path), *small, "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "per million" in shown and "thrust" in shown
    content = json.loads((tmp_path / "change.json").read_text())
    assert set(content["cases"]) == {"mass", "thrust", "all, drawn anew"}
    assert content["quiet_decisions"] <= 4 * (300 - 160) and (tmp_path / "change.png").stat().st_size > 0
    for case in content["cases"].values():
        assert 0.0 <= case["detected"] <= 1.0
        assert case["saved"] == pytest.approx(case["cost_without"] - case["cost_with"])
