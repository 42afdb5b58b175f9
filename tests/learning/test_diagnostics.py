"""The curve epsilon(N) of the training log, against an encoder whose answer is known."""

import jax.numpy as jnp
import numpy as np
import pytest

from ashore.learning import diagnostics, normalisation, replay
from ashore.learning.replay import ReplayConfig
from ashore.networks.architecture import Architecture, Sizes
from ashore.types import Transition

NETS = Architecture(2, 1, (0,), Sizes(hidden=(), latent=1, context=8))


def linear_encoder():
    """Opinion of one transition: mean = its (normalised) action, precision = softplus(.) = 1."""
    inverse_softplus = float(np.log(np.e - 1.0))
    places = NETS.encoder.inputs
    kernel = jnp.zeros((places, 2)).at[1, 0].set(1.0)
    return {"encoder": {"output": {"kernel": kernel, "bias": jnp.array([0.0, inverse_softplus])}}}


def test_curve_by_hand():
    # One task with the actions 1, 0, 0, 0, 0, 0, 0, 0. The posterior mean after N of them is 1 / (1 + N): the sum of
    # the actions over the prior's precision plus N. At the end it is 1/9; the distances are |0 - 1/9|, |1/2 - 1/9|,
    # |1/5 - 1/9|, and zero for counts beyond the context.
    config = ReplayConfig(tasks=1, observation=2, action=1, features=(0,), capacity=8, window=8, context=8)
    rings = replay.init(config)
    no = jnp.zeros(1, jnp.bool)
    for action in (1.0, *[0.0] * 7):
        step = Transition(
            jnp.zeros((1, 2)), jnp.full((1, 1), action), jnp.zeros(1), jnp.zeros(1), jnp.zeros((1, 2)), no, no, no
        )
        rings = replay.add(config, rings, step, ~no)
    curve = diagnostics.latent_errors(NETS, linear_encoder(), normalisation.init(2, 1), rings)
    expected = {0: 1 / 9, 1: 1 / 2 - 1 / 9, 4: 1 / 5 - 1 / 9, 16: 0.0, 64: 0.0}
    assert set(curve) == {f"latent_error_{count}" for count in expected}
    for count, value in expected.items():
        assert float(curve[f"latent_error_{count}"]) == pytest.approx(value, abs=1e-6)
