"""BroNet by hand and in NumPy, and the plain layers under it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.networks import bronet, layers
from ashore.networks.bronet import BroNetConfig

IDENTITY = {"kernel": jnp.eye(2), "bias": jnp.zeros(2)}


def identity_layer(*names):
    layer = {}
    for i, _ in enumerate(names):
        layer |= {f"dense{i}": IDENTITY, f"norm{i}": layers.layer_norm_init(2)}
    return layer


def test_one_block_by_hand():
    # Identity kernels, so only norms and activations act (up to the 1e-6 under the root):
    #   input [3, 1] -> norm: mean 2, deviation 1 -> [1, -1] -> relu [1, 0]
    #   block [1, 0] -> norm: mean 0.5, deviation 0.5 -> [1, -1] -> relu [1, 0] -> norm [1, -1]
    #   sum   [1, 0] + [1, -1] = [2, -1], not rectified -> head 1 * 2 + 10 * (-1) = -8
    params = {
        "input": identity_layer("one"),
        "block0": identity_layer("one", "two"),
        "output": {"kernel": jnp.array([[1.0], [10.0]]), "bias": jnp.zeros(1)},
    }
    value = bronet.apply(BroNetConfig(2, width=2, blocks=1), params, jnp.array([3.0, 1.0]))
    assert value.shape == ()
    assert value == pytest.approx(-8.0, abs=1e-4)


@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_against_numpy(activation):
    config = BroNetConfig(5, width=16, blocks=2, outputs=3, activation=activation)
    params = jax.tree.map(np.asarray, bronet.init(jax.random.key(0), config))
    act = {"relu": lambda x: np.maximum(x, 0.0), "silu": lambda x: x / (1.0 + np.exp(-x))}[activation]

    def layer(block, i, x):
        x = x @ block[f"dense{i}"]["kernel"] + block[f"dense{i}"]["bias"]
        norm = block[f"norm{i}"]
        return (x - x.mean()) / np.sqrt(x.var() + layers.NORM_EPSILON) * norm["scale"] + norm["bias"]

    x = np.linspace(-1.0, 2.0, 5, dtype=np.float32)
    h = act(layer(params["input"], 0, x))
    for name in ("block0", "block1"):
        h = h + layer(params[name], 1, act(layer(params[name], 0, h)))
    expected = h @ params["output"]["kernel"] + params["output"]["bias"]
    np.testing.assert_allclose(bronet.apply(config, params, jnp.asarray(x)), expected, rtol=1e-5, atol=1e-5)


def test_layer_norm_of_large_steady_numbers_in_bfloat16_keeps_float32_statistics():
    # 256 and 258 are neighbours in bfloat16 (8 bits): mean 257, deviation 1; statistics in bfloat16 would give 0 or 2.
    x = jnp.array([256.0, 258.0], jnp.bfloat16)
    out = layers.layer_norm(layers.layer_norm_init(2), x)
    assert out.dtype == jnp.bfloat16
    np.testing.assert_allclose(out.astype(jnp.float32), [-1.0, 1.0], atol=1e-2)


def test_initial_scale_is_kept_through_relu_layers():
    # Kernels N(0, 2 / inputs) double the mean square and ReLU halves it again; the output has gain 1 and no ReLU.
    params = layers.mlp_init(jax.random.key(1), 512, (512, 512), 512)
    x = jax.random.normal(jax.random.key(2), (512,))
    out = layers.mlp(params, x, "float32")
    assert jnp.mean(jnp.square(out)) == pytest.approx(float(jnp.mean(jnp.square(x))), rel=0.25)


def test_wrong_input_is_refused():
    config = BroNetConfig(4, width=8)
    with pytest.raises(AssertionError):
        bronet.apply(config, bronet.init(jax.random.key(0), config), jnp.zeros((3, 4)))
