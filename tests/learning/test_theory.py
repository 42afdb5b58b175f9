"""What the paper proves about training, on problems small enough to compute exactly."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from ashore.learning.losses import td_target

STATES, ACTIONS, LATENTS, DISCOUNT = 3, 2, 2, 0.9
GENERATOR = np.random.default_rng(0)
TRANSITIONS = GENERATOR.dirichlet(np.ones(STATES), (LATENTS, STATES, ACTIONS))
SIGNALS = {
    "reward": GENERATOR.normal(size=(LATENTS, STATES, ACTIONS)),
    "cost": GENERATOR.integers(0, 2, (LATENTS, STATES, ACTIONS)).astype(float),
}
POLICY = GENERATOR.integers(0, ACTIONS, (LATENTS, STATES))
"""The action of each latent and state: pi(s, z)."""


def operator(signal, latent, distributions, transitions):
    """T^{pi,z}: at every (s, a) the mixture over s' of signal + gamma Z(s', pi(s', z), z), as weighted atoms.

    The atoms come from the very function that makes the critics' targets.
    """
    result = {}
    for state, action in itertools.product(range(STATES), range(ACTIONS)):
        values, weights = [], []
        for following in range(STATES):
            atoms, mass = distributions[following, POLICY[latent, following]]
            here = jnp.float32(signal[latent, state, action])
            values.append(np.asarray(td_target(here, jnp.float32(DISCOUNT), jnp.asarray(atoms, jnp.float32))))
            weights.append(transitions[latent, state, action, following] * mass)
        result[state, action] = (np.concatenate(values).astype(float), np.concatenate(weights))
    return result


def wasserstein(first, second, order):
    """W_p of two weighted sets of atoms: the L_p distance of their quantile functions, exactly."""
    sorted_values, levels = [], []
    for values, weights in (first, second):
        by_value = np.argsort(values)
        sorted_values.append(values[by_value])
        levels.append(np.cumsum(weights[by_value] / weights.sum()))
    edges = np.union1d(*levels)
    widths = np.diff(edges, prepend=0.0)
    middles = edges - 0.5 * widths
    inverse = [
        v[np.minimum(np.searchsorted(lv, middles), len(v) - 1)] for v, lv in zip(sorted_values, levels, strict=True)
    ]
    return (np.sum(widths * np.abs(inverse[0] - inverse[1]) ** order)) ** (1.0 / order)


def distance(first, second, order):
    return max(wasserstein(first[key], second[key], order) for key in first)


def random_distributions(seed, atoms=6):
    generator = np.random.default_rng(seed)
    return {
        (s, a): (10.0 * generator.normal(size=atoms), generator.dirichlet(np.ones(atoms)))
        for s, a in itertools.product(range(STATES), range(ACTIONS))
    }


def test_wasserstein_by_hand():
    # Half of the mass moves from 0 to 2, half from 0 to 4: W_1 = 3, W_2 = sqrt((4 + 16) / 2).
    point, pair = (np.zeros(1), np.ones(1)), (np.array([4.0, 2.0]), np.array([0.5, 0.5]))
    assert wasserstein(point, pair, 1) == pytest.approx(3.0)
    assert wasserstein(point, pair, 2) == pytest.approx(np.sqrt(10.0))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("kind", ["reward", "cost"])
@pytest.mark.parametrize("latent", range(LATENTS))
def test_operator_contracts_at_the_discount(kind, latent, order):
    # Lemma 4.1: d(T Z1, T Z2) <= gamma d(Z1, Z2) for every z, policy and signal.
    for seed in range(5):
        first, second = random_distributions(seed), random_distributions(100 + seed)
        after_first, after_second = (operator(SIGNALS[kind], latent, z, TRANSITIONS) for z in (first, second))
        assert distance(after_first, after_second, order) <= DISCOUNT * distance(first, second, order) * (1.0 + 1e-6)


def test_the_factor_is_the_discount_and_no_better():
    # Shifting every atom by 2 shifts every target by exactly 0.9 * 2.
    first = random_distributions(7)
    shifted = {key: (values + 2.0, weights) for key, (values, weights) in first.items()}
    after, after_shifted = (operator(SIGNALS["cost"], 0, z, TRANSITIONS) for z in (first, shifted))
    assert distance(after, after_shifted, 1) == pytest.approx(1.8, rel=1e-5)


def test_iterates_reach_the_latent_s_own_fixed_point_geometrically():
    # With certain transitions the fixed point is one atom at the discounted sum, (I - gamma P)^{-1} signal.
    certain = np.eye(STATES)[GENERATOR.integers(0, STATES, (LATENTS, STATES, ACTIONS))]
    fixed_points = []
    for latent in range(LATENTS):
        rows = [(s, a) for s in range(STATES) for a in range(ACTIONS)]
        moves = np.zeros((len(rows), len(rows)))
        for i, (s, a) in enumerate(rows):
            following = int(np.argmax(certain[latent, s, a]))
            moves[i, rows.index((following, POLICY[latent, following]))] = 1.0
        signal = np.array([SIGNALS["reward"][latent, s, a] for s, a in rows])
        sums = np.linalg.solve(np.eye(len(rows)) - DISCOUNT * moves, signal)
        exact = {row: (np.array([value]), np.ones(1)) for row, value in zip(rows, sums, strict=True)}
        fixed_points.append(exact)
        current = random_distributions(3)
        start = distance(current, exact, 1)
        for k in range(1, 13):
            current = operator(SIGNALS["reward"], latent, current, certain)
            current = {key: (v[w > 0.0], w[w > 0.0]) for key, (v, w) in current.items()}
            assert distance(current, exact, 1) <= DISCOUNT**k * start * (1.0 + 1e-4)
    assert distance(fixed_points[0], fixed_points[1], 1) > 0.1


DELTA = 1.5
VALUES = np.array([[2.0 + DELTA, 2.0], [0.5, 0.5 + DELTA]])
"""Q_r at the shared state, [world, action]: the first action is better by delta in one world, worse in the other."""


def regrets(values, policy):
    """One-step regret in each world of a policy [action] or, told the world, [world, action]."""
    return values.max(axis=1) - np.sum(values * policy, axis=1)


def test_aliasing_costs_half_of_delta_without_context():
    # All stochastic policies on a grid of 1/1000: regrets (1 - p) delta and p delta, the larger one at least delta / 2.
    worst = []
    for p in np.linspace(0.0, 1.0, 1001):
        worst.append(regrets(VALUES, np.array([p, 1.0 - p])).max())
    assert min(worst) == pytest.approx(DELTA / 2.0)
    assert worst[500] == min(worst)
    np.testing.assert_allclose(regrets(VALUES, np.eye(2)), [0.0, 0.0])


def test_aliasing_bound_needs_that_there_is_no_third_action():
    # The proposition asks only that two such actions exist; its proof gives pi(a2) = 1 - pi(a1) and so assumes that
    # there are no others. With a third action as good as the best in both worlds nothing is lost without context.
    compromise = np.column_stack([VALUES, VALUES.max(axis=1)])
    np.testing.assert_allclose(regrets(compromise, np.array([0.0, 0.0, 1.0])), [0.0, 0.0])
