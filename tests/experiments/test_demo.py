import numpy as np
from PIL import Image

from ashore.experiments.demo import DemoConfig, demo


def test_the_demo_films_both_worlds_and_draws_their_cost_against_the_budget(tmp_path):
    shown = demo(DemoConfig(out=tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"point_goal.mp4", "platoon.mp4", "summary.png"}
    for played in shown.played.values():
        (episode,) = played.episodes
        assert not episode.diverged
        assert len(episode.rewards) == len(episode.costs) == played.description.decisions_per_episode
        assert played.video.stat().st_size > 10_000
    figure = np.asarray(Image.open(shown.figure).convert("RGB"))
    # More than one colour: something was drawn.
    assert len(np.unique(figure.reshape(-1, 3), axis=0)) > 10
