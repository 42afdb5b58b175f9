"""From a run to a bundle: what travels is what was trained, and says so."""

import dataclasses
import json
import subprocess

import numpy as np
import pytest

import ashore
import ashore_runtime
from ashore.cli.main import main
from ashore.experiments import exporting
from ashore.experiments.exporting import export_run, load_trained, read_calibration
from ashore.learning.train_config import architecture
from ashore.methods.registry import METHODS
from ashore_runtime import bundle, golden
from ashore_runtime.schema import WorldCalibration
from experiments import cart_run


@pytest.fixture(autouse=True)
def cart(monkeypatch):
    cart_run.register(monkeypatch)


@pytest.fixture
def run(tmp_path):
    return cart_run.write(tmp_path / "carts", seeds=2)


def test_the_manifest_says_what_the_run_was(run):
    trained = load_trained(run, 1)
    made = export_run(trained, run / "b.bundle", None)
    manifest = made.manifest
    assert [field.name for field in manifest.observation] == ["position", "speed"]
    assert manifest.task.control_period == 0.1 and manifest.dynamics_features == (1,)
    assert manifest.method == "risk_adaptive"
    # 2 per episode of 20 decisions; this run's cost critic discounts by 0.95, not by the task's 0.99.
    budget = manifest.budget
    assert (budget.per_episode, budget.decisions_per_episode, budget.discount) == (2.0, 20, 0.95)
    assert budget.per_decision == pytest.approx(0.1) and budget.discounted == pytest.approx(2.0)
    assert manifest.caution == "refinement" and made.calibration is None
    assert [row["name"] for row in manifest.training_ranges] == ["mass", "thrust"]
    assert {"ashore", "jax", "numpy", "python", "source"} <= set(manifest.versions)
    for name, tensor in made.weights.items():
        np.testing.assert_array_equal(tensor, trained.weights[name])
    assert not any(name.endswith("/count") for name in made.weights)


@pytest.mark.parametrize(
    ("task", "preset", "seen"), [("PointGoal2", "default", 60 + 96), ("Platoon", "P-train", 9 + 2 + 2)]
)
def test_every_world_can_be_left(task, preset, seen, tmp_path):
    # What the networks see besides the observation travels along: closenesses sharpened twice,
    # closing speeds, and how soon gaps close.
    made = export_run(
        load_trained(cart_run.write(tmp_path / task, task=task, task_preset=preset), 0), tmp_path / "b", None
    )
    assert made.networks.normalisers.seen == seen
    golden.replay(made.manifest, made.networks, made.golden)


def test_golden_outputs_are_those_of_the_training_library(run):
    trained = load_trained(run, 0)
    made = export_run(trained, run / "b.bundle", None)
    ours = golden.outputs(made.manifest, made.networks, made.golden)
    # Close, and not the runtime's own numbers copied.
    assert any((ours[name] != made.golden[name]).any() for name in ours)
    golden.replay(made.manifest, made.networks, made.golden)
    assert len(np.unique(made.golden["eta"])) > 100 and (made.golden["eta"] == 0.0).any()


def test_folder_and_zip_are_the_same_bundle(run):
    trained = load_trained(run, 0)
    folder, packed = (export_run(trained, run / "x" / name, None) for name in ("same.bundle", "same.zip"))
    assert folder.path.is_dir() and packed.path.is_file()
    assert {name: folder.weights[name].tobytes() for name in folder.weights} == {
        name: packed.weights[name].tobytes() for name in packed.weights
    }


def test_the_calibration_travels_and_decides_about_caution(run):
    cart_run.calibrate(run)
    trained = load_trained(run, 0)
    made = export_run(trained, run / "b.bundle", read_calibration(trained))
    assert made.calibration is not None and made.calibration.eta == (0.9, 0.9, 0.5, 0.0)
    assert made.calibration.tables["epsilon"] == [1.0, 0.5, None, 0.1]
    assert made.manifest.refinement.steps == 3 and made.manifest.refinement.variant == "unit"


def test_the_budget_that_was_calibrated_for_is_the_one_that_travels(run):
    trained = load_trained(run, 0)
    cart_run.calibrate(run, asked=1.0, discounted=0.05 / (1 - 0.95))
    made = export_run(trained, run / "b.bundle", read_calibration(trained)).manifest.budget
    assert (made.per_episode, made.per_decision, made.discount) == (1.0, 0.05, 0.95)
    assert made.discounted == pytest.approx(1.0)
    assert export_run(trained, run / "plain.bundle", None).manifest.budget.per_episode == 2.0


