"""The multiplier: ten steps by hand, projection, and what the literal form does to a lagging plant."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.learning import lagrangian
from ashore.learning.lagrangian import PIDConfig


def trace(config, costs, budget):
    state, history = lagrangian.init(config), []
    for cost in costs:
        state = lagrangian.update(config, state, jnp.float32(cost), budget)
        history.append(state)
    return history


COSTS = [4.0, 2.0, 0.0, 2.0, 6.0, 8.0, 2.0, 0.0, 0.0, 10.0]
"""With budget 2: relative costs J/d = 2, 1, 0, 1, 3, 4, 1, 0, 0, 5 and errors e = 1, 0, -1, 0, 2, 3, 0, -1, -1, 4."""


def test_positional_ten_steps_by_hand():
    # Kp 1, Ki 1/2, Kd 2, both smoothings 1/2, cap 6.
    config = PIDConfig(1.0, 0.5, 2.0, error_smoothing=0.5, cost_smoothing=0.5, cap=6.0)
    # I = max(0, I + e/2):        .5, .5, 0, 0, 1, 2.5, 2.5, 2, 1.5, 3.5
    # P = P/2 + e/2:              .5, .25, -.375, -.1875, .90625, 1.953125, .9765625, -.01171875, -.505859375,
    #                             1.7470703125
    # S = S/2 + (J/d)/2 from 2:   2, 1.5, .75, .875, 1.9375, 2.96875, 1.984375, .9921875, .49609375, 2.748046875
    # rise of S, if any:          0, 0, 0, .125, 1.0625, 1.03125, 0, 0, 0, 2.251953125
    # lambda = P + I + 2 rise, in [0, 6]; for instance step 5: 0.90625 + 1 + 2.125 = 4.03125; step 6:
    # 1.953125 + 2.5 + 2.0625 = 6.515625, capped; step 3: -0.375, projected.
    by_hand = [1.0, 0.75, 0.0, 0.0625, 4.03125, 6.0, 3.4765625, 1.98828125, 0.994140625, 6.0]
    history = trace(config, COSTS, 2.0)
    np.testing.assert_allclose([state.multiplier for state in history], by_hand, rtol=1e-6)
    integral = [0.5, 0.5, 0.0, 0.0, 1.0, 2.5, 2.5, 2.0, 1.5, 3.5]
    np.testing.assert_allclose([state.integral for state in history], integral, rtol=1e-6)
    assert history[-1].updates.dtype == jnp.int32
    assert history[-1].updates == 10


def test_incremental_four_steps_by_hand():
    # Same gains; errors 1, 0, -1, 0 with sums 1, 1, 0, 0:
    #   1 + 0.5 * 1 + 0           = 1.5  -> 1.5
    #   0 + 0.5 * 1 + 2 * (0 - 1) = -1.5 -> 0
    #  -1 + 0.5 * 0 + 2 * (-1-0)  = -3   -> 0 (projected)
    #   0 + 0.5 * 0 + 2 * (0 + 1) = 2    -> 2
    config = PIDConfig(1.0, 0.5, 2.0, form="incremental")
    np.testing.assert_allclose([s.multiplier for s in trace(config, COSTS[:4], 2.0)], [1.5, 0.0, 0.0, 2.0], rtol=1e-6)


def test_units_cancel():
    # The error is relative: ten times the costs with ten times the budget is the same problem.
    plain = trace(PIDConfig(), COSTS, 2.0)
    scaled = trace(PIDConfig(), [10.0 * cost for cost in COSTS], 20.0)
    np.testing.assert_allclose([s.multiplier for s in plain], [s.multiplier for s in scaled], rtol=1e-5, atol=1e-7)


def test_integral_does_not_wind_up_while_safe():
    config = PIDConfig(proportional=0.0, integral=0.1, derivative=0.0)
    # A thousand safe measurements leave no debt: the next violation (e = 1) raises lambda at once, by Ki.
    history = trace(config, [0.0] * 50 + [2.0], 1.0)
    assert history[-2].multiplier == 0.0
    assert history[-1].multiplier == pytest.approx(0.1)


def test_starts_where_asked_and_never_beyond_the_cap():
    assert lagrangian.init(PIDConfig(initial=0.5)).multiplier == pytest.approx(0.5)
    held = trace(PIDConfig(initial=0.5), [1.0], 1.0)[-1]
    assert held.multiplier == pytest.approx(0.5)
    with pytest.raises(ValueError, match="between 0 and its cap"):
        PIDConfig(initial=200.0)
    with pytest.raises(ValueError, match="'positional' or 'incremental'"):
        PIDConfig(form="velocity")


@pytest.mark.parametrize(
    ("gains", "reported_incremental", "reported_positional"),
    [((0.1, 0.01, 0.01), 459.0, 14.0), ((0.1, 0.003, 0.001), 185.0, 5.9), ((0.05, 0.0005, 0.1), 45.0, 4.7)],
)
def test_literal_form_overshoots_a_lagging_plant(gains, reported_incremental, reported_positional):
    # Cost follows 100 / (1 + lambda) with a lag of twenty steps, starting at 100; the budget 25 is met at lambda = 3.
    # Gains are for the plain error J - 25, hence 25 times as large for the relative one.
    def peak_and_end(form):
        config = PIDConfig(*(25.0 * gain for gain in gains), form=form, cap=1e6)

        def step(carry, _):
            cost, state = carry
            state = lagrangian.update(config, state, cost, 25.0)
            cost = cost + 0.05 * (100.0 / (1.0 + state.multiplier) - cost)
            return (cost, state), (state.multiplier, cost)

        _, (multipliers, costs) = jax.lax.scan(step, (jnp.float32(100.0), lagrangian.init(config)), None, length=2000)
        return float(jnp.max(multipliers)), float(jnp.mean(costs[-500:]))

    positional, settled = peak_and_end("positional")
    incremental, _ = peak_and_end("incremental")
    assert settled == pytest.approx(25.0, rel=0.02)
    assert incremental > 10.0 * positional
    assert incremental == pytest.approx(reported_incremental, rel=0.15)
    assert 2.95 < positional < 1.1 * reported_positional


def test_error_limit_keeps_an_untrained_policy_from_winding_the_integral_up():
    # Cost 31 times the budget is an error of 30; with a limit of 1 each step adds Ki * 1 and not Ki * 30.
    limited = PIDConfig(proportional=0.0, integral=0.01, derivative=0.0, error_limit=1.0)
    state = lagrangian.init(limited)
    for _ in range(10):
        state = lagrangian.update(limited, state, jnp.float32(31.0), 1.0)
    assert state.multiplier == pytest.approx(0.1, rel=1e-6)
    # Below the budget nothing is limited: an error of -1 takes one step back.
    state = lagrangian.update(limited, state, jnp.float32(0.0), 1.0)
    assert state.multiplier == pytest.approx(0.09, rel=1e-6)
