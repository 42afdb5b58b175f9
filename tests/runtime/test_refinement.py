"""Algorithm 1 where its answer is known: linear costs, hand-computed steps, and promises that hold for any critics."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ashore_runtime.refinement import Box, interpolation_weight, refine
from ashore_runtime.schema import Refinement
from volumes import examples

BOX = Box(np.full(2, -1.0, np.float32), np.full(2, 1.0, np.float32))


class Quadratic:
    """Q_r = r a - |a|^2 curve_r / 2,   Q_c = offset + c a + |a|^2 curve_c / 2; counts its evaluations."""

    def __init__(self, reward=(0.0, 0.0), cost=(0.0, 0.0), curve_r=0.0, curve_c=0.0, offset=0.0):
        self.r, self.c = np.array(reward, np.float32), np.array(cost, np.float32)
        self.curve_r, self.curve_c, self.offset = np.float32(curve_r), np.float32(curve_c), np.float32(offset)
        self.judged = []

    def cost(self, action):
        self.judged.append(action)
        return float(self.offset + self.c @ action + 0.5 * self.curve_c * action @ action)

    def cost_gradient(self, action):
        return self.c + self.curve_c * action

    def reward_gradient(self, action):
        return self.r - self.curve_r * action


def vector(*numbers):
    return np.array(numbers, np.float32)


def test_one_step_by_hand():
    # a_0 = (0.5, 0), Q_r = x, Q_c = 10 x, d = 3. Reward step: 0.5 + 0.01 (1 - 0) = 0.51. Cost step: 0.51 - 0.05 * 10 =
    # 0.01. Sent with w = 0.5: 0.5 + 0.5 (0.01 - 0.5) = 0.255, Q_c = 2.55 <= 3, so one step is enough.
    critics = Quadratic(reward=(1.0, 0.0), cost=(10.0, 0.0))
    for keep in ("best", "last"):
        found = refine(critics, vector(0.5, 0.0), 0.5, 3.0, BOX, Refinement(keep=keep))
        np.testing.assert_allclose(found.action, [0.255, 0.0], atol=1e-6)
        assert found.cost == pytest.approx(2.55, abs=1e-5)
        assert found.nominal_cost == pytest.approx(5.0) and found.steps == 1


def test_second_step_by_hand_feels_the_proximal_term():
    # Q_r = 0, Q_c = 2 x, d = -1.5, w = 1. Step 1: 0.5 - 0.05 * 2 = 0.4. Step 2: 0.4 - 0.01 * 2 (0.4 - 0.5) = 0.402,
    # then 0.302. Neither fits; the second costs less.
    critics = Quadratic(cost=(2.0, 0.0))
    found = refine(critics, vector(0.5, 0.0), 0.5, -1.5, BOX, Refinement(steps=2, weight="full"))
    np.testing.assert_allclose(found.action, [0.302, 0.0], atol=1e-6)
    assert found.steps == 2


def test_constrained_optimum():
    # max 0.4 y - |a - a_0|^2 over 10 x <= 3 from a_0 = (0.8, 0.2): y moves to 0.2 + 0.4 / 2 = 0.4, x to the edge 0.3.
    # Cost steps just longer than the pull back (0.01 * 2 * 0.5) reach the edge in about 200 small steps.
    critics = Quadratic(reward=(0.0, 0.4), cost=(10.0, 0.0))
    settings = Refinement(steps=400, cost_step=0.0102, variant="unit", weight="full")
    found = refine(critics, vector(0.8, 0.2), 0.9, 3.0, BOX, settings)
    np.testing.assert_allclose(found.action, [0.3, 0.4], atol=0.01)
    assert found.cost <= 3.0


def test_no_risk_returns_the_nominal_action_bit_for_bit_and_asks_nothing():
    critics = Quadratic(cost=(10.0, 0.0))
    nominal = vector(0.1, -0.7)
    for weight in ("eta", "full", "sqrt"):
        found = refine(critics, nominal, 0.0, -100.0, BOX, Refinement(weight=weight))
        assert found.action is nominal and np.isnan(found.cost) and not critics.judged


def test_a_nominal_action_that_fits_is_sent_as_it_is():
    nominal = vector(0.1, -0.7)
    found = refine(Quadratic(cost=(10.0, 0.0)), nominal, 0.5, 1.5, BOX, Refinement())
    assert found.action is nominal and found.cost == found.nominal_cost == pytest.approx(1.0) and found.steps == 0


def test_unit_variant_moves_by_the_step_size_whatever_the_gradient():
    for size in (1e-3, 1.0, 1e6):
        found = refine(
            Quadratic(cost=(0.6 * size, 0.8 * size)),
            vector(0.0, 0.0),
            0.5,
            -1e9,
            BOX,
            Refinement(steps=1, variant="unit", weight="full"),
        )
        np.testing.assert_allclose(found.action, [-0.03, -0.04], rtol=1e-5)


def test_weights():
    assert interpolation_weight("eta", 0.25) == 0.25
    assert interpolation_weight("sqrt", 0.25) == 0.5
    assert interpolation_weight("full", 0.25) == 1.0
    assert [interpolation_weight(kind, 0.0) for kind in ("eta", "sqrt", "full")] == [0.0] * 3


def test_as_printed_sends_the_last_iterate_even_when_it_is_worse():
    # Steps three times the slope jump over the valley of Q_c = x^2 at 0 to the other edge of the box.
    critics = Quadratic(curve_c=2.0)
    settings = Refinement(steps=1, cost_step=3.0, weight="full", reward_step=0.0)
    last = refine(critics, vector(0.5, 0.0), 0.5, 0.0, BOX, dataclasses.replace(settings, keep="last"))
    best = refine(critics, vector(0.5, 0.0), 0.5, 0.0, BOX, settings)
    assert last.action[0] == -1.0 and last.cost == pytest.approx(1.0)
    assert best.action[0] == 0.5 and best.cost == pytest.approx(0.25)


number = st.floats(-3.0, 3.0, width=32)
problems = st.builds(
    Quadratic,
    reward=st.tuples(number, number),
    cost=st.tuples(number, number),
    curve_r=st.floats(0.0, 3.0, width=32),
    curve_c=st.floats(-3.0, 3.0, width=32),
)
choices = st.builds(
    Refinement,
    steps=st.integers(0, 8),
    reward_step=st.floats(0.0, 1.0),
    cost_step=st.floats(0.0, 1.0),
    variant=st.sampled_from(["paper", "unit"]),
    weight=st.sampled_from(["eta", "full", "sqrt"]),
    keep=st.sampled_from(["best", "last"]),
)
starts = st.tuples(*2 * [st.floats(-1.0, 1.0, width=32)]).map(lambda pair: vector(*pair))


@examples(200, 10_000)
@given(problems, choices, starts, st.floats(0.0, 0.95), number)
def test_what_is_sent_is_inside_the_box_and_was_judged(critics, chosen, nominal, eta, threshold):
    found = refine(critics, nominal, eta, threshold, BOX, chosen)
    assert (found.action >= BOX.low).all() and (found.action <= BOX.high).all()
    if interpolation_weight(chosen.weight, eta) > 0.0:
        assert any(np.array_equal(found.action, action) for action in critics.judged)
        assert found.cost == critics.cost(found.action)


@examples(200, 10_000)
@given(problems, choices, starts, st.floats(0.01, 0.95), number)
def test_more_time_never_gives_a_worse_answer(critics, chosen, nominal, eta, threshold):
    # A clock that allows k steps, for every k: the value can only get better, and a fit stays a fit.
    chosen = dataclasses.replace(chosen, keep="best")
    costs = [refine(critics, nominal, eta, threshold, BOX, chosen, lambda done, k=k: done < k).cost for k in range(9)]
    assert all(later <= earlier for earlier, later in itertools.pairwise(costs))
