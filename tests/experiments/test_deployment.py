"""A bundle in worlds it never saw: the loop, its report, and who may be deployed in."""

import json
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ashore.cli.main import main
from ashore.environments import tasks
from ashore.experiments import deployment, deployment_environment
from ashore.experiments.deployment import Caution
from ashore.experiments.exporting import export_run, load_trained, read_calibration
from ashore_runtime import bundle
from experiments import cart_run, foreign_carts

FOREIGN = foreign_carts.__name__
NEEDED = "every step needs a finite cost of at least 0."
# A cart that mostly pushes is over its budget in every episode, which would keep it careful for ever.
TIMELESS = Caution(deadline=float("inf"), over_budget=None)


@pytest.fixture(autouse=True)
def cart(monkeypatch):
    cart_run.register(monkeypatch)


@pytest.fixture(scope="session")
def careful(tmp_path_factory):
    """A calibrated bundle of carts; a threshold so low that refinement always has something to do."""
    with pytest.MonkeyPatch.context() as patch:
        cart_run.register(patch)
        run = cart_run.write(tmp_path_factory.mktemp("runs") / "carts")
        cart_run.calibrate(run)
        trained = load_trained(run, 0)
        return export_run(trained, run / "b.bundle", read_calibration(trained)).path


def test_eta_follows_the_schedule_over_episodes(careful):
    runtime = deployment.load_runtime(careful, TIMELESS, freeze=False)
    env = deployment_environment.world(runtime.bundle.manifest, "Cart", None, {"mass": 0.6})
    seen = list(deployment.moments(runtime, env, 3, seed=0))
    assert [moment.episode for moment in seen] == [0] * 20 + [1] * 20 + [2] * 20
    # The schedule's counts are 8, 16 and 32: what was learnt is kept when an episode ends.
    expected = [0.9] * 16 + [0.5] * 16 + [0.0] * 28
    assert [moment.result.eta for moment in seen] == expected
    assert all(moment.evidence.used for moment in seen)
    assert {moment.result.source for moment in seen[:32]} <= {"refined", "nominal"}
    assert sum(moment.result.k_used > 0 for moment in seen[:32]) == 32 and seen[40].result.k_used == 0
    assert seen[0].spread > seen[-1].spread
    assert seen[19].ended and set(seen[19].metrics) == {"distance"} and not seen[18].metrics


def test_without_caution_it_is_the_policy_at_eta_0(careful):
    runtime = deployment.load_runtime(careful, Caution(caution="none"), freeze=False)
    env = deployment_environment.world(runtime.bundle.manifest, "Cart", None, {})
    seen = list(deployment.moments(runtime, env, 1, seed=0))
    assert {(moment.result.eta, moment.result.k_used, moment.result.source) for moment in seen} == {(0.0, 0, "nominal")}
    networks = runtime.bundle.networks
    first = seen[0]
    normal = networks.normalisers.see(first.observation)
    np.testing.assert_array_equal(
        first.result.action, networks.action(normal, networks.context(first.result.z_mean, 0.0))
    )
    with pytest.raises(ValueError, match="Without caution eta is 0"):
        Caution(eta=0.5, caution="none")


def test_many_worlds_as_arrays_each_met_for_the_first_time(careful):
    found = deployment.deploy_in_worlds(careful, TIMELESS, "Cart", None, "deploy", worlds=3, episodes=2, seed=5)
    assert found.episode_return.shape == found.episode_cost.shape == (3, 2) and found.eta.shape == (3, 2, 20)
    assert (found.eta[:, 0, 0] == 0.9).all() and (found.eta[:, 1, 12] == 0.0).all()
    assert np.nanmax(found.cost) > 0 and (found.decisions == 20).all() and (found.policy == 1).all()
    np.testing.assert_allclose(found.episode_cost, found.cost.sum(axis=2))
    assert len(set(found.parameters["mass"])) == 3 and (found.parameters["mass"] <= 1.0).all()
    again = deployment.deploy_in_worlds(careful, TIMELESS, "Cart", None, "deploy", worlds=2, episodes=2, seed=5)
    # A world is met as if nobody had been anywhere before: the second is the second, whatever came first.
    np.testing.assert_array_equal(again.reward[1], found.reward[1])


