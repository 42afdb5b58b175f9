"""A run from its configuration to its policy: stopped, killed or damaged, it goes on where it was."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.compilation import QUICK_PROCESS, quickly

from ashore.cli.main import main
from ashore.experiments import presets, records, training
from ashore.experiments.evaluation import EvaluationConfig, evaluate_run, write_results
from ashore.experiments.training import TrainingRun
from volumes import volume

RUN = TrainingRun("Platoon", "P-train", "risk_adaptive", presets.lookup("Platoon", "smoke").train, seeds=2, seed=3)


class Silent:
    """A watcher that keeps what it was told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.rows: list[records.Row] = []

    def compiling(self, run: TrainingRun, replay_bytes: int) -> None:
        assert replay_bytes > 0

    def compiled(self, seconds: float) -> None:
        assert seconds >= 0

    def progress(self, row: records.Row, run: TrainingRun) -> None:
        self.rows.append(row)

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)


def train(folder: Path, chunks: int | None = None, checkpoint_seconds: float = 1e9) -> Silent:
    """Train a run, to its end or for a number of chunks."""
    watcher = Silent()
    if not (folder / training.CONFIG).exists():
        training.begin(RUN, folder)
    with quickly():
        training.execute(
            folder, watcher, lambda: chunks is not None and len(watcher.rows) >= chunks, checkpoint_seconds
        )
    return watcher


def policy(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((folder / training.POLICY).glob("*.safetensors"))]


def numbers(folder: Path) -> list[dict]:
    """What was measured, without what was clocked."""
    return [{name: value for name, value in row.items() if "per_second" not in name} for row in records.read(folder)]


@pytest.fixture(scope="session")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "straight"
    train(folder)
    return folder


