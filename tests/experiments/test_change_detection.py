"""The change detector calibrated from simulation and tried on worlds that change."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.calibration.careful_deployment import start_worlds
from ashore.cli.main import main
from ashore.environments import randomisation, rollout
from ashore.experiments import deployment
from ashore.experiments.change_streams import Schedule, schedule_of, streams
from ashore.experiments.deployment import Caution
from ashore.experiments.exporting import export_run, load_trained, read_calibration
from ashore.experiments.jax_twin import twin
from ashore.learning.train_config import architecture
from ashore_runtime import bundle
from ashore_runtime.change import DOUBT, ChangeDetector
from ashore_runtime.schema import ChangeCalibration, WorldCalibration
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


def synthetic_world(latent: int) -> WorldCalibration:
    """A table in which the last latent decides, so that levels rise and fall with what is believed."""
    slope = np.zeros((4, 3, latent))
    slope[1:, :, -1] = 4.0
    return WorldCalibration(
        budget=10.0,
        etas=(0.0, 0.5, 0.9),
        intercept=((9.6, 9.2, 8.8),) * 4,
        slope=tuple(tuple(map(tuple, rows)) for rows in slope.tolist()),
        margin=((1.0, 1.0, 1.0), (0.1, 0.1, 0.1), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)),
        low=(-1.0,) * latent,
        high=(1.0,) * latent,
        eta_percentiles=((0.0, 0.0, 0.0),) * 4,
    )


@pytest.mark.parametrize("by_world", [False, True])
def test_gain_eta_and_alarms_are_the_runtimes(run, by_world):
    trained = load_trained(run, 0)
    calibrated = read_calibration(trained)
    assert calibrated is not None
    if by_world:
        latent = architecture(trained.task, trained.run.train).sizes.latent
        known = dataclasses.replace(calibrated.calibration, world=synthetic_world(latent))
        calibrated = calibrated._replace(calibration=known)
    # A policy that was never trained gains next to nothing: so little is an alarm here.
    touchy = ChangeCalibration(threshold=1.5, drift=0.01, memory=6, clip=0.2)
    made = export_run(trained, run / "a.bundle", calibrated, change=touchy)
    caution = Caution(deadline=float("inf"), over_budget=None)
    runtime = deployment.load_runtime(made.path, caution, freeze=False)
    task, parameters = physics(1)
    schedule = schedule_of(made.calibration)
    found = streams(task, twin(made.manifest, made.weights), schedule, parameters, parameters, 3, 120, detector=touchy)
    assert set(found.eta[0].tolist()) == {np.float32(0.9), np.float32(0.5), np.float32(0.0)}
    # By the world it goes both ways, and not only up when there is an alarm.
    first = int(np.argmax(found.alarm[0]))
    assert (np.diff(found.eta[0, :first]) > 0.0).any() == by_world and (np.diff(found.eta[0, :first]) < 0.0).any()
    # The same world played by hand: the batched cart's first scene, the runtime's actions.
    worlds = start_worlds(task, jax.random.split(jax.random.key(3), 1), parameters)
    detector, total, alarms, of_late = ChangeDetector(touchy), 0.0, 0, 0.0
    for decision in range(120):
        if decision % 20 == 0:
            runtime.new_episode()
        result = runtime.act(np.asarray(worlds.observation[0]))
        worlds, transition, _ = rollout.advance(task, worlds, jnp.asarray(result.action[None]), parameters)
        evidence = runtime.observe(
            np.asarray(transition.next_observation[0]), float(transition.reward[0]), float(transition.cost[0])
        )
        assert result.eta == pytest.approx(found.eta[0, decision])
        assert evidence.surprise == pytest.approx(found.surprise[0, decision], rel=1e-3)
        total, alarm = detector.accumulate(total, float(found.gain[0, decision]), of_late)
        assert evidence.changed == alarm == found.alarm[0, decision]
        of_late *= 1.0 - 1.0 / DOUBT
        total, alarms, of_late = (0.0, alarms + 1, of_late + 1.0) if alarm else (total, alarms, of_late)
        assert runtime.health()["change"] == pytest.approx(total, abs=1e-4)
    assert alarms > 1


def test_a_world_changes_when_it_is_told_and_not_before(run):
    trained = load_trained(run, 0)
    manifest = export_run(trained, run / "b.bundle", None).manifest
    task, parameters = physics(3)
    other = parameters._replace(mass=parameters.mass * 3.0)
    ways = Schedule((0, 4), (0.9, 0.0), 1.0)
    found = twin(manifest, trained.weights)
    quiet = streams(task, found, ways, parameters, other, 0, 30)
    changed = streams(task, found, ways, parameters, other, 0, 30, change_at=np.array([12, -1, 15]))
    assert not quiet.alarm.any() and quiet.eta[0].tolist() == pytest.approx([0.9] * 4 + [0.0] * 26)
    for world, moment in enumerate((12, 30, 15)):
        np.testing.assert_array_equal(quiet.surprise[world, :moment], changed.surprise[world, :moment])
        assert (quiet.surprise[world, moment : moment + 1] != changed.surprise[world, moment : moment + 1]).all()


def test_too_low_a_rate_is_refused_before_anything_is_simulated(run, capsys):
    assert main(["export", str(run), "--change-decisions", "6000", "--false-alarms", "10"]) != 0
    assert "6,000 promise 143 per million" in " ".join(capsys.readouterr().err.split())


def test_export_calibrates_the_detector_once_and_the_benchmark_uses_it(run, tmp_path, capsys):
    path = run / "c.bundle"
    words = ["export", str(run), "--out", str(path), "--change-decisions", "6000", "--false-alarms", "200"]
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
    assert 0 < content["quiet_decisions"] <= 4 * 300 and (tmp_path / "change.png").stat().st_size > 0
    for case in content["cases"].values():
        assert 0.0 <= case["detected"] <= 1.0
        assert case["saved"] == pytest.approx(case["cost_without"] - case["cost_with"])
