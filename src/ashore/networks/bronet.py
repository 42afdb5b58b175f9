"""BroNet: a wide residual network in which every dense layer is followed by a layer norm.

    h = act(LN(W x + b));   h <- h + LN(W2 act(LN(W1 h + b1)) + b2) per block;   y = W h + b

There is no activation after the addition, so the residual path stays linear from the first layer to the head.
"""

from dataclasses import dataclass

import jax

from ashore.networks.layers import ACTIVATIONS, Params, dense, dense_init, layer_norm_init, normed_dense
from ashore.types import Array


@dataclass(frozen=True)
class BroNetConfig:
    """Shape of one BroNet."""

    inputs: int
    width: int = 512
    blocks: int = 2
    """Residual blocks of two dense layers each."""
    outputs: int | None = None
    """Length of the output vector; None makes the output a scalar."""
    activation: str = "relu"
    compute: str = "float32"


def init(key: Array, config: BroNetConfig) -> Params:
    """Weights `input`, `block0`, `block1`, ... and `output`."""
    input_key, output_key, *block_keys = jax.random.split(key, config.blocks + 2)
    width = config.width
    params: Params = {"input": {"dense0": dense_init(input_key, config.inputs, width), "norm0": layer_norm_init(width)}}
    for i, block_key in enumerate(block_keys):
        first, second = jax.random.split(block_key)
        params[f"block{i}"] = {
            "dense0": dense_init(first, width, width),
            "norm0": layer_norm_init(width),
            "dense1": dense_init(second, width, width),
            "norm1": layer_norm_init(width),
        }
    params["output"] = dense_init(output_key, width, config.outputs or 1, gain=1.0)
    return params


def apply(config: BroNetConfig, params: Params, x: Array) -> Array:
    """The network for one input vector; as wide as the weights, a scalar when `config.outputs` is None."""
    assert x.shape == (config.inputs,), (x.shape, config.inputs)
    act = ACTIVATIONS[config.activation]

    def layer(block: Params, i: int, x: Array) -> Array:
        return normed_dense(block[f"dense{i}"], block[f"norm{i}"], x, config.compute)

    h = act(layer(params["input"], 0, x))
    for i in range(config.blocks):
        block = params[f"block{i}"]
        h = h + layer(block, 1, act(layer(block, 0, h)))
    out = dense(params["output"], h, config.compute).astype(params["output"]["bias"].dtype)
    return out[0] if config.outputs is None else out
