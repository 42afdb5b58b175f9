"""An ONNX graph, built node by node and written as a model."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ashore.experiments.onnx_extra import onnx

_OPSET, _IR = 17, 9
"""Old enough for every ONNX Runtime of the last years."""


class Graph:
    """Collects nodes; every method returns the name of what it computes."""

    def __init__(self) -> None:
        self._helper = onnx().helper
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._known: dict[tuple[Any, ...], str] = {}

    def __call__(self, operation: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operation.lower()}_{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(operation, inputs, [name], name, **attributes))
        return name

    def constant(self, value: Any, dtype: type = np.float32) -> str:
        array = np.array(value, dtype, order="C")
        # Every critic is asked several times, and has its weights once.
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = f"constant_{len(self.constants)}"
            self.constants.append(onnx().numpy_helper.from_array(array, self._known[key]))
        return self._known[key]

    def total(self, x: str, axes: tuple[int, ...], keep: int = 1) -> str:
        return self("ReduceSum", x, self.constant(axes, np.int64), keepdims=keep)

    def shaped(self, x: str, *shape: int) -> str:
        return self("Reshape", x, self.constant(shape, np.int64))

    def clipped(self, x: str, low: Any, high: Any) -> str:
        return self("Min", self("Max", x, self.constant(low)), self.constant(high))

    def model(self, inputs: Mapping[str, list[int]], outputs: Mapping[str, tuple[str, list[int]]]) -> bytes:
        helper, number = self._helper, onnx().TensorProto.FLOAT
        for name, (made, _) in outputs.items():
            self.nodes.append(helper.make_node("Identity", [made], [name]))
        graph = helper.make_graph(
            self.nodes,
            "ashore",
            [helper.make_tensor_value_info(name, number, shape) for name, shape in inputs.items()],
            [helper.make_tensor_value_info(name, number, shape) for name, (_, shape) in outputs.items()],
            self.constants,
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR, producer_name="ashore"
        )
        onnx().checker.check_model(model)
        return model.SerializeToString()
