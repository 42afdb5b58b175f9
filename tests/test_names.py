import pytest

from ashore.names import UnknownName, lookup, nearest, unknown


def test_a_known_name_is_found():
    assert lookup("task", "Platoon", {"Platoon": 1}) == 1


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UnknownName, match=r"^Unknown task 'platon': did you mean 'Platoon'\?$"):
        lookup("task", "platon", {"PointGoal2": 0, "Platoon": 1})


def test_a_name_that_resembles_nothing_is_answered_with_all():
    assert unknown("task", "xyz", ["PointGoal2", "Platoon"]) == "Unknown task 'xyz': choose from PointGoal2, Platoon."


def test_an_empty_table_says_so():
    assert unknown("method", "x", []) == "Unknown method 'x': there are none."


def test_case_does_not_matter_to_nearness():
    assert nearest("POINTGOAL2", ["PointGoal2", "Platoon"]) == "PointGoal2"
    assert nearest("zzz", ["PointGoal2", "Platoon"]) is None
