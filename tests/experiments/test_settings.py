import pytest

from ashore.experiments import presets, settings
from ashore.methods import registry

OURS = registry.lookup("risk_adaptive")


def test_what_may_be_left_out_can_be_taken_back():
    found = presets.settings_of("PointGoal2", "gpu", OURS)
    assert found.kl_limit == 12.0
    assert settings.override(found, "kl_limit=null").kl_limit is None
    without = settings.override(found, "through_physics.longest=null")
    assert without.through_physics.longest is None
    again = settings.override(without, "through_physics.longest=5").through_physics.longest
    assert (again, type(again)) == (5.0, float)


@pytest.mark.parametrize("text", ["abc", "true", "[1]"])
def test_what_was_left_out_takes_what_fits(text):
    with pytest.raises(ValueError, match="'beta_kl' is of type float, and .* is not"):
        settings.override(presets.settings_of("PointGoal2", "gpu", OURS), f"beta_kl={text}")


@pytest.mark.parametrize("name", ["worlds", "rate_left", "encoder_objective"])
def test_what_is_needed_cannot(name):
    with pytest.raises(ValueError, match=f"'{name}' is of type .*, and 'null' is not"):
        settings.override(presets.settings_of("PointGoal2", "gpu", OURS), f"{name}=null")
