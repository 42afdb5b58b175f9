"""Dense layers, layer norm and the plain MLP: the only places where a weight meets a number.

Everything is written for one example; batches, fractions and ensembles are axes added outside with `jax.vmap`. Sums,
norms and outputs have the width of the weights: float32, or float64 for whoever wants to see no rounding.
"""

from typing import Any

import jax
import jax.numpy as jnp

from ashore.types import Array

Params = dict[str, Any]
"""Nested dictionaries of arrays, float32 while they are trained; the path to a leaf is its name on disk."""

NORM_EPSILON = 1e-6
"""Added to the variance in `layer_norm`; whoever re-implements the networks needs the same number."""

COMPUTE = {
    "float32": (jnp.float32, jax.lax.Precision.HIGHEST),
    # On a GPU HIGH is one TensorFloat-32 product; on a CPU it is ordinary float32.
    "tensorfloat32": (jnp.float32, jax.lax.Precision.HIGH),
    # The operands are already bfloat16, so there is nothing left for a higher precision to keep.
    "bfloat16": (jnp.bfloat16, jax.lax.Precision.DEFAULT),
    # Under `jax.enable_x64`, with weights that are float64: for comparing implementations, never for training.
    "float64": (jnp.float64, jax.lax.Precision.HIGHEST),
}
"""Kind of matrix product by name: dtype of its operands and the precision asked of the device."""

ACTIVATIONS = {"relu": jax.nn.relu, "silu": jax.nn.silu}


def dense_init(key: Array, inputs: int, outputs: int, gain: float = 2.0) -> Params:
    """Kernel with entries N(0, gain / inputs) and a zero bias; gain 2 keeps the scale through a ReLU."""
    kernel = jax.random.normal(key, (inputs, outputs), jnp.float32) * (gain / inputs) ** 0.5
    return {"kernel": kernel, "bias": jnp.zeros(outputs, jnp.float32)}


def dense(params: Params, x: Array, compute: str) -> Array:
    """x W + b with operands and result in the compute dtype; accumulation is the device's (float32 on a GPU)."""
    product = _product(params, x, compute)
    return product + params["bias"].astype(product.dtype)


def normed_dense(params: Params, norm: Params, x: Array, compute: str) -> Array:
    """`layer_norm` of `dense`, in the compute dtype, with the bias added in its own.

    The bias then belongs to the layer norm's kernel. Added in bfloat16 it would be the matrix product's: a GPU first
    writes it out as a matrix as large as the result.
    """
    product = _product(params, x, compute)
    return layer_norm(norm, product.astype(params["bias"].dtype) + params["bias"]).astype(product.dtype)


def _product(params: Params, x: Array, compute: str) -> Array:
    assert x.ndim == 1 and x.shape[0] == params["kernel"].shape[0], (x.shape, params["kernel"].shape)
    dtype, precision = COMPUTE[compute]
    return jnp.dot(x.astype(dtype), params["kernel"].astype(dtype), precision=precision)


def layer_norm_init(width: int) -> Params:
    """Unit scale, zero bias."""
    return {"scale": jnp.ones(width, jnp.float32), "bias": jnp.zeros(width, jnp.float32)}


def layer_norm(params: Params, x: Array) -> Array:
    """(x - mean) / sqrt(var + 1e-6) * scale + bias; statistics in the weights' dtype, whatever that of x."""
    assert x.ndim == 1, x.shape
    wide = x.astype(params["scale"].dtype)
    centred = wide - jnp.mean(wide)
    normal = centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred)) + NORM_EPSILON)
    return (normal * params["scale"] + params["bias"]).astype(x.dtype)


def mlp_init(key: Array, inputs: int, hidden: tuple[int, ...], outputs: int, output_gain: float = 1.0) -> Params:
    """Layers `dense0`, `dense1`, ... and `output`."""
    keys = jax.random.split(key, len(hidden) + 1)
    sizes = (inputs, *hidden)
    params = {f"dense{i}": dense_init(keys[i], sizes[i], sizes[i + 1]) for i in range(len(hidden))}
    params["output"] = dense_init(keys[-1], sizes[-1], outputs, output_gain)
    return params


def mlp(params: Params, x: Array, compute: str) -> Array:
    """ReLU MLP with a linear output, as wide as the weights."""
    for i in range(len(params) - 1):
        x = jax.nn.relu(dense(params[f"dense{i}"], x, compute))
    return dense(params["output"], x, compute).astype(params["output"]["bias"].dtype)
