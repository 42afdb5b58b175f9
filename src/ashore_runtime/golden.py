"""Inputs with known outputs: whether this machine computes what the policy's authors computed.

The outputs in a bundle come from the networks it was trained with. Before a runtime acts it computes them again, with
the arithmetic it is going to act with, and refuses when they differ. The replay also warms every code path up.
"""

from collections.abc import Mapping

import numpy as np

from ashore_runtime.layers import Weights, weight
from ashore_runtime.policy import PolicyNetworks
from ashore_runtime.refusal import Refused
from ashore_runtime.schema import Manifest

LEAST = 256
"""Fewest vectors a bundle may have."""
MOST = 4096
TOLERANCE = 1e-5
"""Largest difference, relative above 1."""
GRADIENT_TOLERANCE = 1e-3
"""The same for gradients, which jump where a ReLU has its kink: one unit on the other side of it is no fault."""

INPUTS = ("observation", "action", "next_observation", "reward", "cost", "latent", "eta")
OUTPUT = "output/"


def conditioning_eta(manifest: Manifest, eta: float) -> float:
    """The eta that actor and critics are fed: none where caution is left to the refinement."""
    return 0.0 if manifest.caution == "refinement" else eta


def inputs(manifest: Manifest, weights: Weights, count: int = LEAST, seed: int = 0) -> dict[str, np.ndarray]:
    """Typical and extreme inputs, float32, one row per vector; `reward`, `cost` and `eta` are plain vectors."""
    generator = np.random.default_rng(seed)
    size, actions, latent = len(manifest.observation), len(manifest.action), manifest.network.latent
    mean = weight(weights, "normaliser/observation/mean", (size,))
    spread = np.sqrt(weight(weights, "normaliser/observation/variance", (size,)))
    bounds = list(zip(manifest.observation, mean, spread, strict=True))
    low = np.array([m - 3.0 * s if field.low is None else field.low for field, m, s in bounds])
    high = np.array([m + 3.0 * s if field.high is None else field.high for field, m, s in bounds])
    observation = mean + spread * generator.normal(size=(count, size))
    observation[1::4] = generator.uniform(low, high, (len(observation[1::4]), size))
    corners = generator.integers(0, 2, (len(observation[2::16]), size))
    observation[2::16] = np.where(corners, high, low)
    observation[3::16] = mean + 20 * spread * generator.choice([-1.0, 1.0], (len(observation[3::16]), size))
    observation[0], observation[4] = mean, 0.0
    action = generator.uniform(-1, 1, (count, actions))
    action[1::8] = generator.choice([-1.0, 0.0, 1.0], (len(action[1::8]), actions))
    posterior_mean = generator.normal(size=(count, latent))
    posterior_mean[::8] = 0.0
    eta = generator.uniform(0, 0.95, count)
    eta[::8], eta[1::8] = 0.0, 0.95
    drawn = {
        "observation": observation,
        "action": action,
        "next_observation": observation + 0.1 * spread * generator.normal(size=(count, size)),
        "reward": generator.normal(size=count),
        "cost": generator.integers(0, 2, count) * generator.exponential(size=count),
        "latent": posterior_mean,
        "eta": eta,
    }
    return {name: array.astype(np.float32) for name, array in drawn.items()}


def outputs(manifest: Manifest, networks: PolicyNetworks, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the networks make of the inputs; names start with `output/`, and networks that are not there give nothing.

    output/action               the actor's action
    output/factor_mean,
    output/factor_precision     the encoder's opinion of (observation, action, next_observation, reward, cost)
    output/prediction           the dynamics head for (observation, action, latent)
    output/reward_value,
    output/cost_value           Q_r and Q_c^eta of (observation, action, latent)
    output/reward_gradient,
    output/cost_gradient        their gradients towards the action

    Rounded to float32, whatever the networks compute in.
    """
    rows: dict[str, list[np.ndarray | float]] = {}

    def note(name: str, value: np.ndarray | float) -> None:
        rows.setdefault(OUTPUT + name, []).append(value)

    normalisers = networks.normalisers
    for i in range(len(given["eta"])):
        observation, action, eta = given["observation"][i], given["action"][i], float(given["eta"][i])
        latent = given["latent"][i]
        normal = normalisers.see(observation)
        context = networks.context(latent, conditioning_eta(manifest, eta))
        note("action", networks.action(normal, context))
        if networks.identifies:
            target = normalisers.dynamics_target(
                observation, given["next_observation"][i], float(given["reward"][i]), float(given["cost"][i])
            )
            mean, precision = networks.factor(normalisers.encoder_input(observation, action, target))
            note("factor_mean", mean)
            note("factor_precision", precision)
        if networks.predicts:
            note("prediction", networks.prediction(normal, action, latent))
        if networks.critics is not None:
            networks.critics.prepare(normal, context, eta)
            networks.critics.reward_critic.prepare(normal, context)
            for name, critic in (("cost", networks.critics.cost_critic), ("reward", networks.critics.reward_critic)):
                value, gradient = critic.value_and_gradient(action)
                note(f"{name}_value", value)
                note(f"{name}_gradient", gradient)
    return {name: np.array(values, np.float32) for name, values in rows.items()}


def replay(manifest: Manifest, networks: PolicyNetworks, golden: Mapping[str, np.ndarray]) -> None:
    """Compute the outputs again and refuse when they differ."""
    size, actions, latent = len(manifest.observation), len(manifest.action), manifest.network.latent
    shapes = ((size,), (actions,), (size,), (), (), (latent,), ())
    if "eta" not in golden or golden["eta"].ndim != 1 or not LEAST <= len(golden["eta"]) <= MOST:
        raise Refused(f"The golden vectors are not between {LEAST} and {MOST}.")
    count = len(golden["eta"])
    for name, shape in zip(INPUTS, shapes, strict=True):
        weight(golden, name, (count, *shape))
    if not ((golden["eta"] >= 0.0) & (golden["eta"] < 1.0)).all():
        raise Refused("The golden vectors hold an eta outside [0, 1).")
    found = outputs(manifest, networks, golden)
    if set(golden) != set(INPUTS) | set(found):
        odd = sorted(set(golden) ^ (set(INPUTS) | set(found)))[0]
        raise Refused(f"The golden vectors and the networks disagree about {odd[:64]!r}.")
    for name, computed in found.items():
        expected = weight(golden, name, computed.shape)
        gradient = name.endswith("gradient")
        size_of = np.abs(expected).max(axis=-1, keepdims=True, initial=0.0) if gradient else np.abs(expected)
        error = np.abs(computed - expected) / np.maximum(1.0, size_of)
        worst = float(error.max(initial=0.0))
        if not worst <= (GRADIENT_TOLERANCE if gradient else TOLERANCE):
            what = name[len(OUTPUT) :].replace("_", " ")
            raise Refused(
                f"The networks do not reproduce their golden vectors on this machine ({what} is {worst:.1e} off)."
            )
