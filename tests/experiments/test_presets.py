"""Presets against the runs that they are said to have made."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from ashore.experiments import presets
from ashore.methods import registry

RESULTS = Path(__file__).parents[2] / "results"
YOUNGER = {"carried": 0.0, "carried_episodes": 9}
"""Settings of `through_physics` that are younger than the recorded runs: they had their defaults there. For most of
them, so is `told`."""


def _recorded(cell):
    train = json.loads((RESULTS / cell / "config.json").read_text())["train"]
    return {"told": True} | train | {"through_physics": YOUNGER | train.get("through_physics", {})}


@pytest.mark.parametrize(
    ("cell", "method"),
    [
        ("suites/gpu/Platoon/risk_adaptive", "risk_adaptive"),
        ("suites/gpu/Platoon/domain_randomisation", "domain_randomisation"),
        ("suites/gpu/Platoon/nominal", "nominal"),
    ],
)
def test_platoon_is_trained_as_the_tables_were(cell, method):
    found = presets.settings_of("Platoon", "gpu", registry.lookup(method))
    recorded = _recorded(cell)
    assert json.loads(json.dumps(asdict(found))) == recorded


@pytest.mark.parametrize(
    ("method", "limit"), [("risk_adaptive", 12.0), ("pearl", None), ("domain_randomisation", None)]
)
def test_point_goal_is_trained_as_the_tables_were(method, limit):
    found = presets.settings_of("PointGoal2", "gpu", registry.lookup(method))
    assert found.kl_limit == limit
    recorded = _recorded(f"suites/gpu/PointGoal2/{method}")
    if method == "risk_adaptive":
        assert json.loads(json.dumps(asdict(found))) == recorded
    assert recorded.get("kl_limit") == limit


def test_a_laptop_trains_ours_on_platoon_as_the_tables_before_were():
    found = presets.settings_of("Platoon", "laptop", registry.lookup("risk_adaptive"))
    recorded = _recorded("platoon_narrow/gpu/Platoon/risk_adaptive")
    # A setting that is younger than the run had its default there.
    younger = {"kl_limit": None, "beyond": 1.0}
    # This one is the exception: the run had no limit, and few worlds reach it.
    recorded["through_physics"] |= {"longest": 100.0, "late": 1}
    assert json.loads(json.dumps(asdict(found))) == younger | recorded


def test_what_an_encoder_needs_is_left_to_those_who_have_a_risk_level():
    ours, others = (presets.settings_of("Platoon", "gpu", registry.lookup(name)) for name in ("risk_adaptive", "spidr"))
    assert (ours.sizes.action_scale, ours.context_sizes, ours.risk.conditioned) == (8.0, "uniform", True)
    assert (others.sizes.action_scale, others.context_sizes, others.risk.conditioned) == (1.0, "log-uniform", False)
    # The same amount of data in a batch, and of everything that teaches the actor.
    assert ours.batch_tasks * ours.batch_transitions == others.batch_tasks * others.batch_transitions
    assert ours.through_physics == others.through_physics
