"""The demo: bundles beside themselves without caution and beside a baseline, or a script where there is no bundle."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from ashore.cli.demo_view import sparkline
from ashore.cli.main import main
from ashore.experiments import demo_crew, demo_drive, demo_plan
from ashore.experiments.demo_crew import crew
from ashore.experiments.demo_outcome import Outcome
from ashore.experiments.demo_plan import Show, Way, plan
from ashore.experiments.demo_verdict import verdict
from ashore.experiments.deployment import Caution
from ashore.experiments.exporting import export_run, load_trained, read_calibration
from ashore_runtime import bundle
from experiments import cart_run

CARTS = Show("Cart", "cart", "deploy", worlds=2, episodes=2, baseline="nominal", controller="full speed", film_every=5)


@pytest.fixture
def carts(monkeypatch):
    """Carts instead of the two worlds that take a minute."""
    cart_run.register(monkeypatch)
    monkeypatch.setattr(demo_plan, "SHOWS", (CARTS,))


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """A folder with a calibrated bundle of carts."""
    folder = tmp_path_factory.mktemp("bundles")
    with pytest.MonkeyPatch.context() as patch:
        cart_run.register(patch)
        run = cart_run.write(tmp_path_factory.mktemp("runs") / "carts")
        cart_run.calibrate(run)
        trained = load_trained(run, 0)
        export_run(trained, folder / "cart.zip", read_calibration(trained))
    return folder


def _demo(bundles, out, *words):
    return main(["demo", "--bundles", str(bundles), "--out", str(out), "--processes", "1", *words])


def test_without_bundles_scripts_play_both_worlds(tmp_path, capsys):
    bundles, out = tmp_path / "bundles", tmp_path / "demo"
    bundles.mkdir()
    assert _demo(bundles, out) == 0
    shown = capsys.readouterr().out
    assert f"There is no bundle {bundles / 'platoon'}: Platoon is played by its scripted controller instead." in shown
    assert "PointGoal2, scripted controller: return" in shown and f"report: {out / 'report.html'}" in shown
    files = {path.name for path in out.iterdir()}
    assert files == {"point_goal2.mp4", "platoon.mp4", "scripted.png", "comparison.json", "report.html"}
    assert all((out / name).stat().st_size > 10_000 for name in ("point_goal2.mp4", "platoon.mp4"))
    figure = np.asarray(Image.open(out / "scripted.png").convert("RGB"))
    # More than one colour: something was drawn.
    assert len(np.unique(figure.reshape(-1, 3), axis=0)) > 10


@pytest.mark.usefixtures("carts")
def test_a_bundle_is_deployed_beside_itself_without_caution_and_beside_a_baseline(bundles, tmp_path, capsys):
    (tmp_path / "cart" / "baseline").mkdir(parents=True)
    assert _demo(bundles, tmp_path) == 0
    shown = capsys.readouterr().out
    for words in ("Cart, calibrated schedule, world 2 of 2", "same at eta = 0", "baseline: full speed", "under budget"):
        assert words in shown
    assert f"video: {tmp_path / 'cart.mp4'}" in shown and f"figure: {tmp_path / 'caution.png'}" in shown
    (show,) = json.loads((tmp_path / "comparison.json").read_text())["shows"]
    assert [way["way"] for way in show["ways"]] == ["calibrated", "eta_0", "baseline"]
    worlds = []
    for way in show["ways"]:
        folder = tmp_path / "cart" / way["way"]
        summary = json.loads((folder / "summary.json").read_text())
        lines = [json.loads(line) for line in (folder / "decisions.jsonl").read_text().splitlines()]
        assert len(lines) == 80 and [line["episode"] for line in lines[::20]] == [0, 1, 2, 3]
        assert way["mean_cost"] == pytest.approx(sum(line["cost"] for line in lines) / 4)
        worlds.append(summary["worlds"])
        assert lines[0]["eta"] == (0.9 if way["way"] == "calibrated" else 0.0)
    assert worlds[0] == worlds[1] == worlds[2] and worlds[0][0] != worlds[0][1]
    page = (tmp_path / "report.html").read_text()
    assert "Side by side" in page and show["sentences"][0] in page and "data:video/mp4" in page


@pytest.mark.usefixtures("carts")
def test_a_baseline_that_was_trained_needs_neither_critics_nor_a_belief(bundles, tmp_path, capsys):
    folder = tmp_path / "bundles"
    shutil.copytree(bundles, folder)
    baseline = export_run(
        load_trained(cart_run.write(tmp_path / "run", method="nominal"), 0), folder / "cart_nominal", None
    )
    assert baseline.networks.critics is None and not baseline.networks.identifies
    assert _demo(folder, tmp_path / "demo") == 0
    shown = capsys.readouterr().out
    (line,) = [line for line in shown.splitlines() if "baseline: nominal, world 2 of 2" in line]
    assert "eta" not in line and "cost" in line and "The baseline (nominal) cost" in shown
    (show,) = json.loads((tmp_path / "demo" / "comparison.json").read_text())["shows"]
    assert [set(way["mean_over_worlds"]) for way in show["ways"]] == [{"spent", "eta", "spread"}] * 2 + [{"spent"}]
    # Three pictures of 320 x 16 above each other, 76 pixels of words above each and gaps of 6: 3 x 92 + 2 x 6 = 288.
    told = subprocess.run([imageio_ffmpeg.get_ffmpeg_exe(), "-i", tmp_path / "demo" / "cart.mp4"], capture_output=True)
    assert b"320x288" in told.stderr
    assert "baseline: nominal" in (tmp_path / "demo" / "report.html").read_text()


@pytest.mark.usefixtures("carts")
def test_all_ways_meet_the_same_scenes_in_every_episode(bundles):
    (planned,) = plan(bundles).deployed
    world = demo_drive.draw_worlds(CARTS, 3)[1]
    told = []
    done = [demo_drive.drive(CARTS, way, world, told.append) for way in planned.ways]
    first = np.array([[m.observation for m in moments if m.decision == 0] for moments in done])
    np.testing.assert_array_equal(first[0], first[1])
    np.testing.assert_array_equal(first[0], first[2])
    assert (first[0, 0] != first[0, 1]).any()
    assert [news.way for news in told if news.world_ended] == ["calibrated", "eta_0", "baseline"]
    # A world is met as if nobody had been anywhere before.
    again = demo_drive.drive(CARTS, planned.ways[0], world, told.append)
    assert [m.reward for m in again] == [m.reward for m in done[0]] and again[0].evidence.n_real == 1


@pytest.mark.usefixtures("carts")
def test_what_is_missing_is_said(bundles, tmp_path, monkeypatch):
    whole = bundle.load(bundles / "cart.zip")
    bundle.write(tmp_path / "cart", whole.manifest, whole.weights, whole.golden, whole.card, None)
    monkeypatch.setattr(demo_plan, "SHOWS", (replace(CARTS, controller=None),))
    made = plan(tmp_path)
    assert [way.name for way in made.deployed[0].ways] == ["eta_0"]
    assert made.remarks == [
        "The bundle of Cart has no calibration: it runs at eta = 0, with no schedule beside it.",
        f"Cart has no baseline here: there is no bundle {tmp_path / 'cart_nominal'}.",
    ]
    shutil.copytree(tmp_path / "cart", tmp_path / "cart_nominal")
    assert [way.label for way in plan(tmp_path).deployed[0].ways] == ["policy at eta = 0", "baseline: risk adaptive"]


def test_what_is_shipped_has_a_schedule_and_a_small_baseline():
    planned = next(one for one in plan(demo_plan.BUNDLES).deployed if one.show.task == "PointGoal2")
    assert [way.name for way in planned.ways] == ["calibrated", "eta_0", "baseline"] and not planned.remarks
    ours, _, baseline = planned.ways
    assert baseline.label == "baseline: nominal" and ours.identifies and not baseline.identifies
    assert baseline.bundle is not None and bundle.load(baseline.bundle).networks.critics is None
    # Without its critics a policy of this size is a tenth of a bundle.
    assert sum(file.stat().st_size for file in baseline.bundle.iterdir()) < 1 << 20


@pytest.mark.usefixtures("carts")
def test_a_bundle_that_cannot_be_used_is_answered_in_one_sentence(bundles, tmp_path, monkeypatch, capsys):
    damaged = bytearray((bundles / "cart.zip").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "cart.zip").write_bytes(damaged)
    assert _demo(tmp_path, tmp_path / "out") == 2
    shown = capsys.readouterr().err
    assert f"The bundle {tmp_path / 'cart.zip'} is refused: " in shown and shown.count("\n") == 1
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(demo_plan, "SHOWS", (replace(CARTS, task="Platoon"),))
    assert _demo(bundles, tmp_path / "out") == 2
    assert "is a bundle of Cart, and the demo needs one of Platoon." in capsys.readouterr().err
    assert _demo(tmp_path / "nowhere", tmp_path / "out") == 2
    assert f"There is no folder {tmp_path / 'nowhere'}." in capsys.readouterr().err


def _outcome(name, costs, returns, eta=(0.0, 0.0), alarms=0, bundle=None):
    worlds = len(costs)
    curves = np.tile(np.array(eta, float), (worlds, 1))
    return Outcome(
        way=Way(name, "baseline: FVD" if name == "baseline" else name, bundle, Caution(), identifies=False),
        budget=20.0,
        returns=np.array(returns, float),
        costs=np.array(costs, float),
        eta=curves,
        spread=np.tile([1.0, 0.25], (worlds, 1)),
        spent=curves,
        alarms=np.array([alarms] + [0] * (worlds - 1)),
        episodes=1,
    )


def test_the_closing_sentences_say_what_the_numbers_say():
    neutral = _outcome("eta_0", [30, 31, 29, 30], [8, 8, 8, 8])
    careful = _outcome("calibrated", [20, 20, 20, 31], [7, 7, 7, 7], eta=(0.9, 0.3))
    lowered = verdict("Platoon", [careful, neutral])
    assert lowered[0] == (
        "Platoon: the calibrated schedule lowered the cost from 30.0 to 22.8 of 20 per episode (in 3 of 4 worlds it "
        "was lower); return went from 8.0 to 7.0."
    )
    # Differences -10, -11, -9, +1: mean -7.25, deviation 5.56, standard error 2.78.
    assert lowered[1] == "The difference in cost is -7.2 with a standard error of 2.8 over the worlds."
    assert lowered[2].startswith("Caution relaxed: eta went from 0.90 to 0.30 while")
    raised = verdict("Platoon", [_outcome("calibrated", [30, 31, 29, 34], [8] * 4, eta=(0.8, 0.8)), neutral])
    assert "did not lower the cost here: it went from 30.0 to 31.0" in raised[0] and "in 0 of 4 worlds" in raised[0]
    assert raised[1].endswith(
        "+1.0 with a standard error of 1.0 over the worlds: so few worlds cannot tell it from chance."
    )
    assert raised[2].startswith("Caution did not relax: eta began and ended at 0.80")
    same = verdict("Platoon", [_outcome("calibrated", [30, 31, 29, 30], [8] * 4, eta=(0.1, 0.5), alarms=3), neutral])
    assert "did not lower the cost here: 30.0 of 20 per episode with it and without it." in same[0]
    assert same[1].startswith("Caution rose")
    assert same[2].startswith("In 1 of 4 worlds") and same[2].endswith("3 times in all.")


def test_the_closing_sentences_of_few_worlds_of_no_calibration_and_of_a_baseline():
    few = verdict("Cart", [_outcome("calibrated", [1], [1]), _outcome("eta_0", [9], [1])])
    assert few[1] == "1 world cannot tell this from chance."
    alone = verdict("Cart", [_outcome("eta_0", [9, 11], [1, 1]), _outcome("baseline", [40, 42], [3, 3])])
    assert alone == [
        "Cart: without a calibration the policy ran at eta = 0 and cost 10.0 of 20 per episode; whether caution would "
        "help is not shown.",
        "The baseline (FVD) cost 41.0 of 20 per episode with a return of 3.0; the policy at eta = 0 cost 10.0 with a "
        "return of 1.0.",
        "2 worlds cannot tell this from chance.",
    ]


def test_a_baseline_is_compared_world_by_world_and_seed_with_seed():
    careful = _outcome("calibrated", [20, 20, 20, 20], [7, 7, 7, 9])
    scripted = verdict("Cart", [careful, _outcome("baseline", [61, 59, 60, 60], [7, 7, 7, 7])])
    # Costs differ by -41, -39, -40, -40: deviation 0.82, standard error 0.41. Returns by 0, 0, 0, 2: 1.0 and 0.5.
    assert scripted[-2:] == [
        "The difference in cost is -40.0 with a standard error of 0.4 over the worlds.",
        "The difference in return is +0.5 with a standard error of 0.5 over the worlds: so few worlds cannot tell it "
        "from chance.",
    ]
    learnt = verdict("Cart", [careful, _outcome("baseline", [61, 59, 60, 60], [7] * 4, bundle=Path("cart_nominal"))])
    assert learnt[:-1] == scripted and learnt[-1].startswith("Each policy is one training seed")


def test_workers_in_processes_are_heard_before_they_are_done():
    heard = []
    with crew(2) as workers:
        for number in range(3):
            workers.submit(demo_crew.tell, number)
        assert [future.result() for future in workers.finished(heard.append)] == [None] * 3
    assert sorted(heard) == [0, 1, 2]


def test_a_curve_in_letters():
    assert sparkline([1.0, 0.5, 0.0], 8) == "█▄ "
    long = sparkline(np.linspace(1.0, 0.0, 100).tolist(), 5)
    assert len(long) == 5 and long[0] == "█" and long[-1] == " "
