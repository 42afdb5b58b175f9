"""From a trained run to its calibration on disk, by the command a person types."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from ashore import artifacts
from ashore.calibration import page
from ashore.calibration.config import CalibrationConfig
from ashore.calibration.ledger import Paused
from ashore.cli.main import main
from ashore.environments import tasks
from ashore.experiments import presets, training
from ashore.experiments.calibration import CautionConfig, calibrate_run
from ashore.experiments.training import TrainingRun
from ashore.learning import normalisation
from ashore.learning.train_config import architecture
from ashore.networks import architecture as networks
from ashore_runtime.calibration_reading import calibration_from_json
from ashore_runtime.world_levels import WorldLevels
from tests.compilation import jit
from tests.toy_world import CARTS

pytestmark = pytest.mark.usefixtures("compiled_quickly")
TINY = ["--environments", "18", "--episodes", "2", "--set", "largest_count=4", "reference=20", "etas=[0,0.5,0.9]"]
FIGURES = {
    "epsilon", "lipschitz", "cost_difference", "cost_reduction", "risk_schedule", "theorem_bound", "coverage",
    "world_schedule",
}  # fmt: skip


# For the whole session: between two tests of this file a worker may run others, and a module's fixtures end there.
@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Path:
    """A run whose policy was never trained: two seeds of carts."""
    folder = tmp_path_factory.mktemp("runs") / "carts"
    settings = presets.lookup("Platoon", "smoke").train
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tasks.TASKS, "Cart", CARTS)
        described = TrainingRun("Cart", "short", "risk_adaptive", settings, seeds=2)
        training.begin(described, folder)
        nets = architecture(training.task_of(described), settings)

    def write(seed: int, path: Path) -> None:
        tensors = networks.named_weights(jit(networks.init, static_argnums=1)(jax.random.key(seed), nets))
        for name, statistics in normalisation.init(2, 1)._asdict().items():
            tensors |= {f"normaliser/{name}/{field}": value for field, value in statistics._asdict().items()}
        # A cart that pushes at full force half the time: there is some cost to reduce.
        tensors["actor/output/bias"] = jnp.full(1, 3.0)
        save_file({name: np.asarray(value, order="C") for name, value in tensors.items()}, path)

    files = {f"seed_{seed}.safetensors": lambda path, seed=seed: write(seed, path) for seed in range(2)}
    artifacts.write_folder(folder / training.POLICY, files, {"decisions": 0})
    return folder


@pytest.fixture(autouse=True)
def cart(monkeypatch):
    monkeypatch.setitem(tasks.TASKS, "Cart", CARTS)


def test_a_run_is_calibrated_by_one_command_in_as_many_goes_as_it_takes(run, capsys):
    command = ["calibrate", str(run), "--seed-index", "1", *TINY]
    assert main([*command, "--budget-minutes", "0"]) == 75
    stopped = capsys.readouterr().out
    assert "first_contexts/0000" in stopped and "the same command goes on" in stopped
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "first_contexts" not in shown and "coverage_neutral/0000" in shown and "unseen worlds" in shown
    folder = run / "calibration" / "seed_1"
    written = json.loads((folder / "calibration.json").read_text())
    assert written["schema"] == 1 and written["counts"] == [0, 1, 2, 4] and written["caution"] == "refinement"
    assert np.shape(written["delta"]) == (4, 3) and len(written["epsilon"]) == 4
    assert written["budget"]["discounted"] == pytest.approx(10.0) and written["budget"]["per_episode"] == 2.0
    assert written["schedule"]["eta"] == written["eta"] and len(written["assumptions"]) >= 9
    assert written["coverage"]["scheduled"]["worlds"] == 18
    assert written["rule"] == "world" and np.shape(written["world"]["margin"]) == (4, 3)
    assert "eta over the simulated worlds" in shown
    assert {path.stem for path in folder.glob("*.png")} == FIGURES
    page = (folder / "README.md").read_text()
    assert all(sentence in page for sentence in written["assumptions"])
    # A third call finds everything done and says the same.
    assert main(command) == 0
    assert "M decisions" not in capsys.readouterr().out
    assert json.loads((folder / "calibration.json").read_text()) == written


def test_the_runtime_reads_what_was_written(run):
    path = run / "calibration" / "seed_1" / "calibration.json"
    read = calibration_from_json(json.loads(path.read_text()))
    assert read.counts == (0, 1, 2, 4) and len(read.eta) == len(read.infeasible) == 4
    assert read.spread is not None and read.spread[0] == 1.0
    assert read.world is not None and read.eta[0] == WorldLevels(read.world).start[0]


def test_the_papers_rule_at_the_median_is_one_command_too(run, capsys, monkeypatch):
    # What is wrong with a calibration is said on the terminal too, and not only on its page.
    monkeypatch.setattr(page, "unsettled", lambda calibration: f"NOT SETTLED at {calibration.config.level:g}.")
    assert main(["calibrate", str(run), *TINY, "--level", "0.5", "--rule", "paper"]) == 0
    shown = capsys.readouterr().out
    assert "level 0.5, rule paper" in shown and "NOT SETTLED at 0.5." in shown
    written = json.loads((run / "calibration" / "seed_0" / "calibration.json").read_text())
    assert (written["level"], written["rule"], written["world"]) == (0.5, "paper", None)
    # The conformal median of 18 worlds is the tenth, ceil(19 / 2).
    assert written["neutral_cost"]["bound"][0] == sorted(written["world_fit"]["realised"][0])[9]
    # Three medians together promise nothing, and the page says so.
    assert written["joint_level"] == 0.0
    assert any("which is no promise at all" in sentence for sentence in written["assumptions"])
    product = np.array(written["lipschitz"], float) * np.array(written["epsilon"], float)
    needed = np.where(np.isfinite(product), product, written["direct"])
    reached = np.array(written["delta"]).max(axis=1) >= needed
    np.testing.assert_array_equal(written["infeasible"], ~reached)
    read = calibration_from_json(written)
    assert read.world is None and list(read.eta) == written["schedule"]["by_rule"]["paper"]["eta"]


def test_a_level_for_strangers_is_asked_for_and_travels(run, capsys):
    *words, last = TINY
    assert main(["calibrate", str(run), *words, last, "strangers=highest"]) == 0
    written = json.loads((run / "calibration" / "seed_0" / "calibration.json").read_text())
    read = calibration_from_json(written)
    assert read.world is not None and read.world.strangers == written["etas"][-1]
    assert read.eta[0] == WorldLevels(read.world).start[0]
    assert any("get the highest level" in sentence for sentence in written["assumptions"])
    assert main(["calibrate", str(run), *words, last, "strangers=hihgest"]) == 2
    assert "did you mean 'highest'" in capsys.readouterr().err


def test_a_level_for_strangers_is_measured_and_said(run, capsys):
    *words, last = TINY
    assert main(["calibrate", str(run), *words, last, "strangers=measured"]) == 0
    shown = capsys.readouterr().out
    folder = run / "calibration" / "seed_0"
    written = json.loads((folder / "calibration.json").read_text())
    met, world = written["strangers"], calibration_from_json(written).world
    assert world is not None and world.strangers == met["level"] == met["etas"][-1]
    assert world.strangers_enough is met["enough"]
    assert met["etas"] == written["etas"][: len(met["etas"])] and met["times"] == 2.0
    # The budget is kept at this level and at none below it, or at none at all.
    kept = [largest <= written["budget"]["discounted"] for largest in met["largest"]]
    assert kept == [False] * (len(kept) - 1) + [met["enough"]]
    assert any(f"at least {met['level']:g}, " in sentence for sentence in written["assumptions"])
    said = f"strangers: at least {met['level']:g}"
    assert said in shown and "| strangers at |" in (folder / "README.md").read_text()
    # Another rule knows no strangers and does not meet any.
    assert main(["calibrate", str(run), "--rule", "budget", *words, last, "strangers=measured"]) == 0
    assert json.loads((folder / "calibration.json").read_text())["strangers"] is None


def test_another_budget_is_asked_for_without_training_again(run):
    def calibrated(*budget: str) -> dict[str, Any]:
        assert main(["calibrate", str(run), *budget, *TINY]) == 0
        return json.loads((run / "calibration" / "seed_0" / "calibration.json").read_text())

    declared, asked = calibrated(), calibrated("--cost-budget", "30")
    assert declared["budget"]["per_episode"] == 2.0 and asked["budget"]["per_episode"] == 30.0
    assert asked["world"]["budget"] == asked["budget"]["discounted"] == pytest.approx(150.0)
    # At eta = 0 the same worlds cost the same, and all of them keep a large one, without caution.
    neutral = [found["coverage"]["neutral"] for found in (declared, asked)]
    assert neutral[0]["mean_cost"] == neutral[1]["mean_cost"]
    assert neutral[0]["covered"] < neutral[1]["covered"] == 18
    assert set(asked["eta"]) == {0.0}


def test_the_frontier_is_drawn_by_the_same_command(run, capsys):
    # Every way is a program of its own to compile; two show that ways are told apart.
    few = ("Algorithm 1 as printed", "unit gradient")
    words = ["calibrate", str(run), "--frontier", "--environments", "4", "--episodes", "1"]
    assert main([*words, "--set", "etas=[0,0.9]", 'shifts=["train","deploy"]', f"ways={json.dumps(few)}"]) == 0
    shown = capsys.readouterr().out
    assert "unit gradient" in shown and "budget 2" in shown
    folder = run / "calibration" / "seed_0"
    written = json.loads((folder / "frontier.json").read_text())
    assert set(written["curves"]) == set(written["ways"]) == set(few) and (folder / "frontier.png").exists()
    curve = written["curves"]["unit gradient"]["deploy"]
    assert len(curve["episode_cost"]) == 2 and curve["reduction"][0] == 0.0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["nowhere"], "nowhere holds no run: it has no config.json."),
        (["RUN", "--seed-index", "2"], "has the seeds 0 to 1, and not 2."),
        (["RUN", "--caution", "actors"], "Unknown caution 'actors': did you mean 'actor'?"),
        (["RUN", "--caution", "actor"], "needs a policy that takes a risk level"),
        (["RUN", "--environments", "3", "--rule", "max"], "A level of 0.9 needs at least 9 environments, not 3."),
        (["RUN", "--environments", "3"], "The rule 'world' needs at least 18 environments at a level of 0.9, not 3"),
        (["RUN", "--rule", "hope"], "The rule must be one of world, budget, max, paper, direct, not 'hope'."),
        (["RUN", "--frontier", "--level", "0.5"], "--level and --rule are about a risk schedule, and --frontier makes"),
        (["RUN", "--frontier", "--rule", "max"], "--level and --rule are about a risk schedule, and --frontier makes"),
        (["RUN", "--frontier", "--cost-budget", "1"], "--cost-budget, --level and --rule are about a risk schedule"),
        (["RUN", "--cost-budget", "0"], "A cost budget must be positive, not 0."),
        (["RUN", "--cost-budget", "1", "--rule", "paper"], "The rule 'paper' looks at no budget"),
        (["RUN", "--set", "etaz=[0]"], "Unknown setting 'etaz': did you mean 'etas'?"),
        (["RUN", "--set", "refinement.keep=first"], "The refinement keeps the best or the last action."),
        (["RUN", "--frontier", "--set", 'shifts=["trian"]'], "Unknown shift 'trian': did you mean 'train'?"),
        (["RUN", "--frontier", "--set", 'ways=["unit"]'], "Unknown way to be careful 'unit'"),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(run, words, complaint, capsys):
    assert main(["calibrate", *(str(run) if word == "RUN" else word for word in words)]) == 2
    shown = capsys.readouterr().err
    assert complaint in shown and shown.count("\n") == 1


def test_other_settings_do_not_mix_with_what_was_stopped(run):
    config = CalibrationConfig(environments=18, episodes=1, first_episodes=1, largest_count=1, reference=20, seed=5)
    pieces: list[str] = []
    stages = run / "calibration" / "seed_0" / "stages"
    before = len(list(stages.iterdir())) if stages.exists() else 0
    with pytest.raises(Paused):
        calibrate_run(run, 0, CautionConfig(), config, lambda progress: pieces.append(progress.piece), lambda: True)
    assert pieces == ["first_contexts/0000"]
    assert len(list(stages.iterdir())) == before + 1
