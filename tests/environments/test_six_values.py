import gymnasium
import numpy as np
import pytest

from ashore.environments.gymnasium_adapter import AshoreEnv
from ashore.environments.six_values import FromSixValues, MissingCost, ToSixValues
from toy_world import CARTS

ACTION = np.array([1.0], np.float32)


class _Steps(gymnasium.Env):
    """Answers every step with what it was told to answer."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def __init__(self, answer):
        self.answer = answer

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {"goal": 1}

    def step(self, action):
        return self.answer


def test_the_cost_stands_by_itself():
    env = ToSixValues(AshoreEnv(CARTS))
    env.reset(seed=0)
    for _ in range(11):
        observation, reward, cost, terminated, truncated, info = env.step(ACTION)
    assert cost == info["cost"] == 1.0
    assert not terminated
    assert not truncated
    assert observation.shape == (2,)
    assert reward == pytest.approx(0.1 * 1.1 - 0.1)


@pytest.mark.parametrize("info", [{}, {"costs": 1.0}, {"cost": None}, {"cost": float("nan")}, {"cost": "high"}])
def test_a_missing_cost_is_an_error_and_never_zero(info):
    env = ToSixValues(_Steps((np.zeros(1), 0.0, False, False, info)))
    with pytest.raises(MissingCost):
        env.step(ACTION)


def test_a_six_value_environment_brings_its_cost_into_the_info():
    env = FromSixValues(_Steps((np.zeros(1), 0.5, 0.25, False, True, {"goal": 2})))
    _, info = env.reset(seed=0)
    assert info == {"goal": 1, "cost": 0.0}
    _, reward, terminated, truncated, info = env.step(ACTION)
    assert (reward, terminated, truncated) == (0.5, False, True)
    assert info == {"goal": 2, "cost": 0.25}


@pytest.mark.parametrize(
    "answer",
    [
        (np.zeros(1), 0.5, False, False, {"cost": 1.0}),
        (np.zeros(1), 0.5, None, False, False, {}),
        (np.zeros(1), 0.5, float("nan"), False, False, {}),
    ],
)
def test_a_step_without_a_usable_cost_is_refused(answer):
    with pytest.raises(MissingCost):
        FromSixValues(_Steps(answer)).step(ACTION)


def test_there_and_back_again_changes_nothing():
    plain, wrapped = AshoreEnv(CARTS), FromSixValues(ToSixValues(AshoreEnv(CARTS)))
    np.testing.assert_array_equal(plain.reset(seed=1)[0], wrapped.reset(seed=1)[0])
    for _ in range(12):
        expected, actual = plain.step(ACTION), wrapped.step(ACTION)
        np.testing.assert_array_equal(expected[0], actual[0])
        assert expected[1:] == actual[1:]