def test_deploy_by_command_leaves_a_report(careful, tmp_path, capsys):
    words = ["deploy", str(careful), "--shift", "deploy", "--episodes", "2", "--seed", "3", "--video", "--journal"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "episode 2 of 2" in shown and f"figure: {tmp_path / 'deployment.png'}" in shown
    lines = [json.loads(line) for line in (tmp_path / "decisions.jsonl").read_text().splitlines()]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert len(lines) == summary["decisions"] == 40 and len(summary["episodes"]) == 2
    assert summary["episodes"][0]["cost"] == pytest.approx(sum(line["cost"] for line in lines[:20]))
    assert summary["shift"] == "deploy" and set(summary["parameters"]) == {"mass", "thrust"}
    assert summary["bundle"] == bundle.load(careful).checksum and summary["deadlines_missed"] == 0
    assert lines[0]["eta"] == 0.9 and lines[0]["mode"] == "active" and lines[0]["surprise"] > 0
    for name in ("deployment.png", "deployment.mp4", "run.jnl"):
        assert (tmp_path / name).stat().st_size > 0
    # Without a terminal there is a line per episode, with the steps and the latency of that episode alone.
    told = [line for line in shown.splitlines() if line.startswith("episode ")]
    for line, episode in zip(told, (lines[:20], lines[20:]), strict=True):
        found = re.search(r", (\d+) refinement step\(s\), latency p50 ([\d.]+) ms, p99 ([\d.]+) ms$", line)
        assert found, line
        steps, *latency = map(float, found.groups())
        assert steps == sum(decision["steps"] for decision in episode) < summary["refinement_steps"]
        expected = np.quantile([decision["latency_ms"] for decision in episode], (0.5, 0.99))
        np.testing.assert_allclose(latency, expected, atol=0.006)


def test_in_real_time_decisions_keep_the_control_period(careful, tmp_path):
    begun = time.monotonic()
    assert main(["deploy", str(careful), "--episodes", "1", "--realtime", "--out", str(tmp_path)]) == 0
    # 20 decisions, 0.1 s apart.
    assert time.monotonic() - begun > 1.85


@pytest.mark.parametrize("name", ["Named", "InMetadata"])
def test_any_environment_that_names_its_fields(careful, tmp_path, name):
    assert (
        main(["deploy", str(careful), "--env", f"{FOREIGN}:{name}Cart-v0", "--episodes", "1", "--out", str(tmp_path)])
        == 0
    )
    assert json.loads((tmp_path / "summary.json").read_text())["env"] == f"{FOREIGN}:{name}Cart-v0"


def test_names_from_a_file(careful, tmp_path):
    names = tmp_path / "names.json"
    names.write_text(json.dumps({"observation": ["position", "speed"], "action": ["push"]}))
    words = ["deploy", str(careful), "--env", f"{FOREIGN}:PlainCart-v0", "--episodes", "1", "--out", str(tmp_path)]
    assert main([*words, "--names", str(names)]) == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--env", f"{FOREIGN}:PlainCart-v0"], "does not say what its observation is called"),
        (["--env", f"{FOREIGN}:SwappedCart-v0"], "has 'speed' at place 0, where the bundle has 'position'."),
        (["--env", f"{FOREIGN}:TooFewCart-v0"], "names 1 fields of its observation, and the bundle has 2."),
        (["--env", f"{FOREIGN}:WideCart-v0"], "takes 'push' in [-2, 2], and the bundle gives it in [-1, 1]."),
        (["--env", f"{FOREIGN}:DiscreteCart-v0"], "action is a Discrete of shape (), and the bundle needs a Box"),
        (["--env", f"{FOREIGN}:FreeCart-v0"], "reports no cost: every step needs info['cost']."),
        (["--env", f"{FOREIGN}:PricelessCart-v0"], f"reported a cost of nan at decision 1; {NEEDED}"),
        (["--env", f"{FOREIGN}:ProfitableCart-v0"], f"reported a cost of -1 at decision 1; {NEEDED}"),
        (["--env", f"{FOREIGN}:WordyCart-v0"], f"reported a cost of 0.5 at decision 1; {NEEDED}"),
        (["--env", f"{FOREIGN}:ListingCart-v0"], f"reported a cost of [0.5, 0.5] at decision 1; {NEEDED}"),
        (["--env", "nowhere:Cart-v0"], "There is no environment 'nowhere:Cart-v0' to be made here"),
        (["--env", f"{FOREIGN}:NamedCart-v0", "--names", "none.json"], "The file of names none.json does not exist."),
        (["--env", f"{FOREIGN}:NamedCart-v0", "--names", __file__], "is no file of names"),
        (["--env", f"{FOREIGN}:NamedCart-v0", "--task", "Cart"], "in a task or in an environment, not in both"),
        (["--names", "names.json"], "A file of names belongs to an environment"),
        (["--task", "Platoon"], "observation is a Box of shape (9,), and the bundle needs a Box of shape (2,)."),
        (["--task", "Crat"], "Unknown task 'Crat': did you mean 'Cart'?"),
        (["--shift", "dploy"], "Unknown shift 'dploy': did you mean 'deploy'?"),
        (["--eta", "1"], "A risk level is in [0, 1), not 1.0."),
        (["--eta", "0.5", "--caution", "none"], "Without caution eta is 0, and not 0.5"),
        (["--caution", "actor"], "Caution 'actor' needs an actor that takes a risk level, and that of "),
        (["--episodes", "0"], "There must be at least one episode, not 0"),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(careful, tmp_path, words, complaint, capsys):
    assert main(["deploy", str(careful), "--journal", "--out", str(tmp_path / "new" / "out"), *words]) == 2
    shown = capsys.readouterr().err
    assert complaint in shown and shown.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_task_that_nobody_here_knows_is_deployed_in_as_an_environment(careful, monkeypatch, tmp_path, capsys):
    monkeypatch.delitem(tasks.TASKS, "Cart")
    assert main(["deploy", str(careful), "--out", str(tmp_path / "out")]) == 2
    assert (
        "the task 'Cart', which this installation does not know: give its world as --task module:FAMILY or --env"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("verb", ["inspect", "deploy"])
def test_a_run_is_to_be_exported_first(careful, verb, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([verb, str(careful.parent)]) == 2
    assert f"{careful.parent} is a run; export it first: ashore export {careful.parent}\n" in capsys.readouterr().err


def test_a_deployment_is_never_written_over(careful, tmp_path, capsys):
    words = ["deploy", str(careful), "--episodes", "1", "--out", str(tmp_path)]
    assert main(words) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert main(words) == 2
    shown = capsys.readouterr().err
    assert f"{tmp_path} holds a deployment already: choose another folder." in shown and shown.count("\n") == 1
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_without_a_wish_every_deployment_has_a_folder_of_its_own(careful, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["deploy", str(careful), "--episodes", "1"]
    assert main([*words, "--eta", "1"]) == 2
    assert not (tmp_path / "runs").exists()
    assert main(words) == main(words) == 0
    assert main([*words, "--eta", "1"]) == 2
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["deploy", "deploy-2"]


def test_a_deployment_that_was_not_the_policys_says_so_first(careful, tmp_path, capsys):
    words = ["deploy", str(careful), "--episodes", "1"]
    assert main([*words, "--env", f"{FOREIGN}:BlindedCart-v0", "--out", str(tmp_path / "blinded")]) == 1
    # Of 20 decisions the first 5 had something to see.
    shown = capsys.readouterr().out.splitlines()
    assert shown[1].startswith("15 of 20 decisions were held or the fallback's, not the policy's")
    assert shown[2].startswith("return ")
    assert main([*words, "--env", f"{FOREIGN}:LateBlindedCart-v0", "--out", str(tmp_path / "late")]) == 0
    assert "5 of 20 decisions were held or the fallback's" in capsys.readouterr().out


def test_the_example_of_an_environment_is_found_in_the_current_folder(careful, tmp_path, monkeypatch):
    example = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text().split("```python\n# my_cart.py\n")[1]
    (tmp_path / "my_cart.py").write_text(example.split("```")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_cart", raising=False)
    path = list(sys.path)
    assert main(["deploy", str(careful), "--env", "my_cart:MyCart-v0", "--episodes", "1"]) == 0
    assert sys.path == path