def test_the_card_tells_a_person_what_matters(run):
    cart_run.calibrate(run)
    trained = load_trained(run, 0)
    card = export_run(trained, run / "careful.bundle", read_calibration(trained)).card
    for said in (
        "# careful.bundle",
        "| per episode of 20 decisions, on average | 2 |",
        "| per decision | 0.1 |",
        "| discounted at 0.95 (the critics' unit) | 2 |",
        "| 0 | 0.9 | infeasible: not enough |",
        "| 32 | 0 |  |",
        "- The world is one of those that were simulated.",
        'Runtime.load("careful.bundle")',
        trained.sha256,
        "| mass | kg | scale | 0.5 | 2 |",
        "method `risk_adaptive` on Cart",
    ):
        assert said in card, said


def test_caution_that_follows_the_world_is_told_as_such(run, capsys):
    cart_run.calibrate(run)
    trained = load_trained(run, 0)
    calibrated = read_calibration(trained)
    assert calibrated is not None
    latent = architecture(trained.task, trained.run.train).sizes.latent
    world = WorldCalibration(
        budget=2.0,
        etas=(0.0, 0.5, 0.9),
        intercept=((1.0, 1.0, 1.0),) * 4,
        slope=((((0.0,) * latent),) * 3,) * 4,
        margin=((3.0, 3.0, 2.5),) * 2 + ((0.0, 0.0, 0.0),) * 2,
        low=(-1.0,) * latent,
        high=(1.0,) * latent,
        eta_percentiles=((0.9, 0.9, 0.9), (0.9, 0.9, 0.9), (0.0, 0.5, 0.9), (0.0, 0.0, 0.5)),
    )
    known = dataclasses.replace(calibrated.calibration, world=world)
    made = export_run(trained, run / "careful.bundle", calibrated._replace(calibration=known))
    assert made.calibration is not None and made.calibration.world == world
    for said in (
        "it starts at eta = 0.9, which is infeasible: not enough",
        "A world unlike all simulated ones gets at least 0.9.",
        "| from this many transitions on | 10 % | 50 % | 90 % |",
        "| 0 | 0.9 | 0.9 | 0.9 |\n| 16 | 0 | 0.5 | 0.9 |\n| 32 | 0 | 0 | 0.5 |",
    ):
        assert said in made.card, said
    assert main(["inspect", str(run / "careful.bundle")]) == 0
    shown = capsys.readouterr().out
    assert "typical world" in shown and "90 %" in shown and "a world unlike all simulated ones" in shown


@pytest.mark.parametrize(
    ("eta", "infeasible", "opening", "warning"),
    [
        ((0.9, 0.5, 0.5, 0.0), (False,) * 4, "It starts careful in a world it does not know and relaxes", None),
        ((0.9, 0.9, 0.9, 0.5), (True, True, False, False), "It starts careful", "INFEASIBLE at N = 0, 8: no risk"),
        ((0.0,) * 4, (False,) * 4, "asks for no caution: its risk level eta is 0 throughout.", None),
        ((0.5,) * 4, (False,) * 4, "It does not relax as evidence comes in: its risk level eta begins at 0.5", None),
        ((0.0,) * 4, (True,) * 4, "found no risk level that is enough", "INFEASIBLE throughout: no risk level"),
    ],
)
def test_the_first_lines_follow_the_schedule(run, capsys, eta, infeasible, opening, warning):
    path = cart_run.calibrate(run)
    path.write_text(json.dumps({**json.loads(path.read_text()), "eta": eta, "infeasible": infeasible}))
    assert main(["export", str(run), "--without-change-detection"]) == 0
    shown = capsys.readouterr().out
    first_lines = bundle.load(run / "bundle" / "seed_0.bundle").card.split("- decides every")[0]
    assert opening in first_lines
    for text in (shown, first_lines):
        assert ("INFEASIBLE" in text) == (warning is not None) and (warning or "") in text


