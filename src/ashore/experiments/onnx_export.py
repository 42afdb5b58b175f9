"""The actor and one refinement step as ONNX, for runtimes that have no Python.

    actor.onnx         observation, context -> action
    refine_step.onnx   observation, context, nominal, iterate, eta, weight -> next_iterate, candidate, cost, cost_before

`observation` is raw, `context` is z (and eta, for networks that take it), `weight` is w(eta). `next_iterate` is one
step of Algorithm 1 from `iterate`, `candidate` the interpolation that would be sent and `cost` its Q_c^eta;
`cost_before` is that of `iterate`, for the nominal action before the first step. Whoever runs it owns the loop, and
with it the deadline. Step sizes and the variant are the manifest's.

The gradients are written out by hand, as in `ashore_runtime.layers` and `.critics`, because ONNX has none. Layer norms
have their mean and scale multiplied into the weights in the same way.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from ashore.experiments.exporting import Trained, describe, read_calibration
from ashore_runtime.critics import midpoint_bits, midpoints
from ashore_runtime.layers import NORM_EPSILON
from ashore_runtime.normalisation import CLIP, MIN_DEVIATION, SHARPENED, SOONEST
from ashore_runtime.refinement import LEAST_GAIN, Refined, interpolation_weight
from ashore_runtime.schema import Manifest, Refinement

ACTOR, STEP = "actor.onnx", "refine_step.onnx"
_OPSET, _IR = 17, 9
"""Old enough for every ONNX Runtime of the last years."""
_SMALLEST_SCALE, _SHORTEST = 1e-6, 1e-12
"""As in the runtime."""

_STEPPED = ("next_iterate", "candidate", "cost", "cost_before")
"""What one run of `refine_step.onnx` gives."""

Tensors = Mapping[str, np.ndarray]


def available() -> bool:
    """Whether the extra is installed."""
    try:
        _onnx()
        _onnxruntime()
    except ValueError:
        return False
    return True


def onnx_files(trained: Trained) -> dict[str, bytes]:
    """The files for one seed of a run."""
    found = read_calibration(trained)
    return build(describe(trained, {} if found is None else found.content), trained.weights)


def build(manifest: Manifest, weights: Tensors) -> dict[str, bytes]:
    """Both files, by name; the actor's alone where there are no critics."""
    files = {ACTOR: _actor(manifest, weights)}
    return files | {STEP: _refine_step(manifest, weights)} if manifest.network.critic_heads else files


def _onnx() -> ModuleType:
    return _imported("onnx")


def _onnxruntime() -> ModuleType:
    return _imported("onnxruntime")


def _imported(name: str) -> ModuleType:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ValueError(f"'{name}' is not installed: install ashore with its extra 'onnx'.") from error


class _Graph:
    """Collects nodes; every method returns the name of what it computes."""

    def __init__(self) -> None:
        self._helper = _onnx().helper
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
            self.constants.append(_onnx().numpy_helper.from_array(array, self._known[key]))
        return self._known[key]

    def total(self, x: str, axes: tuple[int, ...], keep: int = 1) -> str:
        return self("ReduceSum", x, self.constant(axes, np.int64), keepdims=keep)

    def shaped(self, x: str, *shape: int) -> str:
        return self("Reshape", x, self.constant(shape, np.int64))

    def clipped(self, x: str, low: Any, high: Any) -> str:
        return self("Min", self("Max", x, self.constant(low)), self.constant(high))

    def model(self, inputs: Mapping[str, list[int]], outputs: Mapping[str, tuple[str, list[int]]]) -> bytes:
        helper, number = self._helper, _onnx().TensorProto.FLOAT
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
        _onnx().checker.check_model(model)
        return model.SerializeToString()


def _seen(manifest: Manifest) -> int:
    """Numbers that actor and critics see of an observation."""
    enlarged = len(SHARPENED) * len(manifest.closeness)
    return len(manifest.observation) + enlarged + len(manifest.contrasts) + len(manifest.approaches)


