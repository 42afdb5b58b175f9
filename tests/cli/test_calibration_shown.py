"""What `ashore calibrate` says on the terminal about a calibration that is not enough."""

import io
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from ashore.calibration.config import CalibrationConfig
from ashore.calibration.risk_schedule import Schedule
from ashore.calibration.strangers import Strangers
from ashore.cli import calibrate


def shown(rule: str, infeasible: bool, r_squared: float, strangers: Strangers | None = None) -> str:
    """The words about a made-up calibration whose counts are all alike."""
    config = CalibrationConfig(rule=rule)
    counts = len(config.counts)
    table = SimpleNamespace(value=np.ones(counts))
    covered = SimpleNamespace(covered=0, worlds=18, lower_bound=0.0, confidence=0.95)
    world = SimpleNamespace(
        r_squared=np.array([r_squared]),
        table=SimpleNamespace(eta_percentiles=((0.5, 0.5, 0.5),) * counts),
        infeasible=np.full((counts, 18), infeasible),
    )
    calibration = SimpleNamespace(
        config=config,
        budget=SimpleNamespace(discounted=10.0, per_episode=2.0),
        measured=SimpleNamespace(
            epsilon=table, lipschitz=table, direct=table, delta=SimpleNamespace(value=np.ones((counts, 3)))
        ),
        schedule=Schedule(np.full(counts, 0.5), np.full(counts, infeasible)),
        world=world if rule == "world" else None,
        scheduled=SimpleNamespace(coverage=covered),
        neutral=SimpleNamespace(coverage=covered),
        strangers=strangers,
    )
    words = io.StringIO()
    calibrate._show(Console(file=words, width=200), calibration)  # pyright: ignore[reportArgumentType]
    return " ".join(words.getvalue().split())


@pytest.mark.parametrize("rule", ["world", "budget"])
def test_every_rule_announces_that_no_level_is_enough(rule):
    announced = "INFEASIBLE where marked: no risk level on the grid makes up for what is not known there."
    assert announced in shown(rule, infeasible=True, r_squared=0.3)
    assert announced not in shown(rule, infeasible=False, r_squared=0.3)


def test_a_share_that_nobody_knows_is_called_unknown():
    assert "their beliefs predict 0.30 of the cost's variance" in shown("world", infeasible=False, r_squared=0.3)
    unknown = shown("world", infeasible=False, r_squared=np.nan)
    assert "their beliefs predict an unknown share of the cost's variance" in unknown and "nan" not in unknown


@pytest.mark.parametrize(
    ("largest", "enough", "said"),
    [
        (9.5, True, "strangers: at least 0.5, at which the dearest costs 9.5 of 10 (measured with 128 worlds outside"),
        (10.5, False, "strangers: at least 0.5, which is NOT ENOUGH: the dearest costs 10.5 of 10 (measured with 128"),
    ],
)
def test_what_strangers_call_for_is_said_and_whether_it_is_enough(largest, enough, said):
    met = Strangers(3.0, np.array([0.0, 0.5]), np.ones(2), np.array([11.0, largest]), 0, 0.5, enough)
    words = shown("world", infeasible=False, r_squared=0.3, strangers=met)
    assert said in words and "3 times as wide as those of training" in words
