"""The batched task: its contract with jit, cars that never reverse, and the leader's replay."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.compilation import jit

from ashore.environments.platoon import PRESETS, SHIFTS, Platoon, PlatoonConfig, PlatoonParameters, PlatoonState
from ashore.environments.randomisation import from_names
from ashore.environments.rollout import rollout, start
from ashore.types import Array, StepResult

TRACES = []


@functools.partial(jit, static_argnums=0)
def step_many(task: Platoon, state: PlatoonState, action: Array, parameters: PlatoonParameters) -> StepResult:
    TRACES.append(task)
    return jax.vmap(task.step)(state, action, parameters)


def batch(parameters: PlatoonParameters, count: int) -> PlatoonParameters:
    return jax.tree.map(lambda value: jnp.full(count, value), parameters)


@pytest.fixture(scope="session")
def eight(task: Platoon, nominal: PlatoonParameters) -> PlatoonState:
    reset = jit(jax.vmap(task.reset))
    return reset(jax.random.split(jax.random.key(0), 8), batch(nominal, 8)).state


def avals(tree: object) -> list[object]:
    return [jax.typeof(leaf) for leaf in jax.tree.leaves(tree)]


def test_equal_configurations_are_one_task() -> None:
    assert Platoon() == Platoon(PlatoonConfig())
    assert hash(Platoon()) == hash(Platoon(PlatoonConfig()))
    assert Platoon(PRESETS["P-match"]) != Platoon()
    with pytest.raises(dataclasses.FrozenInstanceError):
        Platoon().config = PRESETS["P-match"]  # pyright: ignore[reportAttributeAccessIssue]


def test_one_trace_serves_every_car_and_every_step(
    task: Platoon, eight: PlatoonState, nominal: PlatoonParameters
) -> None:
    TRACES.clear()
    other = batch(from_names(SHIFTS["nominal"], PlatoonParameters, {"mass": 1.2, "brake": 0.2}), 8)
    actions = jnp.zeros((8, 1), jnp.float32)
    once = step_many(task, eight, actions, batch(nominal, 8))
    twice = step_many(task, once.state, actions, other)
    step_many(Platoon(), twice.state, actions, other)
    assert len(TRACES) == 1
    # No weak types, no changed shapes: a state that came out of a step can be put in where a fresh one was.
    assert avals(eight) == avals(once.state) == avals(twice.state)
    assert not any(jax.typeof(leaf).weak_type for leaf in jax.tree.leaves(once))
    assert once.observation.dtype == once.reward.dtype == once.cost.dtype == jnp.float32


def test_terms_sum_and_nothing_terminates(task: Platoon, eight: PlatoonState, nominal: PlatoonParameters) -> None:
    state = eight
    for decision in range(40):
        action = jnp.full((8, 1), 1.0 if decision < 30 else -1.0, jnp.float32)
        result = step_many(task, state, action, batch(nominal, 8))
        state = result.state
        np.testing.assert_allclose(
            sum(np.asarray(t) for t in result.reward_terms.values()), result.reward, rtol=1e-5, atol=1e-6
        )
        np.testing.assert_allclose(sum(np.asarray(t) for t in result.cost_terms.values()), result.cost, rtol=1e-6)
        assert set(result.reward_terms) == {"closing", "speed", "acceleration", "jerk"}
        assert set(result.cost_terms) == {"front", "rear"}
        assert not result.terminated.any()
        assert not result.diverged.any()
    # Full throttle runs the ego into the car ahead; that is counted and does not end the episode.
    assert (jax.vmap(task.episode_metrics)(state)["collisions"] > 0).any()


def test_brakes_stop_a_car_and_never_reverse_it(task: Platoon, eight: PlatoonState, nominal: PlatoonParameters) -> None:
    speeds = jnp.array([0.0, 0.01, 0.3, 1.0, 3.0, 8.0, 15.0, 40.0], jnp.float32)
    state = eight._replace(speed=eight.speed.at[:, 2].set(speeds))
    full_brake = jnp.full((8, 1), -1.0, jnp.float32)
    rolled = []
    for _ in range(80):
        before = state
        state = step_many(task, state, full_brake, batch(nominal, 8)).state
        assert (state.speed >= 0).all()
        # The ego is the origin after every decision; the car behind shows how far the ego has moved.
        behind = state.position[:, 3] - before.position[:, 3]
        moved = 0.05 * (before.speed[:, 3] + state.speed[:, 3]) / 2 - behind
        rolled.append(np.asarray(moved))
    np.testing.assert_array_equal(state.speed[:, 2], 0.0)
    # Semi-implicit steps and the mean of two speeds differ by up to half of 0.05 s x 0.05 s x 6 m/s^2.
    assert np.min(rolled) > -0.01
    # Held at rest for the last second with full brake (18 m/s^2), a car that only had its speed clamped would creep
    # back by 0.01 s x 0.18 m/s in each of 100 physics steps: 0.18 m.
    assert np.sum(rolled[-20:], axis=0) == pytest.approx(np.zeros(8), abs=0.02)


def test_the_leader_replays_its_window(task: Platoon, eight: PlatoonState, nominal: PlatoonParameters) -> None:
    traces = task.config.traces()
    state = eight
    for _ in range(30):
        state = step_many(task, state, jnp.zeros((8, 1), jnp.float32), batch(nominal, 8)).state
    for world in range(8):
        expected = traces.speeds(int(state.window[world]), np.array([1.5]))
        assert float(state.speed[world, 0]) == pytest.approx(expected[0], abs=1e-5)


def test_past_its_window_the_leader_keeps_its_speed(
    task: Platoon, eight: PlatoonState, nominal: PlatoonParameters
) -> None:
    late = eight._replace(decision=jnp.full(8, task.config.decisions, jnp.int32))
    state = step_many(task, late, jnp.zeros((8, 1), jnp.float32), batch(nominal, 8)).state
    last = [task.config.traces().speeds(int(window), np.array([50.0]))[0] for window in state.window]
    np.testing.assert_allclose(state.speed[:, 0], last, atol=1e-5)


def test_a_start_in_equilibrium_is_quiet(task: Platoon, eight: PlatoonState, nominal: PlatoonParameters) -> None:
    # Nobody but the leader has a reason to change speed within the first decision; the engine already holds the ego.
    held = jnp.asarray(eight.activation[:, :1])
    state = step_many(task, eight, held, batch(nominal, 8)).state
    np.testing.assert_allclose(state.acceleration[:, 2:], 0.0, atol=2e-3)


def test_resets_draw_every_cycle(task: Platoon, nominal: PlatoonParameters) -> None:
    keys = jax.random.split(jax.random.key(1), 400)
    windows = jit(jax.vmap(lambda key: task.reset(key, nominal).state.window))(keys)
    traces = task.config.traces()
    assert {traces.windows[int(window)].cycle for window in windows} == {0, 1}
    assert len(set(windows.tolist())) > 300


def test_numbers_that_are_not_finite_are_reported(
    task: Platoon, eight: PlatoonState, nominal: PlatoonParameters
) -> None:
    action = jnp.zeros((8, 1), jnp.float32).at[3].set(jnp.nan)
    result = step_many(task, eight, action, batch(nominal, 8))
    assert result.diverged.tolist() == [False] * 3 + [True] + [False] * 4


def test_actions_beyond_the_pedals_are_full_pedals(
    task: Platoon, eight: PlatoonState, nominal: PlatoonParameters
) -> None:
    results = [
        step_many(task, eight, jnp.full((8, 1), pedal, jnp.float32), batch(nominal, 8)).state.speed
        for pedal in (1.0, 7.0, -1.0, -7.0)
    ]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[2], results[3])
    with pytest.raises(ValueError, match=r"shape \(1,\), not \(2,\)"):
        task.step(jax.tree.map(lambda leaf: leaf[0], eight), jnp.zeros(2), nominal)


def test_an_episode_in_the_shared_rollout(nominal: PlatoonParameters) -> None:
    short = Platoon(PlatoonConfig(decisions=20))
    parameters = batch(nominal, 4)

    @jit
    def run(key: Array) -> tuple[Array, Array, Array]:
        worlds = start(short, key, parameters)
        worlds, transitions, finished = rollout(
            short, lambda observation, key: jnp.zeros(1, jnp.float32), worlds, parameters, key, 41
        )
        return finished.done, transitions.observation, worlds.decision

    done, observations, decision = run(jax.random.key(2))
    assert np.flatnonzero(done.all(axis=1)).tolist() == [19, 39]
    assert decision.tolist() == [1] * 4
    low, high = short.description.observation_bounds
    assert (observations >= low[None, None]).all()
    assert (observations <= high[None, None]).all()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"cycles": ()}, "at least one drive cycle"),
        ({"followers": 0}, "followers of at least 1, not 0"),
        ({"control_period": 0.0}, "control_period must be a positive number, not 0.0"),
        ({"k": -1.0}, "k must not be negative, as -1.0 is"),
        ({"starting_gap": "wide"}, "'equilibrium' or a positive number of metres, not 'wide'"),
        ({"starting_gap": -2.0}, "not -2.0"),
        ({"cost_cap": float("nan")}, "cost_cap must be a positive number, not nan"),
    ],
)
def test_bad_configurations(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        dataclasses.replace(PlatoonConfig(), **changes)


def test_budget_and_description(task: Platoon) -> None:
    description = task.description
    # 20 per 1000 decisions.
    assert description.budget.per_decision == pytest.approx(0.02)
    assert description.budget.discounted == pytest.approx(2.0)
    assert (description.action_repeat, description.max_cost, description.control_period) == (1, 2.0, 0.05)
    assert [description.observation[index].name for index in description.dynamics_features] == [
        "ego_speed",
        "ego_acceleration",
        "ego_jerk",
    ]
    assert len(description.observation) == 9
    assert tuple(description.shifts) == ("nominal", "train", "deploy")
