"""The actor and one refinement step as ONNX, for runtimes that have no Python.

    actor.onnx         observation, context -> action
    refine_step.onnx   observation, context, nominal, iterate, eta, weight -> next_iterate, candidate, cost, cost_before

`observation` is raw, `context` is z (and eta, for networks that take it), `weight` is w(eta). `next_iterate` is one
step of Algorithm 1 from `iterate`, `candidate` the interpolation that would be sent and `cost` its Q_c^eta;
`cost_before` is that of `iterate`, for the nominal action before the first step. Whoever runs it owns the loop, and
with it the deadline. Step sizes and the variant are the manifest's.
"""

from collections.abc import Mapping

import numpy as np

from ashore.experiments.exporting import Trained, describe, read_calibration
from ashore.experiments.onnx_critic import Critic, embedding
from ashore.experiments.onnx_graph import Graph
from ashore.experiments.onnx_observation import see
from ashore_runtime.schema import Manifest

ACTOR, STEP = "actor.onnx", "refine_step.onnx"
_SHORTEST = 1e-12
"""As in the runtime."""


def onnx_files(trained: Trained) -> dict[str, bytes]:
    """The files for one seed of a run."""
    found = read_calibration(trained)
    return build(describe(trained, {} if found is None else found.content), trained.weights)


def build(manifest: Manifest, weights: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    """Both files, by name; the actor's alone where there are no critics."""
    files = {ACTOR: _actor(manifest, weights)}
    return files | {STEP: _refine_step(manifest, weights)} if manifest.network.critic_heads else files


def _actor(manifest: Manifest, weights: Mapping[str, np.ndarray]) -> bytes:
    graph, sizes = Graph(), (len(manifest.observation), manifest.network.context)
    seen = see(graph, weights, manifest)
    x = graph("Concat", seen, graph.shaped("context", 1, sizes[1]), axis=1)
    for name in (*(f"dense{i}" for i in range(len(manifest.network.hidden))), "output"):
        kernel, bias = (graph.constant(weights[f"actor/{name}/{part}"]) for part in ("kernel", "bias"))
        x = graph("Add", graph("MatMul", x, kernel), bias)
        x = graph("Tanh" if name == "output" else "Relu", x)
    actions = len(manifest.action)
    inside = graph.clipped(graph.shaped(x, actions), manifest.action_low, manifest.action_high)
    return graph.model({"observation": [sizes[0]], "context": [sizes[1]]}, {"action": (inside, [actions])})


def _refine_step(manifest: Manifest, weights: Mapping[str, np.ndarray]) -> bytes:
    graph, settings = Graph(), manifest.refinement
    observation, context, actions = len(manifest.observation), manifest.network.context, len(manifest.action)
    seen, conditioned = see(graph, weights, manifest), graph.shaped("context", 1, context)

    def critic(prefix: str, level: str | None) -> Critic:
        phi = embedding(graph, weights, prefix, manifest, level)
        return Critic(graph, weights, prefix, manifest, seen, conditioned, phi, level is not None)

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
