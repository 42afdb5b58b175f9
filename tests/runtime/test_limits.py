"""Settings: a number that makes no sense is refused when it is written down, and none can widen the box."""

import math

import numpy as np
import pytest

from ashore_runtime import GuardSettings, Limits, ModeSettings, Refused, Supervisor
from runtime import small_bundle

NO_POSITIVE_NUMBERS = (0.0, -1.0, math.nan, -math.inf, "0.5", [], True, 1j)
NO_COUNTS = (-1, 2.0, math.nan, math.inf, "3", None, True)
POSITIVE = [(Limits, "deadline"), (Limits, "rate"), (Limits, "over_budget")]
POSITIVE += [(GuardSettings, "max_age"), (ModeSettings, "auto_recovery")]
COUNTS = [(Limits, "patience"), (GuardSettings, "stuck_steps"), (GuardSettings, "stuck_element_after")]
COUNTS += [(ModeSettings, "hold_steps"), (ModeSettings, "recover_steps")]


@pytest.mark.parametrize(("kind", "name"), POSITIVE)
def test_a_number_that_must_be_positive_is(kind, name):
    for value in NO_POSITIVE_NUMBERS:
        with pytest.raises(Refused, match=f"^{name} must be a number above 0, not .*[.]$"):
            kind(**{name: value})
    for value in (1, 0.5, np.float32(0.5), math.inf):
        kind(**{name: value})


@pytest.mark.parametrize(("kind", "name"), COUNTS)
def test_a_count_is_a_whole_number(kind, name):
    for value in NO_COUNTS:
        with pytest.raises(Refused, match=f"^{name} must be a whole number, 0 or more, not .*[.]$"):
            kind(**{name: value})
    for value in (0, 7, np.int64(7)):
        kind(**{name: value})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"low": -0.5}, "The limit 'low' must be a number for every action, not -0.5."),
        ({"high": (0.5, "full")}, "The limit 'high' must be a number for every action"),
        ({"guard": {"stuck_steps": 3}}, "The limit 'guard' must be a GuardSettings, not "),
        ({"modes": None}, "The limit 'modes' must be a ModeSettings, not None."),
    ],
)
def test_parts_of_another_kind_are_refused(wrong, message):
    with pytest.raises(Refused, match=message):
        Limits(**wrong)


def test_a_table_is_no_limits(make_runtime):
    with pytest.raises(Refused, match=r"Limits are given as Limits\(...\), not as {'rate': 0.1}."):
        make_runtime(limits={"rate": 0.1})
    with pytest.raises(Refused, match=r"Limits are given as Limits\(...\)"):
        Supervisor(["none"], print, small_bundle.manifest(), limits={"rate": 0.1})  # pyright: ignore[reportArgumentType]


def test_not_even_a_setting_that_slipped_through_leaves_the_box(make_runtime):
    limits = Limits(low=(-0.5, -0.5), high=(0.5, 0.5))
    object.__setattr__(limits, "rate", -1.0)
    runtime = make_runtime(limits=limits, eta=0.9)
    for observation in np.random.default_rng(0).uniform(-1.5, 1.5, (50, 4)):
        assert (np.abs(runtime.act(observation).action) <= 0.5).all()


def test_no_age_is_too_old_where_none_is_asked_for(make_runtime):
    runtime = make_runtime(limits=Limits(guard=GuardSettings(max_age=math.inf)))
    assert runtime.act(np.zeros(4), t_obs=1).source == "nominal"
