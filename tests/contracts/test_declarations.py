"""What a world says about itself."""

import dataclasses

import gymnasium
import numpy as np
import pytest

from ashore.environments import tasks
from ashore.environments.gymnasium_registration import ENVIRONMENT_IDS
from contracts.subjects import nominal


def test_gymnasium_knows_every_task():
    assert set(ENVIRONMENT_IDS.values()) == set(tasks.TASKS)
    assert set(ENVIRONMENT_IDS) <= set(gymnasium.registry)


def test_an_unknown_task_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="Unknown task 'Plattoon': did you mean 'Platoon'"):
        tasks.lookup("Plattoon")


def test_declared_names_are_the_fields_of_the_parameters(declared):
    names = [row.name for row in declared.description.shifts["nominal"]]
    assert names == list(declared.task.parameters_type._fields)
    assert declared.task.parameters_type is declared.family.parameters_type


def test_no_setting_has_the_name_of_a_parameter(declared):
    # Both can be given to Gymnasium by name, so one name must not mean two things.
    settings = {field.name for field in dataclasses.fields(declared.config)}
    assert not settings & set(declared.task.parameters_type._fields)


def test_field_names_are_unique_and_bounds_are_finite(declared):
    for fields in (declared.description.observation, declared.description.action):
        assert len({field.name for field in fields}) == len(fields)
        for field in fields:
            assert np.isfinite([field.low, field.high]).all()
            assert field.low < field.high


def test_all_forms_of_a_task_have_the_same_description(declared):
    world = declared.family.make_c_world(declared.config, nominal(declared))
    assert world.description == declared.description == declared.family.describe(declared.config)


def test_equal_configurations_are_equal_tasks(declared):
    again = declared.family.make(declared.config)
    assert again == declared.task
    assert hash(again) == hash(declared.task)
