import io
import json
import os
import subprocess
import sys

import pytest

from ashore import __version__
from ashore.cli.main import VERBS, main
from ashore.environments import tasks
from toy_world import CARTS


@pytest.fixture(autouse=True)
def cart(monkeypatch):
    monkeypatch.setitem(tasks.TASKS, "Cart", CARTS)


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("plya", "Unknown verb 'plya': did you mean 'play'?"),
        ("qqq", f"Unknown verb 'qqq': choose from {', '.join(VERBS)}."),
        ("--verson", "Unknown option '--verson': did you mean '--version'?"),
        ("bench", f"Say what to bench: {', '.join(verb.split()[1] for verb in VERBS if verb.startswith('bench '))}."),
        ("bench evn", "Unknown thing to bench 'evn': did you mean 'env'?"),
        ("play", "Missing from ashore play: TASK Name of the task; `ashore list` shows them (see ashore play --help)."),
        ("play Crat", "Unknown task 'Crat': did you mean 'Cart'?"),
        ("play Cart --preset shrot", "Unknown preset 'shrot': did you mean 'short'?"),
        ("play Cart --shift dploy", "Unknown shift 'dploy': did you mean 'deploy'?"),
        ("play Cart --sed 1", "Unknown option of ashore play '--sed': did you mean '--seed'?"),
        ("evaluate nowhere --shift mild", "nowhere holds no run: it has no config.json."),
        ("play Cart --sed=1", "Unknown option of ashore play '--sed': did you mean '--seed'?"),
        ("play Cart --seed", "Missing value for argument '--seed'. Expected 1 values (see ashore play --help)."),
        ("play Cart --seed one", "--seed: invalid literal for int() with base 10: 'one' (see ashore play --help)."),
        ("play Cart --seed -1", "A seed must not be negative, as -1 is (see ashore play --help)."),
        ("play Cart --episodes 0", "There must be at least one episode to play, not 0 (see ashore play --help)."),
        ("play Cart Cart", "Unrecognized options: Cart (see ashore play --help)."),
        ("list --task Platon", "Unknown task 'Platon': did you mean 'Platoon'?"),
        ("list --task Cart --preset lon", "Unknown preset 'lon': did you mean 'long'?"),
        ("bench env --task Carts", "Unknown task 'Carts': did you mean 'Cart'?"),
        ("bench env --batch 0", "Batch sizes must be given and positive (see ashore bench env --help)."),
        ("bench env --batch", "Batch sizes must be given and positive (see ashore bench env --help)."),
        (
            "bench env --engine warp",
            "Invalid choice 'warp' for argument '--engine'. Expected one of ('jax', 'c', 'both') "
            "(see ashore bench env --help).",
        ),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(command, complaint, capsys):
    assert main(command.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"ashore: {complaint}\n"


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_the_sentence_is_the_same_on_every_terminal(encoding):
    # The parser draws its complaints in another way where it may use more than ASCII.
    shown = subprocess.run(
        [sys.executable, "-m", "ashore.cli.main", "play", "PointGoal2", "--seed", "one"],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 2
    assert shown.stdout == ""
    expected = "ashore: --seed: invalid literal for int() with base 10: 'one' (see ashore play --help).\n"
    assert shown.stderr == expected


def test_help_names_every_verb(capsys):
    assert main(["--help"]) == main([]) == 0
    shown = capsys.readouterr().out
    assert all(verb in shown for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_its_options(verb, capsys):
    with pytest.raises(SystemExit) as end:
        main([*verb.split(), "--help"])
    assert end.value.code == 0
    assert f"usage: ashore {verb}" in capsys.readouterr().out


def test_the_version_is_the_packages(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ashore {__version__}\n"


def test_help_starts_no_engine():
    program = "import sys; from ashore.cli.main import main; main(['--help']); print('jax' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "False"


def test_list_shows_the_registry(capsys):
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    for name, family in tasks.TASKS.items():
        assert name in shown
        assert all(preset in shown for preset in family.presets)


def test_list_shows_the_ranges_of_a_task_side_by_side_and_where_they_leave_training(capsys):
    assert main(["list", "--task", "Cart"]) == 0
    shown = capsys.readouterr().out
    assert "0.5 .. 2" in shown
    assert "warning: deploy: mass [0.4, 1] leaves Train [0.5, 2]" in shown
    assert "warning: deploy: thrust" not in shown
    assert "push" in shown
    assert "budget 2 per episode = 0.1 per decision = 10 discounted at 0.99" in " ".join(shown.split())


def test_list_says_that_the_nominal_car_is_no_training_car(capsys):
    assert main(["list", "--task", "Platoon"]) == 0
    shown = capsys.readouterr().out
    assert "warning: nominal: drag [1, 1] leaves Train [0.3, 0.5]" in shown
    assert "warning: nominal: drive [1, 1] leaves Train [1.5, 2]" in shown


def test_play_writes_a_video_and_says_what_happened(tmp_path, capsys):
    assert main(["play", "Cart", "--episodes", "2", "--seed", "3", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    # At full force from rest, 10 of 20 decisions are faster than the limit.
    assert shown.count("cost 10.00 (over the budget of 2 per episode), 20 decisions") == 2
    video = tmp_path / "Cart-short-nominal-3.mp4"
    assert f"video: {video}" in shown
    assert video.stat().st_size > 0


def test_bench_measures_both_engines_and_keeps_the_numbers(tmp_path, capsys):
    out = tmp_path / "bench.json"
    command = ["bench", "env", "--task", "Cart", "--batch", "2", "8", "--seconds", "0.2", "--out", str(out)]
    assert main(command) == 0
    assert f"numbers: {out}" in capsys.readouterr().out
    content = json.loads(out.read_text())
    assert [(row["engine"], row["batch"]) for row in content["speeds"]] == [("c", 1), ("jax", 2), ("jax", 8)]
    for row in content["speeds"]:
        assert row["decisions_per_second"] > 0
        # The cart's action repeat is 2.
        assert row["env_steps_per_second"] == pytest.approx(2 * row["decisions_per_second"])
    assert content["machine"]["threads"] >= 1


def test_a_reader_that_leaves_ends_it_quietly():
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "ashore.cli.main", "--help"], stdout=writer, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_another_pipe_that_breaks_is_not_taken_for_a_reader_that_left(monkeypatch, capfd):
    def encoder_ended(options):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("ashore.cli.list_tasks.run", encoder_ended)
    with capfd.disabled(), open(os.devnull, "w") as elsewhere:
        monkeypatch.setattr(sys, "stdout", elsewhere)
        monkeypatch.setattr(sys, "stderr", said := io.StringIO())
        assert main(["list"]) == 74
    assert "has ended; is the disk full?" in said.getvalue()
