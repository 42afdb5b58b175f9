"""Two engines, two transcriptions, one task: our formulas in float32 against C MuJoCo in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.compilation import jit

from ashore.environments.base import CStep
from ashore.environments.platoon import PRESETS, Platoon, PlatoonCWorld, PlatoonParameters, fvd_action
from ashore.environments.platoon.picture import HEIGHT, WIDTH
from ashore.types import Array, StepResult

DECISIONS = 100
WORLDS = 6


@pytest.fixture(scope="session")
def together(task: Platoon) -> tuple:
    """Results and motion of the C worlds [world][decision], the worlds, and JAX's [decision, world], same starts."""
    generator = np.random.default_rng(11)
    low = (0.8, 0.3, 1.0, 0.2, 1.0, 0.3)
    high = (1.2, 1.0, 2.5, 1.0, 2.0, 1.0)
    scales = generator.uniform(low, high, (WORLDS, 6)).astype(np.float32)
    # Pedals that are held for half a second, so that the cars reach standstill, high speed and each other.
    pedals = np.repeat(generator.uniform(-1, 1, (DECISIONS // 10, WORLDS, 1)), 10, axis=0).astype(np.float32)
    parameters = PlatoonParameters(*jnp.asarray(scales.T))

    @jit
    def run(keys: Array, actions: Array) -> tuple[Array, StepResult, dict[str, Array]]:
        first = jax.vmap(task.reset)(keys, parameters).state
        final, results = jax.lax.scan(
            lambda state, action: (lambda result: (result.state, result))(
                jax.vmap(task.step)(state, action, parameters)
            ),
            first,
            actions,
        )
        return first.window, results, jax.vmap(task.episode_metrics)(final)

    windows, results, figures = jax.tree.map(
        np.asarray, run(jax.random.split(jax.random.key(5), WORLDS), jnp.asarray(pedals))
    )
    worlds = [PlatoonCWorld(task.config, PlatoonParameters(*row)) for row in scales]
    again: list[list[CStep]] = []
    motion: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in worlds]
    for index, world in enumerate(worlds):
        world.start(int(windows[index]))
        rows: list[CStep] = []
        for pedal in pedals[:, index]:
            rows.append(world.step(pedal))
            motion[index].append((world.position, world.speed))
        again.append(rows)
    return again, motion, worlds, results, figures


def test_positions_and_speeds_agree(together: tuple) -> None:
    _, motion, _, results, _ = together
    for world in range(WORLDS):
        positions = np.array([position - position[2] for position, _ in motion[world]])
        speeds = np.array([speed for _, speed in motion[world]])
        # Measured: 6e-4 m and 8e-5 m/s. A position of 50 m is rounded by up to 2e-6 m in each of 500 physics steps.
        np.testing.assert_allclose(results.state.position[:, world], positions, atol=2e-3)
        np.testing.assert_allclose(results.state.speed[:, world], speeds, atol=3e-4)


def test_observations_rewards_and_costs_agree(together: tuple) -> None:
    again, _, _, results, _ = together
    for world in range(WORLDS):
        for decision, result in enumerate(again[world]):
            # Measured: 2e-3 in the observation (the jerk of a sudden stop), 3e-4 in the reward (relative), 5e-5 in
            # the cost.
            seen = results.observation[decision, world]
            np.testing.assert_allclose(seen, result.observation, atol=5e-3)
            assert results.reward[decision, world] == pytest.approx(result.reward, abs=2e-3, rel=1e-3)
            assert results.cost[decision, world] == pytest.approx(result.cost, abs=1e-4)
            for name, term in result.cost_terms.items():
                assert results.cost_terms[name][decision, world] == pytest.approx(term, abs=1e-4)
    assert (results.cost > 0.05).any()
    assert (results.state.speed[:, :, 2] == 0).any()


def test_episode_metrics_agree(together: tuple) -> None:
    _, _, worlds, _, figures = together
    for index, world in enumerate(worlds):
        for name, figure in world.episode_metrics().items():
            assert figures[name][index] == pytest.approx(figure, rel=1e-3, abs=1e-4), name


def test_derivatives_are_those_of_the_engine(task: Platoon) -> None:
    """What one push of the pedal does to the reward and the cost of all that follows, against differences in C."""
    parameters = PlatoonParameters(*(np.float32(x) for x in (1.1, 0.4, 1.7, 0.6, 1.3, 0.8)))
    pushed, step = 5, 1e-3
    pedals = np.where(np.arange(DECISIONS) < 40, 0.2, -0.05).astype(np.float32)

    def in_jax(push: Array, key: Array) -> tuple[Array, Array]:
        def decision(state, pedal):
            result = task.step(state, pedal[None], PlatoonParameters(*map(jnp.asarray, parameters)))
            return result.state, (result.reward, result.cost)

        state = task.reset(key, PlatoonParameters(*map(jnp.asarray, parameters))).state
        _, (rewards, costs) = jax.lax.scan(decision, state, jnp.asarray(pedals).at[pushed].add(push))
        return jnp.sum(rewards), jnp.sum(costs)

    key = jax.random.key(5)
    window = int(task.reset(key, PlatoonParameters(*map(jnp.asarray, parameters))).state.window)

    def in_c(push: float) -> np.ndarray:
        world = PlatoonCWorld(task.config, parameters)
        world.start(window)
        steps = [world.step(np.array([pedal + push * (number == pushed)])) for number, pedal in enumerate(pedals)]
        return np.array([sum(step.reward for step in steps), sum(step.cost for step in steps)])

    differences = (in_c(step) - in_c(-step)) / (2 * step)
    assert abs(differences).min() > 0.01
    derivatives = jit(jax.jacfwd(in_jax))(jnp.float32(0.0), key)
    np.testing.assert_allclose(derivatives, differences, rtol=5e-3)
    np.testing.assert_allclose(derivatives, jit(jax.jacrev(in_jax))(jnp.float32(0.0), key), rtol=1e-3)


def test_the_dynamics_features_tell_what_the_pedal_will_do() -> None:
    # In one car the change of acceleration is linear in speed squared, acceleration, jerk and the two pedals, up to
    # the physics step by which MuJoCo's force trails its filter. Measured: 0.997 of the variance explained; with the
    # decision's mean acceleration in place of its last, 0.59.
    world = PlatoonCWorld(None, PlatoonParameters(*(np.float32(x) for x in (1.1, 0.4, 1.7, 0.6, 1.3, 0.8))))
    generator = np.random.default_rng(0)
    features = world.description.dynamics_features
    seen = world.start(500)
    rows, changes = [], []
    for _ in range(600):
        driven = fvd_action(seen, PlatoonParameters(*np.ones(6)), world.config, np)
        pedal = np.clip(driven + 0.3 * generator.standard_normal(1), -1, 1)
        following = world.step(pedal).observation
        speed, acceleration, jerk = seen[list(features)]
        if min(speed, following[0]) > 0.05 and abs(jerk) < 3:
            rows.append([1, speed**2, acceleration, jerk, max(pedal[0], 0), min(pedal[0], 0)])
            changes.append(following[1] - acceleration)
        seen = following
    table, change = np.array(rows), np.array(changes)
    assert len(table) > 300
    residual = change - table @ np.linalg.lstsq(table, change)[0]
    assert 1 - residual.var() / change.var() > 0.99


def test_first_observation_and_reset() -> None:
    world = PlatoonCWorld()
    first = world.reset(np.random.default_rng(0))
    assert first.dtype == np.float32
    again = world.reset(np.random.default_rng(0))
    np.testing.assert_array_equal(first, again)
    starts = [world.reset(np.random.default_rng(seed))[0] for seed in range(20)]
    assert len(set(starts)) > 10
    low, high = world.description.observation_bounds
    assert ((first >= low) & (first <= high)).all()
    with pytest.raises(ValueError, match="before its first decision"):
        world.episode_metrics()


def test_the_leader_covers_the_distance_of_its_cycle() -> None:
    world = PlatoonCWorld()
    world.start(100)
    origin = world.position[0]
    for _ in range(200):
        world.step(np.zeros(1))
    seconds = np.arange(0.0, 10.01, 0.01)
    assert world.position[0] - origin == pytest.approx(
        np.trapezoid(world.traces.speeds(100, seconds), seconds), abs=1e-9
    )


def test_highway_traffic_is_fast_and_keeps_apart() -> None:
    config = PRESETS["P-highway"]
    world = PlatoonCWorld(config)
    hwfet_cruise = next(
        index for index, window in enumerate(world.traces.windows) if (window.cycle, window.start) == (0, 300)
    )
    world.start(hwfet_cruise)
    for _ in range(400):
        world.step(np.full(1, 0.08))
    # Human drivers follow at the cycle's 20 to 25 m/s, which city drivers (14.66 m/s) could not.
    assert world.speed[1] > 18.0
    assert world.position[0] - world.position[1] - 5.0 > 10.0


def test_the_picture_shows_the_platoon() -> None:
    world = PlatoonCWorld()
    world.start(60)
    still = world.picture()
    assert still.shape == (HEIGHT, WIDTH, 3)
    assert still.dtype == np.uint8
    for _ in range(100):
        world.step(np.full(1, 0.3))
    moved = world.picture()
    assert (moved != still).any(axis=2).mean() > 0.02
    # The ego's paint is found around the column it is drawn at, and the road reaches from edge to edge.
    ego = (moved == (14, 138, 148)).all(axis=2)
    assert ego[150:200, 530:590].sum() > 100
    assert (moved[200, [0, WIDTH - 1]] == (74, 80, 88)).all()
