"""A critic as ONNX nodes: its value, and its gradient towards the action.

The gradient is written out by hand, as in `ashore_runtime.layers` and `.critics`, because ONNX has none. Layer norms
have their mean and scale multiplied into the weights in the same way.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ashore.experiments.onnx_extra import onnx
from ashore.experiments.onnx_graph import Graph
from ashore.experiments.onnx_observation import seen_numbers
from ashore_runtime.critics import midpoint_bits, midpoints
from ashore_runtime.layers import NORM_EPSILON
from ashore_runtime.schema import Manifest

_SMALLEST_SCALE = 1e-6
"""As in the runtime."""


class _Normed(NamedTuple):
    """A dense layer with its norm, and what its gradient needs from the last forward pass."""

    transposed: str
    per_scale: str
    normal: str
    inverse: str


@dataclass(frozen=True)
class Critic:
    """One critic at given fractions; asked about several actions in one graph."""

    graph: Graph
    weights: Mapping[str, np.ndarray]
    prefix: str
    manifest: Manifest
    seen: str
    context: str
    phi: str
    """Embedding of the fractions, [fractions, width]."""
    cost: bool

    def value(self, action: str) -> str:
        """Q_r or Q_c^eta, a scalar."""
        raw, _ = self._forward(action)
        per_head = self._per_head(raw)
        reduce = "ReduceMax" if self.cost else "ReduceMean"
        return self.graph(reduce, per_head, axes=[0, 1, 2], keepdims=0)

    def gradient(self, action: str) -> str:
        """Its gradient towards the action, [actions]."""
        graph, network = self.graph, self.manifest.network
        heads, rows = network.critic_heads, network.fractions
        raw, passed = self._forward(action)
        if self.cost:
            first = graph("ArgMax", self._per_head(raw), axis=0, keepdims=1)
            places = graph.constant(np.arange(heads).reshape(heads, 1, 1), np.int64)
            chosen = graph("Cast", graph("Equal", places, first), to=onnx().TensorProto.FLOAT)
            slopes = graph("Mul", graph("Mul", graph("Sigmoid", raw), graph.constant(1.0 / rows)), chosen)
        else:
            slopes = graph.constant(np.full((heads, rows, 1), 1.0 / (heads * rows)))
        output = self.weights[f"{self.prefix}/heads/output/kernel"].transpose(0, 2, 1)
        gradient = graph("Mul", slopes, graph.constant(output))
        for first_layer, slope, second_layer in reversed(passed["blocks"]):
            branch = graph("Mul", self._back(second_layer, gradient), slope)
            gradient = graph("Add", gradient, self._back(first_layer, branch))
        layer, slope = passed["input"]
        modulated = self._back(layer, graph("Mul", gradient, slope))
        feature = graph.total(graph("Mul", modulated, self.phi), (0, 1), keep=0)
        feature = graph.shaped(feature, 1, network.critic_width)
        for index, (layer, slope) in reversed(list(enumerate(passed["features"]))):
            feature = self._back_to_product(layer, graph("Mul", feature, slope))
            if index:
                feature = graph("MatMul", feature, layer.transposed)
        before, actions = seen_numbers(self.manifest), len(self.manifest.action)
        kernel = self._folded("features", 0)[0][before : before + actions]
        return graph.shaped(graph("MatMul", feature, graph.constant(kernel.T)), actions)

    def _forward(self, action: str) -> tuple[str, dict[str, Any]]:
        graph, network = self.graph, self.manifest.network
        x = graph(
            "Concat",
            self.seen,
            graph.shaped(action, 1, len(self.manifest.action)),
            self.context,
            axis=1,
        )
        features = []
        for index in range(network.feature_layers):
            x, layer = self._normed(x, "features", index)
            x, slope = self._activated(x)
            features.append((layer, slope))
        modulated = graph("Mul", x, self.phi)
        h, layer = self._normed(modulated, "heads/input", 0)
        h, slope = self._activated(h)
        passed: dict[str, Any] = {"features": features, "input": (layer, slope), "blocks": []}
        for block in range(network.critic_blocks):
            inner, first = self._normed(h, f"heads/block{block}", 0)
            inner, slope = self._activated(inner)
            inner, second = self._normed(inner, f"heads/block{block}", 1)
            h = graph("Add", h, inner)
            passed["blocks"].append((first, slope, second))
        kernel, bias = (self.weights[f"{self.prefix}/heads/output/{part}"] for part in ("kernel", "bias"))
        raw = graph("Add", graph("MatMul", h, graph.constant(kernel)), graph.constant(bias[:, None]))
        return raw, passed

    def _per_head(self, raw: str) -> str:
        values = self.graph("Softplus", raw) if self.cost else raw
        return self.graph("ReduceMean", values, axes=[1], keepdims=1)

    def _folded(self, block: str, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Kernel and bias with the norm's mean and scale in them, its shift, and its scale."""

        def load(name: str) -> np.ndarray:
            return self.weights[f"{self.prefix}/{block}/{name}"].astype(np.float64)

        kernel, bias, scale = load(f"dense{index}/kernel"), load(f"dense{index}/bias"), load(f"norm{index}/scale")
        scale = np.where(np.abs(scale) < _SMALLEST_SCALE, np.copysign(_SMALLEST_SCALE, scale), scale)
        kernel = (kernel - kernel.mean(axis=-1, keepdims=True)) * scale[..., None, :]
        bias = (bias - bias.mean(axis=-1, keepdims=True)) * scale
        # Heads have an axis of their own in front; rows of fractions get one in between.
        return kernel, bias[..., None, :], load(f"norm{index}/bias")[..., None, :], scale[..., None, :]

    def _normed(self, x: str, block: str, index: int) -> tuple[str, _Normed]:
        graph, width = self.graph, self.manifest.network.critic_width
        kernel, bias, shift, scale = self._folded(block, index)
        product = graph("Add", graph("MatMul", x, graph.constant(kernel)), graph.constant(bias))
        weighing = np.swapaxes(1.0 / (width * np.square(scale)), -1, -2)
        mean_square = graph("MatMul", graph("Mul", product, product), graph.constant(weighing))
        inverse = graph("Reciprocal", graph("Sqrt", graph("Add", mean_square, graph.constant(NORM_EPSILON))))
        normal = graph("Mul", product, inverse)
        kept = _Normed(
            graph.constant(np.swapaxes(kernel, -1, -2)), graph.constant(1.0 / np.square(scale)), normal, inverse
        )
        return graph("Add", normal, graph.constant(shift)), kept

    def _activated(self, x: str) -> tuple[str, str]:
        """The activation and its slope."""
        graph = self.graph
        if self.manifest.network.activation == "relu":
            out = graph("Relu", x)
            return out, graph("Sign", out)
        sigmoid, one = graph("Sigmoid", x), graph.constant(1.0)
        rest = graph("Add", one, graph("Mul", x, graph("Sub", one, sigmoid)))
        return graph("Mul", x, sigmoid), graph("Mul", sigmoid, rest)

    def _back_to_product(self, layer: _Normed, gradient: str) -> str:
        graph = self.graph
        along = graph("ReduceMean", graph("Mul", gradient, layer.normal), axes=[-1], keepdims=1)
        pulled = graph("Mul", graph("Mul", layer.normal, along), layer.per_scale)
        return graph("Mul", graph("Sub", gradient, pulled), layer.inverse)

    def _back(self, layer: _Normed, gradient: str) -> str:
        return self.graph("MatMul", self._back_to_product(layer, gradient), layer.transposed)


