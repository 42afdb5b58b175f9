import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from ashore.environments.gymnasium_adapter import AshoreEnv
from ashore.environments.gymnasium_vector import AshoreVectorEnv
from toy_world import CARTS, PERIOD

WORLDS = 4


def _carts(**options) -> AshoreVectorEnv:
    return AshoreVectorEnv(CARTS, num_envs=WORLDS, **options)


def _push(force: float) -> np.ndarray:
    return np.full((WORLDS, 1), force, np.float32)


def test_make_vec_gives_the_batch_natively():
    gymnasium.register(
        "toy/Carts-v0", entry_point=AshoreEnv, vector_entry_point=AshoreVectorEnv, kwargs={"task": CARTS}
    )
    try:
        envs = gymnasium.make_vec("toy/Carts-v0", num_envs=WORLDS, mass=2.0)
    finally:
        del gymnasium.registry["toy/Carts-v0"]
    assert isinstance(envs, AshoreVectorEnv)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert envs.observation_space.shape == (WORLDS, 2)
    envs.reset(seed=0)
    observation, *_ = envs.step(_push(1.0))
    np.testing.assert_allclose(observation[:, 1], PERIOD / 2.0, rtol=1e-6)


def test_values_are_numpy_of_the_right_kind():
    envs = _carts()
    first, info = envs.reset(seed=0)
    observation, reward, terminated, truncated, step_info = envs.step(envs.action_space.sample())
    for values in (first, observation, reward, terminated, truncated, info["cost"], step_info["cost"]):
        assert isinstance(values, np.ndarray)
        assert len(values) == WORLDS
    assert first in envs.observation_space
    assert observation in envs.observation_space
    assert terminated.dtype == truncated.dtype == bool


def test_the_batch_moves_like_the_single_world():
    envs = _carts(thrust=0.5)
    single = AshoreEnv(CARTS, thrust=0.5)
    single.reset(seed=0)
    envs.reset(seed=0)
    for _ in range(15):
        batch_observation, batch_reward, *_, batch_info = envs.step(_push(0.8))
        observation, reward, *_, info = single.step(np.array([0.8], np.float32))
        np.testing.assert_allclose(batch_observation[:, 1], observation[1], rtol=1e-5)
        np.testing.assert_allclose(batch_reward, reward, rtol=1e-4, atol=1e-6)
        for name in ("cost", "cost_speeding", "cost_off_track", "cost_diverged", "reward_effort", "reward_progress"):
            np.testing.assert_allclose(batch_info[name], info[name], rtol=1e-4, atol=1e-6)


def test_a_finished_episode_leaves_its_end_in_the_info():
    envs = _carts()
    first, _ = envs.reset(seed=0)
    for _ in range(19):
        *_, info = envs.step(_push(1.0))
        assert "final_obs" not in info
    observation, _, terminated, truncated, info = envs.step(_push(1.0))
    assert truncated.all()
    assert not terminated.any()
    # v_20 = 2, x_20 = x_0 + h^2 * 20 * 21 / 2 = x_0 + 2.1; the observation is the next start, at rest.
    np.testing.assert_allclose(
        np.stack(info["final_obs"]), np.stack([first[:, 0] + 2.1, np.full(WORLDS, 2.0)], 1), 1e-5
    )
    np.testing.assert_array_equal(observation[:, 1], np.zeros(WORLDS))
    assert info["_final_obs"].all()
    np.testing.assert_allclose(info["final_info"]["metric_distance"], 2.1, rtol=1e-5)
    assert info["final_info"]["_metric_distance"].all()


def test_the_cost_of_the_last_step_is_not_lost_to_the_reset():
    envs = _carts()
    envs.reset(seed=0)
    total = sum(envs.step(_push(1.0))[4]["cost"] for _ in range(20))
    np.testing.assert_array_equal(total, np.full(WORLDS, 10.0))


def test_only_worlds_that_ended_are_in_the_final_info():
    envs = _carts(decisions=1000, mass=[0.5, 1.0, 1.0, 1.0])
    envs.reset(seed=0)
    while True:
        _, _, terminated, _, info = envs.step(_push(1.0))
        if terminated.any():
            break
    assert terminated[0]
    np.testing.assert_array_equal(info["_final_obs"], terminated)
    assert [last is not None for last in info["final_obs"]] == terminated.tolist()
    assert (info["final_info"]["metric_distance"][~terminated] == 0.0).all()


def test_gymnasiums_statistics_wrapper_understands_it():
    envs = RecordEpisodeStatistics(_carts())
    envs.reset(seed=0)
    for _ in range(20):
        *_, info = envs.step(_push(0.0))
    np.testing.assert_array_equal(info["episode"]["l"], np.full(WORLDS, 20))


def test_every_world_can_have_its_own_physics():
    envs = _carts(parameters={"mass": np.array([0.5, 1.0, 2.0, 4.0])})
    envs.reset(seed=0)
    observation, *_ = envs.step(_push(1.0))
    np.testing.assert_allclose(observation[:, 1], PERIOD / np.array([0.5, 1.0, 2.0, 4.0]), rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"mass": [1.0, 2.0]}, "one number or 4"),
        ({"mass": [1.0, 2.0, 3.0, np.nan]}, "'mass' must be a finite number"),
        ({"mas": 1.0}, "did you mean 'mass'"),
        ({"render_mode": "rgb_array"}, "draws no pictures"),
    ],
)
def test_what_cannot_be_built_is_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        _carts(**options)


def test_bad_actions_are_refused_at_the_edge():
    envs = _carts()
    envs.reset(seed=0)
    for action, complaint in (
        (np.full((WORLDS, 1), np.nan), "finite"),
        (np.zeros((WORLDS + 1, 1)), r"must have shape \(4, 1\)"),
        (_push(2.0), "'push' is 2, outside"),
    ):
        with pytest.raises(ValueError, match=complaint):
            envs.step(action)


def test_a_world_that_diverges_is_reset_counted_and_reported():
    # The first world's speed after one decision would be 0.1 * 3e38 / 0.01, which float32 cannot hold.
    envs = _carts(thrust=[3e38, 0.0, 0.0, 0.0], mass=[0.01, 1.0, 1.0, 1.0])
    envs.reset(seed=0)
    with pytest.warns(RuntimeWarning, match="1 world"):
        observation, reward, terminated, truncated, info = envs.step(_push(1.0))
    np.testing.assert_array_equal(info["diverged"], [True, False, False, False])
    np.testing.assert_array_equal(truncated, [True, False, False, False])
    np.testing.assert_array_equal(info["cost_diverged"], [2.0, 0.0, 0.0, 0.0])
    assert info["cost"][0] == envs.description.max_cost
    assert reward[0] == 0.0
    assert not terminated.any()
    assert np.isfinite(observation).all()
    assert envs.diverged_worlds == 1


def test_seeds_choose_the_scenes_and_worlds_differ():
    envs = _carts()
    first, again, other = (envs.reset(seed=seed)[0] for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len(np.unique(first[:, 0])) == WORLDS


def test_step_before_reset_is_refused():
    with pytest.raises(gymnasium.error.ResetNeeded):
        _carts().step(_push(0.0))
