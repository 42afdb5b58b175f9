"""Dense layers in NumPy, with the gradient towards their input: what the networks are made of.

Everything is computed in the precision of the weights it is made of, and written into buffers that are made once. A
layer norm first subtracts the mean over outputs; that is linear, so it is done to the weights when they are loaded
(W - row means) instead of to every activation. Its scale is multiplied into the weights as well.
"""

from collections.abc import Mapping

import numpy as np

from ashore_runtime.refusal import Refused

NORM_EPSILON = 1e-6
"""Added to the variance in a layer norm; the number the networks were trained with."""

PRECISIONS = ("float32", "float64")
"""What networks may compute in. A bundle holds float32; in float64 its numbers are the same."""

Weights = Mapping[str, np.ndarray]


def in_precision(weights: Weights, precision: str) -> Weights:
    """The weights in this precision; whatever is made of them computes in it."""
    if precision not in PRECISIONS:
        raise Refused(f"Networks compute in {' or '.join(PRECISIONS)}, not in {precision!r:.32}.")
    return {name: np.asarray(tensor, precision) for name, tensor in weights.items()}


def weight(weights: Weights, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The tensor called `name`, which must have this shape, in its own precision."""
    if name not in weights:
        raise Refused(f"The weights lack '{name}'.")
    if weights[name].shape != shape:
        raise Refused(f"The weight '{name}' has the shape {weights[name].shape} instead of {shape}.")
    return np.array(weights[name], order="C")


class Mlp:
    """A ReLU network with a linear output, for one input vector at a time."""

    def __init__(self, weights: Weights, prefix: str, inputs: int, hidden: tuple[int, ...], outputs: int) -> None:
        sizes = (inputs, *hidden, outputs)
        names = [*(f"dense{i}" for i in range(len(hidden))), "output"]
        self._layers = [
            (
                weight(weights, f"{prefix}/{name}/kernel", (sizes[i], sizes[i + 1])),
                weight(weights, f"{prefix}/{name}/bias", (sizes[i + 1],)),
            )
            for i, name in enumerate(names)
        ]
        self._buffers = [np.empty_like(bias) for _, bias in self._layers]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The output; the array is the network's own and changes with the next call."""
        for (kernel, bias), out in zip(self._layers, self._buffers, strict=True):
            np.matmul(x, kernel, out=out)
            out += bias
            if out is not self._buffers[-1]:
                np.maximum(out, 0.0, out=out)
            x = out
        return x


class NormedDense:
    """A stack of dense layers, each followed by a layer norm: [stack, rows, inputs] -> [stack, rows, outputs].

    With the mean already taken out of the weights and the norm's scale s multiplied into them, y = x W + b, the norm is

        out = y r + shift,   r = 1 / sqrt(mean(y^2 / s^2) + 1e-6)

    and the gradient towards y, g being that of `out`, is r (g - (y r) / s^2 mean(g y r)).
    """

    def __init__(self, weights: Weights, prefix: str, index: int, stack: int, rows: int, inputs: int, width: int):
        def load(name: str, *shape: int) -> np.ndarray:
            # Only heads are stored with a leading axis.
            full = (stack, *shape) if "/heads/" in prefix else shape
            return weight(weights, f"{prefix}/{name}", full).reshape(stack, *shape)

        def everywhere(x: np.ndarray) -> np.ndarray:
            # One copy per row: NumPy adds equal shapes twice as fast as it broadcasts.
            return np.repeat(x[:, None], rows, axis=1).astype(dtype)

        kernel, bias = load(f"dense{index}/kernel", inputs, width), load(f"dense{index}/bias", width)
        scale, shift = load(f"norm{index}/scale", width), load(f"norm{index}/bias", width)
        dtype = kernel.dtype
        # In float64 until all is folded in, whatever the rest is computed in.
        kernel, bias, scale = (part.astype(np.float64) for part in (kernel, bias, scale))
        scale = np.where(np.abs(scale) < _SMALLEST_SCALE, np.copysign(_SMALLEST_SCALE, scale), scale)
        self.kernel = ((kernel - kernel.mean(axis=2, keepdims=True)) * scale[:, None]).astype(dtype)
        self.bias = everywhere((bias - bias.mean(axis=1, keepdims=True)) * scale)
        self._shift = everywhere(shift)
        self._per_scale = everywhere(1.0 / np.square(scale))
        self._mean_square = (1.0 / (width * np.square(scale))).astype(dtype)[:, :, None]
        self._mean = np.full(width, 1.0 / width, dtype)
        self._epsilon = dtype.type(NORM_EPSILON)
        self._normal = np.empty((stack, rows, width), dtype)
        self._normal_parts, self._kernel_parts = _in_columns(self._normal, self.kernel, _FORWARD_COLUMNS)
        self._inverse = np.empty((stack, rows, 1), dtype)
        self._scratch = np.empty_like(self._normal)
        self._out = np.empty_like(self._normal)
        self._back = np.empty((stack, rows, inputs), dtype)
        transposed = self.kernel.transpose(0, 2, 1)
        self._back_parts, self._transposed_parts = _in_columns(self._back, transposed, _BACKWARD_COLUMNS)

    def forward(self, x: np.ndarray) -> np.ndarray:
        """LN(x W + b) for x [stack or 1, rows, inputs]; the result is the layer's own buffer."""
        np.matmul(x[:, None], self._kernel_parts, out=self._normal_parts)
        self._normal += self.bias
        return self._norm()

    def forward_from(self, product: np.ndarray) -> np.ndarray:
        """The same from x W + b, where somebody else has already multiplied with `kernel` and added `bias`."""
        self._normal[...] = product
        return self._norm()

    def _norm(self) -> np.ndarray:
        normal, inverse = self._normal, self._inverse
        np.square(normal, out=self._scratch)
        np.matmul(self._scratch, self._mean_square, out=inverse)
        inverse += self._epsilon
        np.sqrt(inverse, out=inverse)
        np.reciprocal(inverse, out=inverse)
        normal *= inverse
        return np.add(normal, self._shift, out=self._out)

    def backward_to_product(self, gradient: np.ndarray, chosen: slice) -> np.ndarray:
        """From the gradient of the last output to that of x W + b; overwrites and returns `gradient`.

        Args:
            gradient: [chosen, rows, width].
            chosen: which of the stack the gradient is of.
        """
        normal, scratch = self._normal[chosen], self._scratch[chosen]
        np.multiply(gradient, normal, out=scratch)
        along = np.matmul(scratch, self._mean)[..., None]
        np.multiply(normal, along, out=scratch)
        scratch *= self._per_scale[chosen]
        gradient -= scratch
        gradient *= self._inverse[chosen]
        return gradient

    def backward(self, gradient: np.ndarray, chosen: slice) -> np.ndarray:
        """From the gradient of the last output to that of x, in the layer's own buffer; overwrites `gradient`."""
        product = self.backward_to_product(gradient, chosen)
        np.matmul(product[:, None], self._transposed_parts[chosen], out=self._back_parts[chosen])
        return self._back[chosen]


def _in_columns(out: np.ndarray, kernel: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Views of a product's result and of its right operand in parts of `most` columns, where that comes out even.

    [stack, rows, columns] -> [stack, parts, rows, most]. A product of 16 rows with all 256 columns is just too large
    for the routine that BLAS has for small matrices on processors with AVX-512; in parts it takes two thirds of the
    time there, and the same time elsewhere.
    """
    stack, rows, columns = out.shape
    width = most if rows > 1 and columns % most == 0 else columns
    parts = columns // width
    # Splitting the last axis and moving the new one forward never copies, whatever the strides are.
    out_parts = out.reshape(stack, rows, parts, width).transpose(0, 2, 1, 3)
    inputs = kernel.shape[1]
    strides = kernel.strides
    kernel_parts = np.lib.stride_tricks.as_strided(
        kernel,
        (stack, parts, inputs, width),
        (strides[0], width * strides[2], strides[1], strides[2]),
        writeable=False,
    )
    return out_parts, kernel_parts


_FORWARD_COLUMNS, _BACKWARD_COLUMNS = 64, 32
"""Columns at once, measured at 256 x 16 and 512 x 32; a transposed operand is happier with fewer."""

_SMALLEST_SCALE = 1e-6
"""A layer norm's scale is divided by; one that is smaller counts as this, which moves no output by more than 1e-5."""


class Activation:
    """ReLU or SiLU in place, with what its gradient needs kept from the last call."""

    def __init__(self, kind: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._smooth = kind == "silu"
        self._zero = np.zeros(shape, dtype)
        self._slope = np.empty(shape, dtype)
        self._out = self._slope

    def forward(self, x: np.ndarray) -> np.ndarray:
        """Overwrites and returns `x`, which must stay as it is until the gradient has been taken."""
        if not self._smooth:
            self._out = np.maximum(x, self._zero, out=x)
            return x
        sigmoid = 0.5 * (1.0 + np.tanh(0.5 * x))
        np.multiply(sigmoid, 1.0 + x * (1.0 - sigmoid), out=self._slope)
        x *= sigmoid
        return x

    def backward(self, gradient: np.ndarray, chosen: slice) -> np.ndarray:
        """Overwrites and returns `gradient`."""
        if not self._smooth:
            # The slope of a ReLU is the sign of its output; a slope of 0 at 0 is what the training library uses.
            np.sign(self._out[chosen], out=self._slope[chosen])
        gradient *= self._slope[chosen]
        return gradient