def embedding(
    graph: Graph, weights: Mapping[str, np.ndarray], prefix: str, manifest: Manifest, level: str | None
) -> str:
    """phi of the midpoints of [level, 1], [fractions, width]; without a level those of [0, 1]."""
    network = manifest.network
    taus = graph.constant(midpoints(0.0, network.fractions)[:, None])
    if level is not None:
        # In whole numbers, as `midpoints` does it.
        bits, odd = midpoint_bits(network.fractions), np.arange(1, 2 * network.fractions, 2)[:, None]
        number = onnx().TensorProto
        whole = graph("Cast", graph("Round", graph("Mul", level, graph.constant(1 << bits))), to=number.INT64)
        parts = graph("Mul", whole, graph.constant(2 * network.fractions - odd, np.int64))
        parts = graph("Cast", graph("Add", parts, graph.constant(odd << bits, np.int64)), to=number.FLOAT)
        taus = graph("Mul", parts, graph.constant(0.5**bits / (2 * network.fractions)))
    orders = graph.constant(np.arange(1, network.cosines + 1)[None])
    cosines = graph("Cos", graph("Mul", graph("Mul", taus, graph.constant(np.pi)), orders))
    kernel, bias = (graph.constant(weights[f"{prefix}/embedding/{part}"]) for part in ("kernel", "bias"))
    return graph("Relu", graph("Add", graph("MatMul", cosines, kernel), bias))
