"""A bundle small enough to be written hundreds of times: random weights, every part present."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ashore_runtime import bundle, golden
from ashore_runtime.policy import PolicyNetworks
from ashore_runtime.schema import Budget, Calibration, ChangeCalibration, Field, Manifest, Network, Refinement, Task

NETWORK = Network(
    latent=3,
    hidden=(8, 8),
    critic_width=8,
    critic_blocks=2,
    critic_heads=2,
    feature_layers=2,
    cosines=16,
    fractions=4,
    activation="relu",
    dynamics_scale="learnt",
    risk_conditioned=False,
)
OBSERVATION = tuple(Field(f"sensor_{i}", "1", -2.0, 2.0) for i in range(4))
ACTION = (Field("throttle", "1", -1.0, 1.0), Field("steer", "1", -1.0, 1.0))
PERIOD = 0.05
CALIBRATION = Calibration(
    counts=(0, 1, 2, 4, 8, 16),
    eta=(0.9, 0.9, 0.6, 0.6, 0.3, 0.0),
    infeasible=(True, False, False, False, False, False),
    change=ChangeCalibration(threshold=8.0),
    assumptions=("The world is one of those that were simulated.",),
    tables={"epsilon": [1.0, 0.9, 0.7, 0.5, 0.3, 0.2], "lipschitz": [1.0] * 6, "delta": {"0.3": [0.1] * 6}},
)


def manifest(network: Network = NETWORK, discounted: float = 10.0, **changes) -> Manifest:
    usual = Manifest(
        task=Task("Toy", "A toy.", "throttle drives, steer turns", PERIOD),
        observation=OBSERVATION,
        action=ACTION,
        dynamics_features=(0, 2),
        network=network,
        budget=Budget(25.0, 0.1, discounted, 0.99, 250),
        refinement=Refinement(),
        caution="refinement",
        training_ranges=({"name": "mass", "low": 0.5, "high": 2.0},),
        versions={"ashore": "0.1.0"},
    )
    return dataclasses.replace(usual, **changes)


def least() -> Manifest:
    """One of everything: a bundle as short as one with every part can be, to be harmed at every byte."""
    network = dataclasses.replace(
        NETWORK,
        latent=1,
        hidden=(1,),
        critic_width=1,
        critic_blocks=1,
        critic_heads=1,
        feature_layers=1,
        cosines=1,
        fractions=1,
    )
    return manifest(network, observation=OBSERVATION[:1], action=ACTION[:1], dynamics_features=(0,))


def weights(facts: Manifest, seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights for every network of a manifest, scaled so that activations keep their size."""
    generator = np.random.default_rng(seed)
    network = facts.network
    observation, action, features = len(facts.observation), len(facts.action), len(facts.dynamics_features)
    seen = observation + 2 * len(facts.closeness) + len(facts.contrasts) + len(facts.approaches)
    found: dict[str, np.ndarray] = {}

    def dense(name: str, inputs: int, outputs: int, *stack: int) -> None:
        found[f"{name}/kernel"] = generator.normal(size=(*stack, inputs, outputs)) * np.sqrt(2.0 / inputs)
        found[f"{name}/bias"] = 0.1 * generator.normal(size=(*stack, outputs))

    def norm(name: str, width: int, *stack: int) -> None:
        found[f"{name}/scale"] = 1.0 + 0.1 * generator.normal(size=(*stack, width))
        found[f"{name}/bias"] = 0.1 * generator.normal(size=(*stack, width))

    def mlp(name: str, inputs: int, outputs: int) -> None:
        sizes = (inputs, *network.hidden)
        for i in range(len(network.hidden)):
            dense(f"{name}/dense{i}", sizes[i], sizes[i + 1])
        dense(f"{name}/output", sizes[-1], outputs)

    mlp("actor", seen + network.context, action)
    mlp("encoder", 2 * features + action + 2, 2 * network.latent)
    said = 2 if network.dynamics_scale == "predicted" else 1
    mlp("dynamics/network", seen + action + network.latent, said * (features + 2))
    found["dynamics/log_scale"] = 0.1 * generator.normal(size=features + 2)
    width, heads = network.critic_width, network.critic_heads
    for critic in ("critic_reward", "critic_cost"):
        for i in range(network.feature_layers):
            dense(f"{critic}/features/dense{i}", width if i else seen + action + network.context, width)
            norm(f"{critic}/features/norm{i}", width)
        dense(f"{critic}/embedding", network.cosines, width)
        for block in ("input", *(f"block{i}" for i in range(network.critic_blocks))):
            for i in range(1 if block == "input" else 2):
                dense(f"{critic}/heads/{block}/dense{i}", width, width, heads)
                norm(f"{critic}/heads/{block}/norm{i}", width, heads)
        dense(f"{critic}/heads/output", width, 1, heads)
    for kind, shape in (("observation", (observation,)), ("change", (features,)), ("reward", ()), ("cost", ())):
        found[f"normaliser/{kind}/mean"] = 0.1 * generator.normal(size=shape)
        found[f"normaliser/{kind}/variance"] = np.exp(0.2 * generator.normal(size=shape))
    return {name: np.asarray(tensor, np.float32) for name, tensor in found.items()}


def write(
    path: Path,
    facts: Manifest | None = None,
    calibration: Calibration | None = CALIBRATION,
    seed: int = 0,
    known: Mapping[str, np.ndarray] | None = None,
    **options,
) -> Path:
    """A complete bundle; its golden outputs are the runtime's own. `known` weights replace random ones."""
    facts = facts or manifest()
    tensors = weights(facts, seed) | dict(known or {})
    given = golden.inputs(facts, tensors)
    vectors = given | golden.outputs(facts, PolicyNetworks(facts, tensors), given)
    return bundle.write(path, facts, tensors, vectors, "# A toy\n", calibration, **options)
