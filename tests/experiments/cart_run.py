"""A run of carts whose policy was never trained, and a calibration that nobody measured: enough to be exported."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

from ashore import artifacts
from ashore.environments import tasks
from ashore.experiments import presets, training
from ashore.experiments.training import TrainingRun
from ashore.learning import normalisation
from ashore.learning.risk import RiskConfig
from ashore.learning.train_config import architecture
from ashore.networks import architecture as networks
from toy_world import CARTS

QUICKLY = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
"""For programs that run once. Eagerly, operation by operation, making the networks takes ten times as long."""
TASK = "Cart"
COST_DISCOUNT = 0.95


def register(patch) -> None:
    patch.setitem(tasks.TASKS, TASK, CARTS)


def write(
    folder: Path,
    seeds: int = 1,
    risk_conditioned: bool = False,
    task: str = TASK,
    task_preset: str = "short",
    method: str = "risk_adaptive",
) -> Path:
    """A run whose cost critic discounts in its own way; `register` must have been called."""
    smoke = presets.lookup("Platoon", "smoke").train
    settings = replace(smoke, cost_discount=COST_DISCOUNT, risk=RiskConfig(conditioned=risk_conditioned))
    run = TrainingRun(task, task_preset, method, settings, seeds=seeds)
    training.begin(run, folder)
    nets = architecture(training.task_of(run), settings)
    init = jax.jit(networks.init, static_argnums=1, compiler_options=QUICKLY)

    def write_seed(seed: int, path: Path) -> None:
        tensors = networks.named_weights(init(jax.random.key(seed), nets))
        for name, statistics in normalisation.init(nets.observation, len(nets.features))._asdict().items():
            tensors |= {f"normaliser/{name}/{field}": value for field, value in statistics._asdict().items()}
        # A cart that mostly pushes: there is some cost to reduce.
        tensors["actor/output/bias"] = jnp.full(nets.action, 1.0)
        save_file({name: np.asarray(value, order="C") for name, value in tensors.items()}, path)

    files = {f"seed_{seed}.safetensors": lambda path, seed=seed: write_seed(seed, path) for seed in range(seeds)}
    artifacts.write_folder(folder / training.POLICY, files, {"decisions": 24})
    return folder


def calibrate(
    run: Path,
    caution: str = "refinement",
    discounted: float = 0.1 / (1 - COST_DISCOUNT),
    asked: float | None = None,
) -> Path:
    """What `ashore calibrate` would leave, with a schedule from a made-up measurement."""
    weights = hashlib.sha256((run / training.POLICY / "seed_0.safetensors").read_bytes()).hexdigest()
    content = {
        "schema": 1,
        "weights_sha256": weights,
        "budget": {"discounted": discounted},
        "settings": {"budget": asked},
        "caution": caution,
        "refinement": {"steps": 3, "variant": "unit", "threshold_scale": 0.01},
        "counts": [0, 8, 16, 32],
        "eta": [0.9, 0.9, 0.5, 0.0],
        "infeasible": [True, False, False, False],
        "epsilon": [1.0, 0.5, None, 0.1],
        "change": None,
        "assumptions": ["The world is one of those that were simulated."],
    }
    path = run / "calibration" / "seed_0" / "calibration.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path
