"""What Gymnasium's users can rely on for every registered world."""

import subprocess
import sys
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import ashore  # noqa: F401 - registers the worlds
from ashore.environments.gymnasium_registration import ENVIRONMENT_IDS
from ashore.environments.gymnasium_vector import AshoreVectorEnv
from ashore.environments.tasks import TASKS
from contracts.subjects import WORLDS

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.fixture(params=list(ENVIRONMENT_IDS))
def environment_id(request) -> str:
    return request.param


def test_gymnasiums_checker_has_nothing_to_say(environment_id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(environment_id, render_mode="rgb_array").unwrapped)


def test_a_world_can_be_made_without_importing_ashore_first(environment_id):
    # Gymnasium has no plug-ins since its release 1.0; a name may say which module registers it instead.
    program = f"import gymnasium; print(gymnasium.make('ashore:{environment_id}').reset(seed=0)[1]['cost'])"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout == "0.0\n"


def test_cost_and_its_terms_are_there_on_every_step(environment_id):
    env = gymnasium.make(environment_id)
    _, info = env.reset(seed=1)
    assert info["cost"] == 0.0
    env.action_space.seed(1)
    for _ in range(20):
        _, reward, _, _, info = env.step(env.action_space.sample())
        costs = [value for name, value in info.items() if name.startswith("cost_")]
        rewards = [value for name, value in info.items() if name.startswith("reward_")]
        assert sum(costs) == pytest.approx(info["cost"], abs=1e-6)
        assert sum(rewards) == pytest.approx(float(reward), abs=1e-5)


def test_every_physical_parameter_can_be_given_by_name(environment_id):
    rows = TASKS[ENVIRONMENT_IDS[environment_id]].describe(_default(environment_id)).shifts["train"]
    chosen: dict[str, Any] = {row.name: row.high for row in rows}
    spoilt: dict[str, Any] = {**chosen, rows[0].name: float("nan")}
    env = gymnasium.make(environment_id, **chosen)
    env.reset(seed=0)
    assert not env.step(env.action_space.sample())[4]["diverged"]
    with pytest.raises(ValueError, match=f"'{rows[0].name}' must be a finite number.*{rows[-1].name}"):
        gymnasium.make(environment_id, **spoilt)
    with pytest.raises(ValueError, match=f"Unknown option 'wheels'.*{rows[-1].name}"):
        gymnasium.make(environment_id, wheels=3)


@pytest.mark.parametrize("preset_index", [0, -1])
def test_presets_can_be_chosen(environment_id, preset_index):
    family = TASKS[ENVIRONMENT_IDS[environment_id]]
    preset = list(family.presets)[preset_index]
    env = gymnasium.make(environment_id, preset=preset)
    description = family.describe(family.presets[preset])
    assert env.observation_space == gymnasium.spaces.Box(*description.observation_bounds, dtype=np.float32)
    observation, _ = env.reset(seed=0)
    assert observation in env.observation_space


@pytest.mark.parametrize("value", [np.nan, np.inf, 1.5])
def test_bad_actions_are_refused_and_the_episode_goes_on(environment_id, value):
    env = gymnasium.make(environment_id, disable_env_checker=True)
    env.reset(seed=0)
    assert env.action_space.shape is not None
    with pytest.raises(ValueError, match="finite|outside"):
        env.step(np.full(env.action_space.shape, value))
    with pytest.raises(ValueError, match="shape"):
        env.step(np.zeros(7))
    env.step(np.zeros(env.action_space.shape))


def test_make_vec_gives_the_mjx_batch(environment_id):
    envs = gymnasium.make_vec(environment_id, num_envs=WORLDS)
    assert isinstance(envs, AshoreVectorEnv)
    observation, info = envs.reset(seed=0)
    assert observation in envs.observation_space
    np.testing.assert_array_equal(info["cost"], np.zeros(WORLDS))
    envs.action_space.seed(0)
    for _ in range(5):
        observation, reward, terminated, truncated, info = envs.step(envs.action_space.sample())
        assert observation in envs.observation_space
        for values in (reward, terminated, truncated, info["cost"], info["diverged"]):
            assert values.shape == (WORLDS,)
        costs = [value for name, value in info.items() if name.startswith("cost_")]
        np.testing.assert_allclose(sum(costs), info["cost"], atol=1e-6)


def _default(environment_id: str) -> object:
    family = TASKS[ENVIRONMENT_IDS[environment_id]]
    return family.presets[family.default_preset]