@pytest.mark.parametrize("method", exporting.NEVER_REFINED)
def test_what_is_never_refined_leaves_its_critics_at_home(method, tmp_path, capsys):
    run = cart_run.write(tmp_path / method, method=method)
    trained = load_trained(run, 0)
    made = export_run(trained, tmp_path / "b", None)
    assert not any(name.startswith("critic_") for name in made.weights) and made.networks.critics is None
    assert made.manifest.network.critic_heads == 0 and "output/cost_value" not in made.golden
    assert "no critics (nothing is refined" in made.card and "- caution: none: the actor" in made.card
    assert main(["inspect", str(tmp_path / "b")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "no critics: nothing can be" in shown
    # A calibration needs them: where there is one, they come along.
    cart_run.calibrate(run)
    careful = export_run(trained, tmp_path / "careful", read_calibration(trained))
    assert careful.networks.critics is not None and careful.calibration is not None


def test_every_method_that_is_never_refined_is_a_method():
    assert set(exporting.NEVER_REFINED) < set(METHODS) and "risk_adaptive" not in exporting.NEVER_REFINED


def test_export_and_inspect_by_command(run, capsys):
    cart_run.calibrate(run)
    assert main(["export", str(run), "--without-change-detection"]) == 0
    path = run / "bundle" / "seed_0.bundle"
    assert f"bundle: {path}" in capsys.readouterr().out
    assert main(["inspect", str(path), "--fields"]) == 0
    shown = capsys.readouterr().out
    for said in ("risk schedule", "position", "verified", bundle.load(path).checksum):
        assert said in shown
    assert main(["inspect", str(path), "--card"]) == 0
    assert capsys.readouterr().out.strip() == bundle.load(path).card.strip()
    assert main(["export", str(run), "--without-calibration", "--out", str(run / "plain.zip")]) == 0
    assert "it runs at eta = 0" in capsys.readouterr().out
    assert bundle.load(run / "plain.zip").calibration is None


def test_a_mistake_is_answered_in_one_sentence(run, tmp_path, capsys):
    def complaint(*words) -> str:
        assert main([str(word) for word in words]) == 2
        shown = capsys.readouterr()
        assert shown.err.count("\n") == 1
        return shown.err

    assert "holds no run" in complaint("export", tmp_path)
    assert "has the seeds 0 to 1, and not 2." in complaint("export", run, "--seed-index", "2")
    cart_run.calibrate(run, discounted=10.0)
    assert "refined towards a discounted budget of 10, and the run's is 2" in complaint("export", run)
    path = cart_run.calibrate(run)
    path.write_text(json.dumps({**json.loads(path.read_text()), "weights_sha256": "0" * 64}))
    assert "belongs to other weights" in complaint("export", run)
    weights = run / "policy" / "seed_0.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert "was changed after it was written" in complaint("export", run)
    assert "cannot be read" in complaint("inspect", tmp_path / "nothing.bundle")
    config = run / "config.json"
    config.write_text(config.read_text().replace('"risk_adaptive"', '"fvd"'))
    assert "fvd is a controller and is not trained" in complaint("export", run)
    (tmp_path / "junk.zip").write_bytes(b"junk")
    assert "junk.zip" in complaint("inspect", tmp_path / "junk.zip")


def test_a_signed_bundle_is_believed_by_whoever_has_the_public_key(run, tmp_path, capsys):
    key, trusted = tmp_path / "secret.key", tmp_path / "trusted.keys"
    key.write_text("1f" * 32 + "\n")
    assert main(["export", str(run), "--sign", str(key), "--out", str(tmp_path / "signed.zip")]) == 0
    (said,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("signed; public key: ")]
    trusted.write_text(said.removeprefix("signed; public key: "))
    words = ["--require-signature", str(trusted)]
    assert main(["inspect", str(tmp_path / "signed.zip"), *words]) == 0
    assert f"signed by a key in {trusted}" in " ".join(capsys.readouterr().out.split())
    assert main(["export", str(run), "--out", str(tmp_path / "plain.zip")]) == 0
    assert main(["inspect", str(tmp_path / "plain.zip"), *words]) == 2
    assert capsys.readouterr().err == f"ashore: {tmp_path / 'plain.zip'} is not signed.\n"


@pytest.mark.parametrize(
    "content", [b"", b"1f" * 31, b"1f" * 33, b"1g" * 32, b"\xff" * 32, b"1f" * 32 + b" 2030-01-01"]
)
def test_a_key_that_cannot_sign_is_not_repeated(run, tmp_path, capsys, content):
    key = tmp_path / "secret.key"
    key.write_bytes(content)
    assert main(["export", str(run), "--sign", str(key)]) == 2
    sentence = f"ashore: {key} is not a secret key: 64 hexadecimal digits and nothing else.\n"
    assert capsys.readouterr().err == sentence and not (run / "bundle").exists()
    key.unlink()
    assert main(["export", str(run), "--sign", str(key)]) == 2
    assert capsys.readouterr().err == f"ashore: The key file {key} cannot be read: No such file or directory.\n"


def test_the_source_has_a_revision():
    assert len(exporting.versions()["source"]) >= 7


def test_the_revision_is_that_of_both_packages(tmp_path, monkeypatch):
    def git(*words: str) -> str:
        known = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(["git", *known, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    git("init")
    for package in (ashore, ashore_runtime):
        file = tmp_path / package.__name__ / "__init__.py"
        file.parent.mkdir()
        file.write_text("")
        monkeypatch.setattr(package, "__file__", str(file))
        git("add", ".")
        git("commit", "-m", package.__name__)
    # The last commit is the runtime's.
    commit = git("rev-parse", "HEAD").strip()
    assert exporting.versions()["source"] == commit
    (tmp_path / "ashore_runtime" / "__init__.py").write_text("changed = True")
    assert exporting.versions()["source"] == commit + "+"
