"""Suites: cells are made once, whoever asks for them, go on where they were stopped, and meet the same worlds."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ashore.calibration.ledger import Paused
from ashore.cli.main import main
from ashore.experiments import suite_cells, suite_evaluation, suite_processes, suite_run, training
from ashore.experiments.suite_cells import CellSettings, Plan, Request, plans, status
from ashore.experiments.suite_run import Job, Made
from ashore.experiments.suites import FIXED_LEVELS, SUITES, Cell
from ashore.learning.disagreement import DisagreementConfig
from ashore.methods.registry import METHODS
from experiments import toy_suite
from experiments.toy_suite import ETAS, Onlooker
from toy_world import PERIOD, SPEED_LIMIT, Cart, CartParameters

TITLES = [f"Cart / {method}" for method in toy_suite.METHODS]


@pytest.fixture(autouse=True)
def carts(monkeypatch):
    toy_suite.register(monkeypatch)
    toy_suite.trained.clear()


def make(pool: Path, onlooker: Onlooker, stop=lambda: False, force=False, **asked) -> dict[str, str]:
    request = Request("toy", pool, **asked)
    todo = suite_run.jobs(plans(request))
    return {made.title: made.state for made in suite_run.run_locally(todo, force, onlooker, stop)}


@pytest.fixture(scope="session")
def pool(tmp_path_factory) -> Path:
    """All cells of the toy suite."""
    folder = tmp_path_factory.mktemp("pool")
    with pytest.MonkeyPatch.context() as patch:
        toy_suite.register(patch)
        assert set(make(folder, Onlooker()).values()) == {"finished"}
    return folder


def settings_of(plan: Plan) -> CellSettings:
    assert isinstance(plan.settings, CellSettings)
    return plan.settings


def arrays(folder: Path) -> dict[str, np.ndarray]:
    evaluation, _ = suite_evaluation.read(folder)
    plain = evaluation._asdict()
    return {name: values for name, values in plain.items() if isinstance(values, np.ndarray)} | plain["metrics"]


def test_a_stopped_suite_goes_on_and_does_nothing_twice(pool, tmp_path):
    first = Onlooker()
    # Asked to stop once a seed has been evaluated: the other seed, and all other cells, have to wait.
    states = make(tmp_path, first, stop=lambda: "seed_0" in first.pieces)
    assert states == dict.fromkeys(TITLES, "stopped")
    assert first.pieces == ["calibration of seed 0", "calibration of seed 1", "seed_0"]
    assert not (tmp_path / "toy" / "Cart" / "risk_adaptive" / "summary.json").exists()
    second = Onlooker()
    assert make(tmp_path, second) == dict.fromkeys(TITLES, "finished")
    # Neither training nor calibration, nor the seed that was there.
    assert second.pieces[:1] == ["seed_1"] and "Cart / risk_adaptive: train" not in second.said
    assert [folder.name for folder in toy_suite.trained] == ["risk_adaptive", "nominal"]
    third = Onlooker()
    assert make(tmp_path, third) == dict.fromkeys(TITLES, "skipped")
    assert not third.pieces and len(toy_suite.trained) == 2
    for method in toy_suite.METHODS:
        straight, resumed = (arrays(folder / "toy" / "Cart" / method) for folder in (pool, tmp_path))
        for name, values in straight.items():
            np.testing.assert_array_equal(values, resumed[name])
    assert not (tmp_path / "toy" / "Cart" / "risk_adaptive" / "checkpoints").exists()


def test_training_that_is_stopped_is_gone_on_with(tmp_path):
    # Whoever asks during the step itself: the first question is whether to begin it.
    asked: list[bool] = []
    states = make(tmp_path, Onlooker(), stop=lambda: asked.append(True) or len(asked) > 1, only="method=nominal")
    assert states == {"Cart / nominal": "stopped"}
    run = tmp_path / "toy" / "Cart" / "nominal"
    assert (run / "checkpoints").exists() and not (run / "evaluation").exists()
    assert make(tmp_path, Onlooker(), only="method=nominal") == {"Cart / nominal": "finished"}
    assert toy_suite.trained == [run, run]


def test_the_controller_is_evaluated_as_worked_out_by_hand(pool):
    evaluation, facts = suite_evaluation.read(pool / "toy" / "Cart" / "full_push")
    task = Cart()
    met = suite_evaluation.meet(task, task.description.shifts, toy_suite.SCALE.protocol)
    assert isinstance(met.physics, CartParameters)
    acceleration = ((1.0 + np.asarray(met.physics.thrust)) / np.asarray(met.physics.mass)).reshape(3, 3)
    steps = np.arange(1, 21)
    speeds = PERIOD * acceleration[..., None] * steps
    # Nobody leaves the track: the fastest, a = 4, goes 0.01 * 4 * 210 = 8.4 m from at most 1 m.
    costs, rewards = (speeds > SPEED_LIMIT).astype(float), PERIOD * speeds - 0.1
    np.testing.assert_allclose(evaluation.episode_cost[0, :, :, 1], costs.sum(axis=-1))
    np.testing.assert_allclose(evaluation.episode_return[0, :, :, 0], rewards.sum(axis=-1), rtol=1e-4)
    # Four windows of five decisions in each of two episodes.
    np.testing.assert_allclose(evaluation.window_cost[0, :, :, 5], costs[..., 5:10].sum(axis=-1))
    np.testing.assert_allclose(evaluation.metrics["distance"][0, :, :, 0], PERIOD * speeds.sum(axis=-1), rtol=1e-4)
    assert facts["own"] is None and facts["seeds"] is None and not evaluation.eta.any()


def test_ours_follows_the_schedule_and_without_it_is_the_same_run_at_level_0(pool):
    careful, facts = suite_evaluation.read(pool / "toy" / "Cart" / "risk_adaptive")
    # The schedule changes after 8 and 16 transitions, and what was learnt is kept when an episode ends.
    expected = [ETAS[0]] * 8 + [ETAS[1]] * 8 + [ETAS[2]] * 24
    np.testing.assert_allclose(careful.eta, np.broadcast_to(expected, careful.eta.shape), rtol=1e-6)
    neutral, others = suite_evaluation.read(pool / "toy" / "Cart" / "without_risk_adaptation")
    # 16 of 40 decisions are refined, and the first three windows of the first episode earn something else.
    np.testing.assert_allclose(careful.triggered, 16 / 40)
    assert not neutral.triggered.any()
    assert np.all(careful.window_reward[..., :3] != neutral.window_reward[..., :3])
    assert not neutral.eta.any() and facts["weights_sha256"] == others["weights_sha256"] and facts["own"] == "train"
    # Two seeds, two sets of weights.
    assert careful.episode_cost.shape == (2, 3, 3, 2) and np.std(neutral.episode_return.mean(axis=(1, 2, 3))) > 0


def test_a_fixed_level_is_the_run_of_ours_at_that_level_for_ever(tmp_path, monkeypatch):
    cells = tuple(Cell("Cart", method) for method in ("without_risk_adaptation", "level_0.4"))
    monkeypatch.setitem(SUITES, "toy", replace(toy_suite.SUITE, cells=cells))
    conditioned = ("risk_adaptive.train.risk.conditioned=true",)
    assert set(make(tmp_path / "pool", Onlooker(), set=conditioned).values()) == {"finished"}
    assert toy_suite.trained == [tmp_path / "pool" / "toy" / "Cart" / "risk_adaptive"]
    (careful, facts), (neutral, others) = (
        suite_evaluation.read(tmp_path / "pool/toy/Cart" / c.method) for c in cells[::-1]
    )
    np.testing.assert_allclose(careful.eta, 0.4, rtol=1e-6)
    assert not neutral.eta.any() and facts["weights_sha256"] == others["weights_sha256"]
    assert np.all(careful.episode_return != neutral.episode_return)
    # Policies that know no level would be the same at all of them.
    onlooker = Onlooker()
    assert make(tmp_path / "deaf", onlooker)["Cart / level_0.4"] == "failed"
    assert "take no risk level: level 0.4 would be level 0." in onlooker.said[-1]


def test_all_methods_meet_the_same_worlds_and_their_own_training_ones_are_known(pool):
    facts = {method: suite_evaluation.read(pool / "toy" / "Cart" / method)[1] for method in toy_suite.METHODS}
    assert len({json.dumps(one["worlds_sha256"], sort_keys=True) for one in facts.values()}) == 1
    assert [facts[method]["own"] for method in toy_suite.METHODS] == ["train", "train", "nominal", None]


def test_worlds_follow_from_the_name_of_the_shift_alone():
    task, protocol = Cart(), toy_suite.SCALE.protocol
    shifts = task.description.shifts
    alone = suite_evaluation.meet(task, {"deploy": shifts["deploy"]}, protocol)
    among = suite_evaluation.meet(task, shifts, protocol)
    assert alone.fingerprints["deploy"] == among.fingerprints["deploy"] != among.fingerprints["train"]


def test_other_settings_are_said_out_loud_and_made_again_only_by_force(tmp_path):
    make(tmp_path, Onlooker(), only="method=full_push")
    changed: dict[str, Any] = {"only": "method=full_push", "set": ("protocol.episodes=1",)}
    onlooker = Onlooker()
    assert make(tmp_path, onlooker, **changed) == {"Cart / full_push": "changed"}
    assert onlooker.said == [
        "[1/1] Cart / full_push: changed: made with other settings (protocol.episodes 2 -> 1); --force makes it again"
    ]
    folder = tmp_path / "toy" / "Cart" / "full_push"
    assert arrays(folder)["episode_cost"].shape[3] == 2
    assert make(tmp_path, Onlooker(), force=True, **changed) == {"Cart / full_push": "finished"}
    assert arrays(folder)["episode_cost"].shape[3] == 1
    assert make(tmp_path, Onlooker(), force=True, **changed) == {"Cart / full_push": "skipped"}


def test_a_run_that_was_trained_otherwise_is_set_aside_and_what_hangs_on_it_noticed(tmp_path):
    both = "method=risk_adaptive,method=without_risk_adaptation"
    half = plans(Request("toy", tmp_path, seeds=1, only=both))
    run = half[0].run
    assert run is not None and half[1].run == run
    for plan in half:
        # As if both had been finished: the run, and two summaries.
        if not (run / "config.json").exists():
            described = settings_of(plan).run
            assert described is not None
            training.begin(described, run)
            toy_suite.train(run, None, lambda: False)
        content = {
            "settings_sha256": suite_cells.fingerprint(plan.settings),
            "settings": suite_cells.plain(plan.settings),
        }
        suite_cells.write_summary(plan.folder, content | {"weights_sha256": suite_cells.weights(plan)})
        assert status(plan).state == "finished"
    wanted = plans(Request("toy", tmp_path, seeds=1, only=both, set=("train.learning_rate=0.001",)))
    assert [status(plan).why for plan in wanted] == ["run.train.learning_rate 0.0003 -> 0.001"] * 2
    onlooker = Onlooker()
    # Stopped at once: nothing is begun, and nothing is lost.
    todo = suite_run.jobs(wanted)
    assert [made.state for made in suite_run.run_locally(todo, True, onlooker, lambda: True)] == ["stopped", "stopped"]
    aside = run.with_name("risk_adaptive.replaced_1")
    assert (aside / "policy").exists() and not run.exists()
    assert any(f"the old run is kept as {aside}" in sentence for sentence in onlooker.said)


def test_a_setting_that_is_younger_than_a_cell_had_its_default(tmp_path):
    plan = plans(Request("toy", tmp_path, only="method=full_push"))[0]
    recorded = suite_cells.plain(plan.settings)
    del recorded["protocol"]["seed"]
    suite_cells.write_summary(
        plan.folder, {"settings_sha256": "of an older version", "settings": recorded, "weights_sha256": None}
    )
    assert status(plan).state == "finished"
    other = plans(Request("toy", tmp_path, only="method=full_push", set=("protocol.seed=5",)))[0]
    assert status(other).why == "protocol.seed 1000003 -> 5"


def test_a_cell_that_fails_does_not_stop_the_others(tmp_path, monkeypatch):
    def break_down(folder, watcher, stop):
        raise RuntimeError("out of memory\nand a long story")

    monkeypatch.setattr(training, "execute", break_down)
    onlooker = Onlooker()
    states = make(tmp_path, onlooker, only="method=nominal,method=full_push")
    assert states == {"Cart / nominal": "failed", "Cart / full_push": "finished"}
    failure = tmp_path / "toy" / "Cart" / "nominal" / "failure.txt"
    assert "long story" in failure.read_text()
    assert f"[1/2] Cart / nominal: failed: out of memory (details in {failure})" in onlooker.said


def test_a_pause_is_not_a_failure(tmp_path, monkeypatch):
    def pause(*_):
        raise Paused("now")

    monkeypatch.setattr(training, "execute", pause)
    assert make(tmp_path, Onlooker(), only="method=nominal") == {"Cart / nominal": "stopped"}


def test_settings_reach_the_cells_they_are_meant_for(tmp_path):
    given = ("train.worlds=4", "nominal.train.learning_rate=0.1", "protocol.environments=5")
    found = {plan.cell.method: settings_of(plan) for plan in plans(Request("toy", tmp_path, seeds=3, set=given))}
    runs = {method: settings.run for method, settings in found.items() if settings.run}
    assert runs["nominal"].train.learning_rate == 0.1 and runs["risk_adaptive"].train.learning_rate == 3e-4
    assert {run.train.worlds for run in runs.values()} == {4} and runs["nominal"].seeds == 3
    assert runs["without_risk_adaptation"] == runs["risk_adaptive"] and "full_push" not in runs
    assert {settings.protocol.environments for settings in found.values()} == {5}
    # Calibration matters to those who are calibrated alone.
    assert [method for method, settings in found.items() if settings.calibration] == ["risk_adaptive"]


def test_every_suite_names_what_exists():
    for name, suite in SUITES.items():
        found = plans(Request(name))
        assert len(found) == len(suite_cells.cells_of(suite)) > 0
        for shown in suite.shown:
            assert shown.task in {cell.task for cell in suite.cells}
        assert suite.paper_table is None or any(shown.paper for shown in suite.shown)
        assert {cell.method for cell in suite.cells} <= {*METHODS, *FIXED_LEVELS}
    # One pool: what `ablation` needs of our method, `table1` has made.
    mine = {plan.folder: plan.settings for plan in plans(Request("table1"))}
    shared = [plan for plan in plans(Request("ablation")) if plan.folder in mine]
    assert len(shared) == 2 and all(mine[plan.folder] == plan.settings for plan in shared)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("suite", "Say what to suite: run, table, compare, figures, videos."),
        ("suite run tabel1", "Unknown suite 'tabel1': did you mean 'table1'?"),
        ("suite table tabel1", "Unknown suite 'tabel1': did you mean 'table1'?"),
        ("suite figures tabel1", "Unknown suite 'tabel1': did you mean 'table1'?"),
        ("suite videos tabel1", "Unknown suite 'tabel1': did you mean 'table1'?"),
        ("suite run toy --only method=nominla", "Unknown method 'nominla': did you mean 'nominal'?"),
        ("suite run toy --only nominal", "--only has the form task=NAME,method=NAME, which 'nominal' has not."),
        ("suite run toy --preset ggpu", "Unknown training preset 'ggpu': did you mean 'gpu'?"),
        (
            "suite run toy --set protocol.episode=1",
            "Unknown setting 'protocol.episode': did you mean 'protocol.episodes'?",
        ),
        ("suite run toy --seeds 0", "A run needs at least one seed, not 0."),
        ("suite run toy --jobs 0", "--jobs must be at least 1, not 0."),
        (
            "suite run toy --jobs 2 --backend ray",
            "--jobs is for the backend local: Ray has its own way to share a machine.",
        ),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(words, complaint, capsys):
    assert main(words.split()) == 2
    assert capsys.readouterr().err == f"ashore: {complaint}\n"


def test_the_command_says_what_became_of_every_cell(pool, capsys):
    command = ["suite", "run", "toy", "--out", str(pool)]
    assert main([*command, "--dry-run"]) == 0
    assert capsys.readouterr().out.count(": finished;") == 4
    assert main(command) == 0
    assert capsys.readouterr().out.endswith(f"cells: 4 skipped; {pool}\n")
    assert main([*command, "--set", "protocol.episodes=3"]) == 1
    assert "cells: 4 changed" in capsys.readouterr().out


def test_without_ray_one_sentence_says_how_to_get_it(pool, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["suite", "run", "toy", "--out", str(pool), "--backend", "ray"]) == 2
    assert capsys.readouterr().err == "ashore: The backend ray needs its package: pip install 'ashore[ray]'.\n"


def test_cells_as_ray_tasks_on_a_local_cluster(tmp_path):
    pytest.importorskip("ray")
    # A cluster forks, which JAX does not like in a process that has used it; and a worker knows nothing of carts.
    words = ["suite", "run", "smoke", "--out", str(tmp_path), "--only", "method=fvd", "--set", "protocol.episodes=1"]
    command = [sys.executable, "-m", "ashore.cli.main", *words]
    first = subprocess.run([*command, "--backend", "ray"], capture_output=True, text=True, timeout=240)
    assert first.returncode == 0, first.stderr
    assert first.stdout.endswith(f"cells: 1 finished; {tmp_path}\n")
    assert (tmp_path / "smoke" / "Platoon" / "fvd" / "summary.json").exists()
    # The same cell, asked for without a cluster, is there.
    assert main(words) == 0


def test_cells_in_processes_of_their_own(tmp_path, capsys):
    # A process that is begun anew knows nothing of carts.
    words = ["suite", "run", "smoke", "--out", str(tmp_path), "--only", "method=fvd", "--set", "protocol.episodes=1"]
    command = [sys.executable, "-m", "ashore.cli.main", *words]
    first = subprocess.run([*command, "--jobs", "2"], capture_output=True, text=True, timeout=240)
    assert first.returncode == 0, first.stderr
    *lines, last = first.stdout.splitlines()
    assert last == f"cells: 1 finished; {tmp_path}"
    assert (
        "Platoon / fvd | Platoon / fvd: evaluate" in lines and "Platoon / fvd | [1/1] Platoon / fvd: finished" in lines
    )
    # The same cell, asked for without processes, is there.
    assert main(words) == 0
    assert capsys.readouterr().out.endswith(f"cells: 1 skipped; {tmp_path}\n")


def _dies(*_: object) -> None:
    os._exit(9)


def _makes_one_and_dies(answer, asked, job: Job, *_: object) -> None:
    answer.send(Made(job.plans[0].title, "finished"))
    os._exit(9)


def _waits_until_asked(answer, asked, job: Job, *_: object) -> None:
    (job.plans[0].folder.parent / "begun").touch()
    assert asked.wait(timeout=60.0)
    for plan in job.plans:
        answer.send(Made(plan.title, "stopped", "asked"))
    answer.close()


def in_processes(plans: list[Plan], stop=lambda: False) -> dict[str, tuple[str, str]]:
    todo = suite_run.jobs(plans)
    made = suite_processes.run_in_processes(todo, False, Onlooker(), stop, 60.0, 2)
    return {one.title: (one.state, one.why) for one in made}


def test_a_process_that_dies_costs_its_own_cells_alone(tmp_path, monkeypatch):
    nothing_made = plans(Request("smoke", tmp_path, only="method=fvd,method=nominal"))
    ended = "its process ended with 9"
    monkeypatch.setattr(suite_processes, "_in_a_process", _dies)
    assert in_processes(nothing_made) == {
        "Platoon / fvd": ("failed", ended),
        "Platoon / nominal": ("failed", ended),
    }
    assert [(plan.folder / suite_run.FAILURE).read_text() for plan in nothing_made] == [f"{ended}\n"] * 2
    # What it had said before it died is still true.
    together = [replace(plan, run=tmp_path / "one run") for plan in nothing_made]
    monkeypatch.setattr(suite_processes, "_in_a_process", _makes_one_and_dies)
    assert in_processes(together) == {
        together[0].title: ("finished", ""),
        together[1].title: ("failed", ended),
    }


def test_processes_are_asked_to_stop(tmp_path, monkeypatch):
    monkeypatch.setattr(suite_processes, "_in_a_process", _waits_until_asked)
    wanted = plans(Request("smoke", tmp_path, only="method=fvd"))
    begun = wanted[0].folder.parent / "begun"
    begun.parent.mkdir(parents=True)
    assert in_processes(wanted, stop=begun.exists) == {"Platoon / fvd": ("stopped", "asked")}
    # Where nothing has begun, nothing is begun.
    assert in_processes(wanted, stop=lambda: True) == {
        "Platoon / fvd": ("stopped", "the same command goes on from here")
    }


def test_a_calibration_from_before_a_setting_was_there_still_fits(tmp_path):
    make(tmp_path, Onlooker(), only="method=risk_adaptive")
    (plan,) = plans(Request("toy", tmp_path, only="method=risk_adaptive"))
    assert plan.run is not None
    (in_force, *_) = sorted(plan.run.rglob("calibration.json"))
    content = json.loads(in_force.read_text())
    for change, missing in (({}, 0), ({"budget": 3.0}, 1)):
        older = {name: value for name, value in content["settings"].items() if name != "budget"}
        in_force.write_text(json.dumps(content | {"settings": older | change}))
        assert len(suite_run._uncalibrated(plan)) == missing


def test_all_methods_are_trained_on_equal_terms_unless_somebody_asks_otherwise(tmp_path):
    def trained(**asked) -> DisagreementConfig:
        run = settings_of(plans(Request("table1", tmp_path, only="task=PointGoal2,method=spidr", **asked))[0]).run
        assert run is not None
        return run.train.spidr

    equal = DisagreementConfig(weight=1.0, compare="dynamics", ranges="train", multiplier="pid")
    assert trained() == equal
    assert trained(set=("spidr.train.spidr.weight=0.5",)) == replace(equal, weight=0.5)
