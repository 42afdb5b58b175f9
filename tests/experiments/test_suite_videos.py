"""A video of every method: the same world and start for all, each deployed as its suite evaluates it."""

import numpy as np
import pytest

from ashore.cli.main import main
from ashore.environments import randomisation, tasks
from ashore.environments.platoon.fvd_controller import fvd_action
from ashore.experiments import suite_videos, training
from ashore.experiments.suite_cells import CellSettings, Request, plans
from ashore.experiments.suite_videos import VideoConfig, film_cells
from experiments import toy_suite


@pytest.fixture
def carts(monkeypatch):
    toy_suite.register(monkeypatch)


@pytest.fixture
def takes(monkeypatch):
    """What would be filmed, by file name."""
    seen = {}

    def note(path, task, world, takes, budget, every):
        seen[path.stem] = (world, takes[0], budget, every)
        return path

    monkeypatch.setattr(suite_videos, "film", note)
    return seen


def _train(pool, *methods):
    """The runs of some methods, as `ashore suite run` would leave them."""
    for plan in plans(Request("toy", pool, only=",".join(f"method={method}" for method in methods))):
        assert isinstance(plan.settings, CellSettings) and plan.settings.run is not None and plan.run is not None
        training.begin(plan.settings.run, plan.run)
        toy_suite.train(plan.run, None, lambda: False)


def _calibrate(pool):
    run = pool / "toy" / "Cart" / "risk_adaptive"
    toy_suite.calibrate(run, 0, toy_suite.SCALE.caution, toy_suite.SCALE.calibration, lambda progress: None, None)


@pytest.mark.usefixtures("carts")
def test_everybody_starts_in_the_same_world_and_acts_as_in_the_suite(takes, tmp_path):
    _train(tmp_path, "risk_adaptive", "nominal")
    _calibrate(tmp_path)
    told = []
    videos, left_out = film_cells(plans(Request("toy", tmp_path)), tmp_path / "to", VideoConfig(seed=3), told.append)
    assert not left_out and told == videos
    assert {video.title for video in videos} == {"Ours", "Ours w/o R.A.", "Nominal", "full_push"}
    # Cart is in no demo: its last shift.
    ours, neutral, nominal, push = (takes[f"Cart-deploy-{method}"] for method in toy_suite.METHODS)
    assert ours[0] == neutral[0] == nominal[0] == push[0]
    starts = [take.moments[0].observation for _, take, *_ in takes.values()]
    for start in starts[1:]:
        np.testing.assert_array_equal(starts[0], start)
    # The made-up schedule: 0.9 from the start, 0.5 after 8 transitions, 0 after 16.
    assert [ours[1].moments[place].result.eta for place in (0, 8, 16)] == [0.9, 0.5, 0.0]
    assert all(moment.result.eta == 0.0 for take in (neutral, nominal, push) for moment in take[1].moments)
    assert [take[1].identifies for take in (ours, neutral, nominal, push)] == [True, True, False, False]
    assert all((moment.result.action == 1.0).all() for moment in push[1].moments)
    for video in videos:
        moments = takes[video.path.stem][1].moments
        assert video.cost == pytest.approx(sum(moment.cost for moment in moments)) and video.budget == 2.0
        assert takes[video.path.stem][2] == video.budget


@pytest.mark.usefixtures("carts")
def test_cells_without_a_policy_are_named_and_left_out(takes, tmp_path):
    _train(tmp_path, "risk_adaptive")
    videos, left_out = film_cells(plans(Request("toy", tmp_path)), tmp_path, VideoConfig(), lambda video: None)
    # Without a calibration there is no schedule to follow; at eta = 0 the same run needs none.
    assert {video.title for video in videos} == {"Ours w/o R.A.", "full_push"}
    pool = tmp_path / "toy" / "Cart"
    assert left_out == [
        f"Cart / risk_adaptive is left out: seed 0 of {pool / 'risk_adaptive'} is not calibrated.",
        f"Cart / nominal is left out: {pool / 'nominal'} holds no run: it has no config.json.",
    ]


@pytest.mark.usefixtures("carts")
def test_by_command(tmp_path, capsys):
    _train(tmp_path, "nominal")
    assert main(["suite", "videos", "toy", "--out", str(tmp_path), "--only", "method=nominal"]) == 0
    video = tmp_path / "toy" / "reports" / "toy" / "videos" / "Cart-deploy-nominal.mp4"
    assert f"video: {video} (Nominal: return " in capsys.readouterr().out and video.stat().st_size > 1000
    assert main(["suite", "videos", "toy", "--out", str(tmp_path / "empty"), "--only", "method=nominal"]) == 0
    shown = capsys.readouterr().out
    assert "Cart / nominal is left out: " in shown and "nothing to film yet" in shown
    for words in (["toy", "--shift", "depoly"], ["toi"], ["toy", "--only", "nominal"], ["toy", "--seed", "-1"]):
        assert main(["suite", "videos", *words, "--out", str(tmp_path)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_fvd_needs_no_policy_and_knows_its_car(takes, tmp_path):
    cells = plans(Request("table1", tmp_path, only="task=Platoon,method=fvd"))
    (video,), left_out = film_cells(cells, tmp_path, VideoConfig(), lambda video: None)
    assert video.title == "FVD" and not left_out
    world, take, budget, every = takes["Platoon-deploy-fvd"]
    # 1000 decisions in about 300 pictures.
    assert budget == video.budget == 20.0 and every == 4 and not take.identifies
    family = tasks.lookup("Platoon")
    config = family.presets[family.default_preset]
    rows = family.describe(config).shifts["nominal"]
    true, nominal = (randomisation.from_names(rows, family.parameters_type, given) for given in (world.parameters, {}))
    middle = take.moments[400]
    np.testing.assert_allclose(middle.result.action, fvd_action(middle.observation, true, config), atol=1e-5)
    assert np.abs(middle.result.action - fvd_action(middle.observation, nominal, config)).max() > 1e-3
