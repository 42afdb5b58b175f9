"""A suite of carts whose runs are not trained: weights are drawn, calibrations made up, evaluations are real."""

import hashlib
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

from ashore import artifacts
from ashore.calibration.config import CalibrationConfig
from ashore.calibration.ledger import Progress
from ashore.calibration.refinement import RefinementConfig
from ashore.environments import tasks
from ashore.experiments import presets, records, suite_run, suites, training
from ashore.experiments.calibration import CautionConfig
from ashore.experiments.suite_evaluation import OWN, Protocol
from ashore.experiments.suites import Cell, Scale, Shown, Suite
from ashore.learning import normalisation
from ashore.learning.train_config import architecture
from ashore.methods import registry
from ashore.methods.base import Method
from ashore.networks import architecture as networks
from toy_world import CARTS

METHODS = ("risk_adaptive", "without_risk_adaptation", "nominal", "full_push")
SUITE = Suite(
    summary="carts",
    cells=tuple(Cell("Cart", method) for method in METHODS),
    shown=(Shown("Cart", "Train", (OWN,), "Train"), Shown("Cart", "Both", ("train", "deploy"))),
    figures=("scatter", "shifts", "deployment", "training", "encoder", "charge", "calibration"),
    deployed_in=(("Cart", "deploy"),),
    preset="toy",
    seeds=2,
)
SCALE = Scale(
    protocol=Protocol(environments=3, episodes=2, windows=4, compute="float32"),
    # A threshold so low that refinement always has something to do.
    caution=CautionConfig(compute="float32", refinement=RefinementConfig(variant="unit", threshold_scale=0.01)),
    calibration=CalibrationConfig(environments=9, rule="budget"),
)
COUNTS, ETAS = [0, 8, 16], [0.9, 0.5, 0.0]
"""The made-up schedule."""


def push(task, believed):
    return lambda observation, key: jnp.ones(1, jnp.float32)


PUSH = Method("Always full force.", "nowhere", "nothing", instead="it is not trained", controller=push)


def register(patch) -> None:
    """Carts as a task with a preset, a controller as a method, and the suite `toy`; training and calibration faked."""
    patch.setitem(tasks.TASKS, "Cart", CARTS)
    patch.setitem(presets.PRESETS, "Cart", {"toy": presets.lookup("Platoon", "smoke")})
    patch.setitem(suites.SCALES, "toy", SCALE)
    patch.setitem(suites.SUITES, "toy", SUITE)
    patch.setitem(registry.METHODS, "full_push", PUSH)
    patch.setattr(training, "execute", train)
    patch.setattr(suite_run, "calibrate_run", calibrate)


@dataclass
class Onlooker:
    """Keeps what it was told."""

    said: list[str] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    @contextmanager
    def training(self) -> Generator[Any]:
        yield None

    def progress(self, progress: Progress) -> None:
        self.pieces.append(progress.piece)


trained: list[Path] = []
"""Runs in the order in which somebody trained them."""


def train(folder: Path, watcher: Any, stop: Callable[[], bool]) -> training.Ending:
    """Draw weights; asked to stop, leave a run that is half done."""
    run = training.load(folder)
    trained.append(folder)
    (folder / training.CHECKPOINTS).mkdir(exist_ok=True)
    done = run.train.chunk if stop() else run.train.decisions
    nets = architecture(training.task_of(run), run.train)

    def write_seed(seed: int, path: Path) -> None:
        tensors = networks.named_weights(networks.init(jax.random.key(seed), nets))
        for name, statistics in normalisation.init(nets.observation, len(nets.features))._asdict().items():
            tensors |= {f"normaliser/{name}/{part}": value for part, value in statistics._asdict().items()}
        # A cart that mostly pushes: there is some cost to reduce.
        tensors["actor/output/bias"] = jnp.full(nets.action, 1.0)
        save_file({name: np.asarray(value, order="C") for name, value in tensors.items()}, path)

    files = {f"seed_{seed}.safetensors": lambda path, seed=seed: write_seed(seed, path) for seed in range(run.seeds)}
    artifacts.write_folder(folder / training.POLICY, files, {"decisions": done})
    rows = [
        {"decisions": 8, "env_steps": 128, "episode_return": [None, None], "episode_cost": [None, None]},
        {"decisions": 16, "env_steps": 256, "episode_return": [1.0, 3.0], "episode_cost": [4.0, 2.0]},
    ]
    learnt = {
        "encoder_loss": [2.0, 1.0],
        "kl": [0.1, 0.2],
        "probe_force": [0.9, None],
        "cost_rate": [4.0, 2.0],
        "penalty_rate": [90.0, 0.0],
    }
    learnt = learnt if run.method == "risk_adaptive" else {}
    lines = [json.dumps({**row, "multiplier": [1.0, 0.5], **learnt}) + "\n" for row in rows]
    (folder / records.METRICS).write_text("".join(lines))
    return training.Ending(done, done >= run.train.decisions, folder)


def calibrate(
    run: Path, seed_index: int, caution: CautionConfig, config: CalibrationConfig, report: Any, stop: Any
) -> tuple[Path, Any]:
    """A schedule that nobody measured."""
    weights = hashlib.sha256((run / training.POLICY / f"seed_{seed_index}.safetensors").read_bytes()).hexdigest()
    content = {
        "schema": 1,
        "weights_sha256": weights,
        "budget": {"discounted": 10.0},
        "level": config.level,
        "rule": config.rule,
        "caution": "refinement",
        "refinement": asdict(caution.refinement),
        "compute": caution.compute,
        "settings": asdict(config),
        "tempering": 1.0,
        "assumptions": ["Nothing was measured."],
        "counts": COUNTS,
        "etas": [0.0, 0.5, 0.9],
        "eta": ETAS,
        "infeasible": [True, False, False],
        "epsilon": [1.0, 0.5, None],
        "per_episode": {"lipschitz": [2.0, 1.0, None], "direct": [1.0, 0.5, 0.2], "delta": [[0.0, 0.1, 0.2]] * 3},
    }
    path = run / "calibration" / f"seed_{seed_index}" / "calibration.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    report(Progress(f"calibration of seed {seed_index}", 1, 1, 1.0, 0.0))
    return path, None
