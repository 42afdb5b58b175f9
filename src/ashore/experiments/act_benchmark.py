"""How long a decision takes: each part of it and the whole, by implementation, network size and refinement steps."""

import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from ashore import names
from ashore.calibration import lone_decisions
from ashore.calibration.careful_policy import CarefulPolicy
from ashore.calibration.refinement import RefinementConfig
from ashore.experiments import decision_parts, jax_twin, onnx_export, onnx_extra
from ashore.experiments.decision_parts import Question, Work
from ashore.experiments.machine import this_machine
from ashore.experiments.onnx_policy import OnnxPolicy
from ashore.learning import normalisation
from ashore.networks.architecture import SIZES, Architecture, Sizes, init, named_weights
from ashore_runtime import Limits, Runtime, bundle, golden, process
from ashore_runtime.bundle import Bundle
from ashore_runtime.policy import PolicyNetworks
from ashore_runtime.schema import Budget, Calibration, Field, Manifest, Network, Refinement, Task

PAPER_MS = {5: 3.51, 15: 9.18}
"""The paper's table: milliseconds per decision by refinement steps, on an RTX 3090."""
BACKENDS = ("numpy", "onnx", "jax-cpu", "jax-gpu", "jax-gpu-tensorfloat32", "jax-gpu-bfloat16")
"""Implementations; on a GPU in full precision and in those that its matrix units have."""
STEPS = (5, 15)
_ETA = 0.5
_OBSERVATIONS, _FEATURES = 60, (0, 1, 2)
_ACTIONS = 2
_IMPOSSIBLE, _ANYTHING = 1e-9, 1e9
"""Thresholds, as multiples of the budget, that no action fits and that every action fits."""
_WARM_UP = 20


@dataclass(frozen=True)
class ActBenchmark:
    """Measure the latency of a decision: NumPy on one thread, ONNX Runtime, and JAX on whatever devices there are."""

    backends: tuple[str, ...] = BACKENDS
    """Which implementations; those that cannot run here are left out."""
    sizes: tuple[str, ...] = ("small", "standard", "paper")
    """Sizes of networks with random weights; not used when a bundle is given."""
    repeats: int = 2000
    """Decisions per row, fewer where they would take longer than `seconds`."""
    seconds: float = 10.0
    """Longest time for one row."""
    out: Path = Path("runs/bench_act.json")
    """File for the results, with the machine they were measured on."""

    def __post_init__(self) -> None:
        if self.repeats < 1 or not self.seconds > 0:
            raise ValueError("There must be something to measure, and time for it.")
        for kind, given, known in (("backend", self.backends, BACKENDS), ("size", self.sizes, SIZES)):
            for name in given:
                names.lookup(kind, name, dict.fromkeys(known))


@dataclass(frozen=True)
class Latency:
    """One row, in milliseconds."""

    backend: str
    size: str
    what: str
    """`act K=5` and so on are whole decisions; the others are parts of one."""
    p50: float
    p99: float
    p99_9: float
    worst: float
    repeats: int


def measure(config: ActBenchmark, path: Path | None) -> Iterator[Latency]:
    """Measure row by row.

    Args:
        config: what to measure.
        path: a bundle, or None for random weights in all the sizes.
    """
    process.one_blas_thread()
    if path is not None:
        yield from _measure_bundle(config, bundle.load(path).manifest.task.name, path)
        return
    for size in config.sizes:
        with tempfile.TemporaryDirectory() as folder:
            yield from _measure_bundle(config, size, random_bundle(SIZES[size], Path(folder) / "random.bundle"))