@pytest.fixture(scope="session")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run after two of its three chunks, with a checkpoint after each; to be copied."""
    folder = tmp_path_factory.mktemp("runs") / "stopped"
    train(folder, chunks=2, checkpoint_seconds=0.0)
    return folder


def test_a_run_that_was_stopped_equals_one_that_was_not_bit_for_bit(straight: Path, stopped: Path, tmp_path: Path):
    folder = Path(shutil.copytree(stopped, tmp_path / "stopped"))
    assert [row["decisions"] for row in records.read(folder)] == [8, 16]
    resumed = train(folder)
    assert resumed.notes == ["Resuming after 16 decisions."]
    assert policy(folder) == policy(straight)
    assert numbers(folder) == numbers(straight)


def test_a_damaged_checkpoint_costs_one_interval_and_changes_nothing_else(
    straight: Path, stopped: Path, tmp_path: Path
):
    folder = Path(shutil.copytree(stopped, tmp_path / "damaged"))
    kept = sorted((folder / training.CHECKPOINTS).iterdir())
    assert [path.name for path in kept] == ["step_000000008", "step_000000016"]
    tensors = kept[-1] / "state.safetensors"
    content = bytearray(tensors.read_bytes())
    content[len(content) // 2] ^= 16
    tensors.write_bytes(content)
    resumed = train(folder)
    assert "was changed after it was written" in resumed.notes[0]
    assert resumed.notes[1] == "Resuming after 8 decisions."
    assert policy(folder) == policy(straight)
    assert numbers(folder) == numbers(straight)


def test_kill_at_random_moments_always_resumes(straight: Path, tmp_path: Path):
    folder = tmp_path / "killed"
    training.begin(RUN, folder)
    command = [sys.executable, "-m", "ashore.cli.main", "train", "--resume", str(folder), "--checkpoint-seconds", "0"]
    chance, environment = random.Random(0), os.environ | QUICK_PROCESS
    for _ in range(volume(2, 6)):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
        assert process.stdout is not None
        # Compiling takes most of the time: wait for the first row, then strike while rows and checkpoints are written.
        while (line := process.stdout.readline()) and b"decisions," not in line:
            pass
        time.sleep(chance.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert all(isinstance(row, dict) for row in records.read(folder))
    train(folder)
    assert policy(folder) == policy(straight)
    assert numbers(folder) == numbers(straight)


def test_what_critics_expect_is_written_beside_what_is_paid(straight: Path, tmp_path: Path):
    with quickly():
        out = tmp_path / "critic.json"
        assert main(["bench", "critic", str(straight), "--environments", "2", "--out", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert [(row["shift"], row["seed_index"]) for row in rows] == [
        ("train", 0),
        ("train", 1),
        ("deploy", 0),
        ("deploy", 1),
    ]
    # A softplus that was hardly trained expects something; random driving pays something.
    assert all(row["predicted"] > 0.0 and row["realised"] > 0.0 for row in rows)
    assert all(row["decisions"] == 2 * (1000 - 230 + 1) for row in rows)


def test_critics_that_know_no_latent_are_not_judged_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    training.begin(replace(RUN, method="nominal"), tmp_path / "run")
    assert main(["bench", "critic", str(tmp_path / "run")]) == 2
    assert "know no latent" in capsys.readouterr().err


def test_a_run_can_be_evaluated_in_unseen_worlds(straight: Path):
    config = EvaluationConfig(shifts=("train", "deploy"), environments=4, episodes=1)
    with quickly():
        results = evaluate_run(straight, config)
    assert [result.shift for result in results] == ["train", "deploy"]
    for result in results:
        assert result.episode_cost.low <= result.episode_cost.mean <= result.episode_cost.high
        assert result.cost_by_episode[0] == pytest.approx(result.first_cost.mean, rel=1e-5)
        assert set(result.probes) == {"1", "8", "32", "128"} and result.diverged == 0
    written = json.loads(write_results(straight, config, results).read_text())
    assert written["protocol"]["environments"] == 4
    assert written["shifts"]["deploy"]["episode_cost"]["mean"] == pytest.approx(results[1].episode_cost.mean)


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("train", "Say what to train: ashore train TASK METHOD, or ashore train --resume RUN."),
        ("train Platon risk_adaptive", "Unknown task 'Platon': did you mean 'Platoon'?"),
        ("train Platoon risk_adaptiv", "Unknown method 'risk_adaptiv': did you mean 'risk_adaptive'?"),
        ("train Platoon risk_adaptive --preset gpus", "Unknown training preset 'gpus': did you mean 'gpu'?"),
        ("train Platoon risk_adaptive --set wrlds=3", "Unknown setting 'wrlds': did you mean 'worlds'?"),
        (
            "train Platoon risk_adaptive --set multiplier.integrl=1",
            "Unknown setting 'multiplier.integrl': did you mean 'multiplier.integral'?",
        ),
        ("train Platoon risk_adaptive --set worlds=many", "'worlds' is of type int, and 'many' is not."),
        ("train --resume nowhere", "nowhere holds no run: it has no config.json."),
        ("evaluate nowhere", "nowhere holds no run: it has no config.json."),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(command: str, complaint: str, capsys: pytest.CaptureFixture[str]):
    assert main(command.split()) == 2
    assert capsys.readouterr().err == f"ashore: {complaint}\n"


def test_a_folder_that_holds_a_run_is_not_overwritten(straight: Path, capsys: pytest.CaptureFixture[str]):
    before = (straight / training.CONFIG).read_text()
    assert main(["train", "Platoon", "risk_adaptive", "--preset", "smoke", "--out", str(straight)]) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert (straight / training.CONFIG).read_text() == before


def test_the_configuration_is_shown_resolved_and_can_be_read_back(capsys: pytest.CaptureFixture[str], straight: Path):
    words = (
        "train PointGoal2 risk_adaptive --preset gpu --seeds 3 --set worlds=512 multiplier.integral=0.01 --print-config"
    )
    assert main(words.split()) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["seeds"], shown["train"]["worlds"], shown["train"]["multiplier"]["integral"]) == (3, 512, 0.01)
    assert training.load(straight) == RUN