def _see(graph: _Graph, weights: Tensors, manifest: Manifest) -> str:
    """The observation normalised, then its closenesses sharpened, contrasts, and how soon gaps close, [1, seen]."""
    mean, variance = (weights[f"normaliser/observation/{part}"] for part in ("mean", "variance"))
    deviation = np.maximum(np.sqrt(variance), MIN_DEVIATION)
    scaled = graph("Div", graph("Sub", "observation", graph.constant(mean)), graph.constant(deviation))
    parts = [graph.clipped(scaled, -CLIP, CLIP)]
    if manifest.closeness:
        near = graph("Gather", "observation", graph.constant(manifest.closeness, np.int64), axis=0)
        near = graph.clipped(near, 0.0, 1.0)
        for power, scale in SHARPENED:
            parts.append(graph("Mul", graph("Pow", near, graph.constant(power)), graph.constant(scale)))
    if manifest.contrasts:
        firsts, seconds, scales = zip(*manifest.contrasts, strict=True)
        first, second = (
            graph("Gather", "observation", graph.constant(places, np.int64), axis=0) for places in (firsts, seconds)
        )
        parts.append(graph("Mul", graph("Sub", first, second), graph.constant(scales)))
    if manifest.approaches:
        fasters, slowers, gaps, scales, floors = zip(*manifest.approaches, strict=True)
        faster, slower, gap = (
            graph("Gather", "observation", graph.constant(places, np.int64), axis=0)
            for places in (fasters, slowers, gaps)
        )
        closing = graph("Mul", graph("Relu", graph("Sub", faster, slower)), graph.constant(scales))
        soon = graph("Div", closing, graph("Max", gap, graph.constant(floors)))
        parts.append(graph("Min", soon, graph.constant(SOONEST)))
    return graph.shaped(graph("Concat", *parts, axis=0), 1, _seen(manifest))


def _actor(manifest: Manifest, weights: Tensors) -> bytes:
    graph, sizes = _Graph(), (len(manifest.observation), manifest.network.context)
    seen = _see(graph, weights, manifest)
    x = graph("Concat", seen, graph.shaped("context", 1, sizes[1]), axis=1)
    for name in (*(f"dense{i}" for i in range(len(manifest.network.hidden))), "output"):
        kernel, bias = (graph.constant(weights[f"actor/{name}/{part}"]) for part in ("kernel", "bias"))
        x = graph("Add", graph("MatMul", x, kernel), bias)
        x = graph("Tanh" if name == "output" else "Relu", x)
    actions = len(manifest.action)
    inside = graph.clipped(graph.shaped(x, actions), manifest.action_low, manifest.action_high)
    return graph.model({"observation": [sizes[0]], "context": [sizes[1]]}, {"action": (inside, [actions])})


class _Normed(NamedTuple):
    """A dense layer with its norm, and what its gradient needs from the last forward pass."""

    transposed: str
    per_scale: str
    normal: str
    inverse: str


@dataclass(frozen=True)
class _Critic:
    """One critic at given fractions; asked about several actions in one graph."""

    graph: _Graph
    weights: Tensors
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
            chosen = graph("Cast", graph("Equal", places, first), to=_onnx().TensorProto.FLOAT)
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
        before, actions = _seen(self.manifest), len(self.manifest.action)
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


def _embedding(graph: _Graph, weights: Tensors, prefix: str, manifest: Manifest, level: str | None) -> str:
    """phi of the midpoints of [level, 1], [fractions, width]; without a level those of [0, 1]."""
    network = manifest.network
    taus = graph.constant(midpoints(0.0, network.fractions)[:, None])
    if level is not None:
        # In whole numbers, as `midpoints` does it.
        bits, odd = midpoint_bits(network.fractions), np.arange(1, 2 * network.fractions, 2)[:, None]
        number = _onnx().TensorProto
        whole = graph("Cast", graph("Round", graph("Mul", level, graph.constant(1 << bits))), to=number.INT64)
        parts = graph("Mul", whole, graph.constant(2 * network.fractions - odd, np.int64))
        parts = graph("Cast", graph("Add", parts, graph.constant(odd << bits, np.int64)), to=number.FLOAT)
        taus = graph("Mul", parts, graph.constant(0.5**bits / (2 * network.fractions)))
    orders = graph.constant(np.arange(1, network.cosines + 1)[None])
    cosines = graph("Cos", graph("Mul", graph("Mul", taus, graph.constant(np.pi)), orders))
    kernel, bias = (graph.constant(weights[f"{prefix}/embedding/{part}"]) for part in ("kernel", "bias"))
    return graph("Relu", graph("Add", graph("MatMul", cosines, kernel), bias))


