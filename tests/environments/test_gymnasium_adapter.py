import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from ashore.environments.gymnasium_adapter import AshoreEnv
from toy_world import CARTS, PERIOD


def _cart(**options) -> AshoreEnv:
    return AshoreEnv(CARTS, **options)


def _push(force: float) -> np.ndarray:
    return np.array([force], np.float32)


@pytest.fixture
def registered_cart():
    name = "toy/Cart-v0"
    gymnasium.register(name, entry_point=AshoreEnv, kwargs={"task": CARTS})
    yield name
    del gymnasium.registry[name]


def test_gymnasiums_own_checker_has_nothing_to_say(registered_cart):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(registered_cart).unwrapped)


def test_spaces_are_the_declared_bounds():
    env = _cart()
    assert env.observation_space == gymnasium.spaces.Box(*env.description.observation_bounds, dtype=np.float32)
    assert env.action_space == gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    assert env.metadata["render_fps"] == 10


def test_cost_is_there_after_reset_and_after_every_step():
    env = _cart()
    _, info = env.reset(seed=0)
    assert info["cost"] == 0.0
    costs = []
    for _ in range(20):
        _, _, _, truncated, info = env.step(_push(1.0))
        costs.append(info["cost"])
    # At full force v_n = n / 10, above the limit of 1.05 from the 11th decision on.
    assert costs == [0.0] * 10 + [1.0] * 10
    assert truncated


def test_terms_sum_to_reward_and_cost():
    env = _cart()
    env.reset(seed=0)
    for _ in range(15):
        _, reward, _, _, info = env.step(_push(0.9))
        rewards = [value for name, value in info.items() if name.startswith("reward_")]
        costs = [value for name, value in info.items() if name.startswith("cost_")]
        assert len(rewards) == 2
        assert sum(rewards) == pytest.approx(reward)
        assert sum(costs) == pytest.approx(info["cost"])


def test_the_time_limit_truncates_with_the_episodes_metrics():
    env = _cart(preset="long")
    env.reset(seed=0)
    for decision in range(1, 51):
        _, _, terminated, truncated, info = env.step(_push(0.1))
        assert not terminated
        assert truncated == (decision == 50)
        assert ("metric_distance" in info) == (decision == 50)


def test_after_an_end_and_before_a_reset_there_is_no_step():
    env = _cart(decisions=1)
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        env.step(_push(0.0))
    env.reset(seed=0)
    env.step(_push(0.0))
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        env.step(_push(0.0))


def test_physical_parameters_and_settings_by_name():
    env = _cart(mass=2.0, decisions=7)
    env.reset(seed=0)
    observation, *_ = env.step(_push(1.0))
    assert observation[1] == pytest.approx(PERIOD / 2.0)
    assert env.description.decisions_per_episode == 7
    apart = _cart(parameters={"mass": 2.0})
    apart.reset(seed=0)
    np.testing.assert_array_equal(apart.step(_push(1.0))[0], observation)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"mas": 1.0}, "'mas', did you mean 'mass'; physical parameters are mass, thrust and settings are decisions"),
        ({"parameters": {"zzz": 1.0}}, "'zzz'; physical parameters are mass, thrust"),
        ({"mass": float("nan")}, "'mass' must be a finite number.*mass, thrust"),
        ({"mass": float("inf")}, "'mass' must be a finite number.*mass, thrust"),
        ({"mass": "heavy"}, "'mass' must be a finite number.*mass, thrust"),
        ({"start_width": float("nan")}, "'start_width' must be finite"),
        ({"mass": 1.0, "parameters": {"mass": 2.0}}, "given twice"),
        ({"preset": "shrt"}, "Unknown preset 'shrt': did you mean 'short'"),
        ({"render_mode": "human"}, "Render mode 'human'"),
    ],
)
def test_what_cannot_be_built_is_refused_with_what_can(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        _cart(**options)


@pytest.mark.parametrize(
    ("action", "complaint"),
    [
        (np.array([np.nan]), "must be finite, not .*nan"),
        (np.array([np.inf]), "must be finite"),
        (np.zeros(2), r"must have shape \(1,\), not \(2,\)"),
        (np.float32(0.0), r"must have shape \(1,\), not \(\)"),
        (np.array([1.1]), r"'push' is 1.1, outside \[-1, 1\]"),
        (np.array([-1.00001]), r"'push' is -1.00001, outside \[-1, 1\]"),
        (np.array(["left"]), "array of numbers"),
        (np.array([True]), "array of numbers"),
        (np.array([1 + 1j]), "array of numbers"),
        ([[1.0], [1.0, 2.0]], "array of numbers"),
        (None, "array of numbers"),
    ],
)
def test_a_bad_action_is_refused_in_one_sentence(action, complaint):
    env = _cart()
    env.reset(seed=0)
    with pytest.raises(ValueError, match=complaint) as caught:
        env.step(action)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("action", [[1.0], [1], np.array([1.0], np.float64), np.array([1.0 + 5e-7], np.float64)])
def test_numbers_of_any_kind_and_rounding_are_welcome(action):
    env, reference = _cart(), _cart()
    env.reset(seed=0)
    reference.reset(seed=0)
    np.testing.assert_array_equal(env.step(action)[0], reference.step(_push(1.0))[0])


def test_a_refused_action_leaves_the_world_as_it_was():
    env = _cart()
    before, _ = env.reset(seed=0)
    with pytest.raises(ValueError, match="finite"):
        env.step(_push(np.nan))
    after, *_ = env.step(_push(0.0))
    np.testing.assert_array_equal(after, before)


def test_a_world_that_diverges_ends_its_episode_at_the_highest_cost():
    env = _cart()
    env.reset(seed=0)
    last, *_ = env.step(_push(0.5))
    env.world.speed = float("nan")  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.warns(RuntimeWarning, match="left the finite numbers"):
        observation, reward, terminated, truncated, info = env.step(_push(0.5))
    np.testing.assert_array_equal(observation, last)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["diverged"]
    assert info["cost"] == info["cost_diverged"] == env.description.max_cost
    assert info["cost_speeding"] == 0.0
    assert env.diverged_worlds == 1
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(_push(0.0))
    env.reset()
    assert not env.step(_push(0.0))[4]["diverged"]
    assert env.diverged_worlds == 1


def test_returned_observations_are_the_callers_to_change():
    env = _cart()
    first, _ = env.reset(seed=0)
    first[:] = 99.0
    env.world.speed = float("nan")  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.warns(RuntimeWarning, match="finite"):
        observation, *_ = env.step(_push(0.0))
    assert observation[0] != 99.0


def test_seeds_choose_the_scene():
    env = _cart()
    first, again, other = (env.reset(seed=seed)[0][0] for seed in (3, 3, 4))
    assert first == again != other


def test_reset_options_are_not_ignored_in_silence():
    with pytest.raises(ValueError, match="no reset options"):
        _cart().reset(options={"goal": 1})


def test_pictures_come_only_when_asked_for():
    env = _cart(render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    assert picture is not None
    assert picture.dtype == np.uint8
    blind = _cart()
    blind.reset(seed=0)
    with pytest.warns(UserWarning, match="no render_mode"):
        assert blind.render() is None


def test_importing_ashore_is_enough_for_gymnasium_and_starts_no_engine():
    program = (
        "import sys, gymnasium, ashore\n"
        "print('ashore/PointGoal2-v0' in gymnasium.registry, 'ashore/Platoon-v0' in gymnasium.registry,"
        " 'jax' in sys.modules, 'mujoco' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["True", "True", "False", "False"]