def write(path: Path, rows: list[Latency]) -> Path:
    """Write the rows as JSON, with the machine they were measured on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "machine": this_machine().as_dict(),
        "threads": {"numpy": 1, "onnx": 1, "jax-cpu": "as many as XLA takes"},
        "paper_ms": {f"K={steps}": ms for steps, ms in PAPER_MS.items()},
        "rows": [asdict(row) for row in rows],
    }
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def random_bundle(sizes: Sizes, path: Path) -> Path:
    """A bundle of untrained networks for a task like PointGoal2: latency does not ask what weights mean."""
    nets = Architecture(_OBSERVATIONS, _ACTIONS, _FEATURES, sizes)
    weights = {name: np.asarray(leaf) for name, leaf in named_weights(init(jax.random.key(0), nets)).items()}
    for kind, statistics in normalisation.init(_OBSERVATIONS, len(_FEATURES))._asdict().items():
        weights |= {f"normaliser/{kind}/{part}": np.asarray(getattr(statistics, part)) for part in ("mean", "variance")}
    critic = nets.critic
    network = Network(
        latent=sizes.latent,
        hidden=sizes.hidden,
        critic_width=critic.width,
        critic_blocks=critic.blocks,
        critic_heads=critic.heads,
        feature_layers=critic.feature_layers,
        cosines=critic.cosines,
        fractions=sizes.fractions,
        activation=critic.activation,
        dynamics_scale=sizes.dynamics_scale,
        risk_conditioned=False,
    )
    manifest = Manifest(
        task=Task("random", "Random weights, for timing.", "none", 1.0),
        observation=tuple(Field(f"s{i}", "1", None, None) for i in range(_OBSERVATIONS)),
        action=tuple(Field(f"a{i}", "1", -1.0, 1.0) for i in range(_ACTIONS)),
        dynamics_features=_FEATURES,
        network=network,
        budget=Budget(25.0, 0.1, 10.0, 0.99, 250),
    )
    given = golden.inputs(manifest, weights)
    vectors = given | golden.outputs(manifest, PolicyNetworks(manifest, weights), given)
    calibration = Calibration(counts=(0,), eta=(_ETA,), infeasible=(False,))
    return bundle.write(path, manifest, weights, vectors, "# Random weights\n", calibration)


def _measure_bundle(config: ActBenchmark, name: str, place: Path) -> Iterator[Latency]:
    for backend in config.backends:
        for what, work in _work(backend, place):
            yield _timed(backend, name, what, work, config)


def _work(backend: str, place: Path) -> Iterator[tuple[str, Work]]:
    if backend == "numpy":
        yield from _numpy_work(place)
    elif backend == "onnx":
        if onnx_extra.available():
            yield from _onnx_work(bundle.load(place))
    else:
        _, platform, *rough = backend.split("-")
        try:
            device = jax.devices(platform)[0]
        except RuntimeError:
            return
        with jax.default_device(device):
            yield from _jax_work(bundle.load(place), rough[0] if rough else "float32", alone=platform == "gpu")


def _decision(steps: int) -> str:
    return f"act K={steps}"


def _refinement(steps: int, threshold: float) -> Refinement:
    """The default, which judges every action that it might send."""
    return Refinement(steps=steps, threshold_scale=threshold)


def _question(found: Bundle) -> Question:
    latent, action = np.zeros(found.manifest.network.latent), np.zeros(len(found.manifest.action))
    return Question(_observations(found), latent.astype(np.float32), action.astype(np.float32), _ETA)


def _observations(found: Bundle) -> np.ndarray:
    mean, variance = (found.weights[f"normaliser/observation/{part}"] for part in ("mean", "variance"))
    generator = np.random.default_rng(0)
    drawn = mean + np.sqrt(variance) * generator.normal(size=(256, len(mean)))
    low = [-np.inf if field.low is None else field.low for field in found.manifest.observation]
    high = [np.inf if field.high is None else field.high for field in found.manifest.observation]
    return np.clip(drawn, low, high).astype(np.float32)


def _numpy_work(place: Path) -> Iterator[tuple[str, Work]]:
    def runtime(steps: int, threshold: float) -> Runtime:
        limits = Limits(deadline=float("inf"), detect_changes=False, over_budget=None)
        loaded = Runtime.load(
            place,
            limits=limits,
            eta=_ETA,
            caution="refinement",
            refinement=_refinement(steps, threshold),
            freeze=False,
        )
        loaded.arm()
        return loaded

    feasible = runtime(STEPS[0], _ANYTHING)
    asked = _question(feasible.bundle)
    yield from decision_parts.numpy_parts(feasible.bundle, asked)
    yield "act, nominal action fits", lambda i: feasible.act(asked.seen(i))
    for steps in STEPS:
        refining = runtime(steps, _IMPOSSIBLE)
        yield _decision(steps), lambda i, refining=refining: refining.act(asked.seen(i))

    def transition(i: int) -> object:
        return feasible.observe(asked.seen(i + 1), 0.1, 0.0)

    # Without its act an observation follows nothing and is not used; so the two are timed together.
    yield "act, nominal action fits, and observe", lambda i: (feasible.act(asked.seen(i)), transition(i))


def _onnx_work(found: Bundle) -> Iterator[tuple[str, Work]]:
    policy = OnnxPolicy(found.manifest, onnx_export.build(found.manifest, found.weights))
    asked = _question(found)
    yield from decision_parts.onnx_parts(policy, found.manifest, asked)
    for steps in STEPS:
        refining = replace(found.manifest.refinement, steps=steps)
        yield (
            _decision(steps),
            lambda i, refining=refining: policy.act(asked.seen(i), asked.latent, _ETA, refining, _IMPOSSIBLE),
        )


def _jax_work(found: Bundle, compute: str, alone: bool) -> Iterator[tuple[str, Work]]:
    """One fused program per part and per decision; the observation comes from the host and the answer goes back to it.

    Args:
        compute: of the matrix products.
        alone: whether decisions take the way that is shorter and does more: on a GPU, which one does not fill. Parts
            are the plain program's either way.
    """
    twin = jax_twin.twin(found.manifest, found.weights)
    nets = replace(twin.policy.nets, sizes=replace(twin.policy.nets.sizes, compute=compute))
    weights = jax.device_put(twin.weights)
    asked = _question(found)
    plain = CarefulPolicy(nets, twin.policy.budget, "refinement")
    yield from decision_parts.jax_parts(plain, weights, found.manifest, asked)
    belief = jnp.asarray(asked.latent), jnp.float32(_ETA)
    cases: Mapping[str, Refinement] = {
        "act, nominal action fits": _refinement(STEPS[0], _ANYTHING),
        **{_decision(steps): _refinement(steps, _IMPOSSIBLE) for steps in STEPS},
    }
    for what, numbers in cases.items():
        policy = CarefulPolicy(nets, twin.policy.budget, "refinement", RefinementConfig(**asdict(numbers)))
        if alone:
            decide = lone_decisions.compiled(policy, weights)
            yield what, lambda i, decide=decide: decide(asked.seen(i), asked.latent, _ETA).action
        else:
            act = jax.jit(policy.act)
            yield what, lambda i, act=act: np.asarray(act(weights, asked.seen(i), *belief).action)


def _timed(backend: str, size: str, what: str, work: Work, config: ActBenchmark) -> Latency:
    for i in range(_WARM_UP):
        work(i)
    spent: list[int] = []
    end = time.perf_counter() + config.seconds
    with process.no_collection():
        for i in range(config.repeats):
            begun = time.perf_counter_ns()
            work(i)
            spent.append(time.perf_counter_ns() - begun)
            if time.perf_counter() > end:
                break
    p50, p99, p99_9, worst = (np.quantile(spent, (0.5, 0.99, 0.999, 1.0)) * 1e-6).tolist()
    return Latency(backend, size, what, p50, p99, p99_9, worst, len(spent))
