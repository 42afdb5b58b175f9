"""What actor and critics see of a raw observation, as ONNX nodes."""

from collections.abc import Mapping

import numpy as np

from ashore.experiments.onnx_graph import Graph
from ashore_runtime.normalisation import CLIP, MIN_DEVIATION, SHARPENED, SOONEST
from ashore_runtime.schema import Manifest


def seen_numbers(manifest: Manifest) -> int:
    """Numbers that actor and critics see of an observation."""
    enlarged = len(SHARPENED) * len(manifest.closeness)
    return len(manifest.observation) + enlarged + len(manifest.contrasts) + len(manifest.approaches)


def see(graph: Graph, weights: Mapping[str, np.ndarray], manifest: Manifest) -> str:
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
    return graph.shaped(graph("Concat", *parts, axis=0), 1, seen_numbers(manifest))