def _refine_step(manifest: Manifest, weights: Tensors) -> bytes:
    graph, settings = _Graph(), manifest.refinement
    observation, context, actions = len(manifest.observation), manifest.network.context, len(manifest.action)
    seen, conditioned = _see(graph, weights, manifest), graph.shaped("context", 1, context)

    def critic(prefix: str, level: str | None) -> _Critic:
        phi = _embedding(graph, weights, prefix, manifest, level)
        return _Critic(graph, weights, prefix, manifest, seen, conditioned, phi, level is not None)

    def project(action: str) -> str:
        return graph.clipped(action, manifest.action_low, manifest.action_high)

    reward, cost = critic("critic_reward", None), critic("critic_cost", "eta")
    away = graph("Sub", "iterate", "nominal")
    pull = graph("Sub", reward.gradient("iterate"), graph("Mul", graph.constant(2.0 * settings.proximal), away))
    moved = project(graph("Add", "iterate", graph("Mul", graph.constant(settings.reward_step), pull)))
    gradient = cost.gradient(moved)
    if settings.variant == "unit":
        length = graph("Sqrt", graph.total(graph("Mul", gradient, gradient), (0,)))
        gradient = graph("Div", gradient, graph("Max", length, graph.constant(_SHORTEST)))
    following = project(graph("Sub", moved, graph("Mul", graph.constant(settings.cost_step), gradient)))
    between = graph("Add", "nominal", graph("Mul", "weight", graph("Sub", following, "nominal")))
    candidate = project(between)
    return graph.model(
        {
            "observation": [observation],
            "context": [context],
            "nominal": [actions],
            "iterate": [actions],
            "eta": [],
            "weight": [],
        },
        {
            "next_iterate": (following, [actions]),
            "candidate": (candidate, [actions]),
            "cost": (cost.value(candidate), []),
            "cost_before": (cost.value("iterate"), []),
        },
    )


class OnnxPolicy:
    """A policy in ONNX Runtime, on one thread: what the files are for, and how to use them."""

    def __init__(self, manifest: Manifest, files: Mapping[str, bytes]) -> None:
        runtime = _onnxruntime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._manifest = manifest
        sessions = {
            name: runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
            for name, data in files.items()
        }
        self._actor, self._step = sessions[ACTOR], sessions.get(STEP)

    def context(self, latent: np.ndarray, eta: float) -> np.ndarray:
        """z, and eta for networks that take it."""
        return np.append(latent, np.float32(eta)) if self._manifest.network.risk_conditioned else latent

    def nominal(self, observation: np.ndarray, latent: np.ndarray, eta: float) -> np.ndarray:
        """The actor's action; `eta` is what it is told, 0 where caution is left to the refinement."""
        given = {"observation": observation, "context": self.context(latent, eta)}
        return self._actor.run(["action"], given)[0]

    def act(
        self, observation: np.ndarray, latent: np.ndarray, eta: float, settings: Refinement, threshold_scale: float
    ) -> np.ndarray:
        """The actor's action, refined by Algorithm 1; `threshold_scale` is in the place of the settings'."""
        told = 0.0 if self._manifest.caution == "refinement" else eta
        nominal = self.nominal(observation, latent, told)
        threshold = threshold_scale * self._manifest.budget.discounted
        return self.refine(observation, self.context(latent, told), nominal, eta, settings, threshold).action

    def refine(
        self,
        observation: np.ndarray,
        context: np.ndarray,
        nominal: np.ndarray,
        eta: float,
        settings: Refinement,
        threshold: float,
    ) -> Refined:
        """Algorithm 1 with `keep="best"`, the loop outside of the graph; `Refined` says what was judged."""
        if self._step is None:
            raise ValueError("There is nothing to refine with: the policy was written without its critics.")
        weight = interpolation_weight(settings.weight, eta)
        given = {"observation": observation, "context": context, "nominal": nominal, "iterate": nominal}
        given |= {"eta": np.array(eta, np.float32), "weight": np.array(weight, np.float32)}
        best = Refined(nominal, math.nan, math.nan, 0)
        for step in range(settings.steps if weight else 0):
            # All four at once: a run computes all of them, whatever is asked for.
            given["iterate"], candidate, cost, before = self._step.run(_STEPPED, given)
            if step == 0:
                best = Refined(nominal, float(before), float(before), 0)
                # As in the runtime: a cost that is not a number is not above anything, and nothing is refined then.
                if not best.cost > threshold:
                    break
            better = cost <= threshold or cost < best.cost - LEAST_GAIN * abs(best.cost)
            action, judged = (candidate, float(cost)) if better else (best.action, best.cost)
            best = Refined(action, judged, best.nominal_cost, step + 1)
            if best.cost <= threshold:
                break
        return best
