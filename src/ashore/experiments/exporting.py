"""From a trained run to a bundle: weights, calibration, golden vectors and a card, in one thing that travels."""

import dataclasses
import hashlib
import json
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load_file

import ashore
import ashore_runtime
from ashore import artifacts
from ashore.budget import Budget
from ashore.environments.base import Task
from ashore.experiments import training
from ashore.experiments.bundle_card import Facts, write_card
from ashore.experiments.calibration import FILE as CALIBRATION
from ashore.experiments.calibration import FOLDER as CALIBRATIONS
from ashore.experiments.jax_twin import golden_vectors
from ashore.learning.train_config import architecture, budget
from ashore.methods import registry
from ashore.methods.base import Method
from ashore.networks.architecture import CRITIC_NAMES, with_scale_inside
from ashore_runtime import bundle, schema, tensors
from ashore_runtime.bundle import Bundle
from ashore_runtime.calibration_reading import calibration_from_json
from ashore_runtime.schema import Calibration, ChangeCalibration, Manifest, Network, Refinement
from ashore_runtime.signature import KEY_BYTES

LIBRARIES = ("jax", "mujoco", "mujoco-mjx", "numpy", "safetensors")
"""Whose versions are written into a manifest."""
NEVER_REFINED = ("nominal", "domain_randomisation", "spidr", "robust", "pearl")
"""Methods that act as they were trained: without a calibration nobody asks their critics, most of a bundle's bytes."""


class Trained(NamedTuple):
    """One seed of a run, as its folder holds it."""

    folder: Path
    run: training.TrainingRun
    task: Task
    seed_index: int
    weights: Mapping[str, np.ndarray]
    """Without the networks that its method leaves untrained, and for actions as they are."""
    sha256: str
    """Of the file with the weights."""
    decisions: int
    """Taken in every world."""

    @property
    def method(self) -> Method:
        """What it was trained by."""
        return registry.lookup(self.run.method)

    @property
    def identifies(self) -> bool:
        """Whether it finds out which world it is in."""
        return "encoder" not in self.method.untrained

    @property
    def predicts(self) -> bool:
        """Whether it predicts what a world does, so that a change can be noticed."""
        return "dynamics" not in self.method.untrained


class Calibrated(NamedTuple):
    """A run's calibration."""

    calibration: Calibration
    """As the runtime reads it."""
    content: Mapping[str, Any]
    """Everything in its file."""


def load_trained(folder: Path, seed_index: int) -> Trained:
    """One seed of a run; a ValueError with one sentence if it is not there or was damaged."""
    run = training.load(folder)
    task, method = training.task_of(run), registry.lookup(run.method)
    method.trained_by(task, run.train)
    if not (folder / training.POLICY).exists():
        raise ValueError(f"{folder} has no policy yet: train it first, or resume it and stop it with Ctrl-C.")
    facts = artifacts.verify_folder(folder / training.POLICY)
    file = folder / training.POLICY / f"seed_{seed_index}.safetensors"
    if not file.exists():
        there = len(list(file.parent.glob("seed_*.safetensors")))
        raise ValueError(f"{folder} has the seeds 0 to {there - 1}, and not {seed_index}.")
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    weights = {name: leaf for name, leaf in load_file(file).items() if name.split("/")[0] not in method.untrained}
    travelling = with_scale_inside(architecture(task, run.train), weights)
    return Trained(folder, run, task, seed_index, travelling, sha256, facts["decisions"])


def read_calibration(trained: Trained) -> Calibrated | None:
    """The run's calibration; None where there is none."""
    path = trained.folder / CALIBRATIONS / f"seed_{trained.seed_index}" / CALIBRATION
    if not path.exists():
        return None
    content = json.loads(path.read_text())
    if content.get("weights_sha256") != trained.sha256:
        raise ValueError(f"{path} belongs to other weights: calibrate the run again, or export --without-calibration.")
    limit, made_for = _limit(trained, content).discounted, content["budget"]["discounted"]
    if content["caution"] != "actor" and not np.isclose(limit, made_for):
        raise ValueError(
            f"{path} refined towards a discounted budget of {made_for:g}, and the run's is {limit:g}: calibrate the "
            "run again, or export --without-calibration."
        )
    return Calibrated(calibration_from_json(content), content)


def export_run(
    trained: Trained,
    path: Path,
    calibrated: Calibrated | None,
    *,
    change: ChangeCalibration | None = None,
    extra: Mapping[str, bytes] | None = None,
    secret_key: bytes | None = None,
) -> Bundle:
    """Write a bundle and read it back.

    Args:
        trained: one seed of a run.
        path: a zip if it ends in `.zip`, a folder otherwise; a bundle that stood there is replaced.
        calibrated: what `read_calibration` gave; without it the policy runs at eta = 0.
        change: what the change detector was calibrated to, if the calibration does not say.
        extra: optional ONNX files by name.
        secret_key: signs the manifest; without it there is no signature.
    """
    calibration, content = (None, {}) if calibrated is None else calibrated
    if calibration is not None and calibration.change is None and change is not None:
        calibration = dataclasses.replace(calibration, change=change)
    manifest = describe(trained, content)
    weights = _travelling(trained, manifest)
    vectors = golden_vectors(manifest, weights)
    hashes = {
        f"the run's policy/seed_{trained.seed_index}.safetensors": trained.sha256,
        bundle.WEIGHTS: hashlib.sha256(tensors.serialise(weights)).hexdigest(),
        bundle.GOLDEN: hashlib.sha256(tensors.serialise(vectors)).hexdigest(),
    }
    facts = Facts(path.name, trained.method.summary, training_in_words(trained), trained.identifies, hashes)
    card = write_card(manifest, calibration, facts)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = bundle.write(path, manifest, weights, vectors, card, calibration, extra=extra, secret_key=secret_key)
    return bundle.load(written)


def read_secret_key(file: Path) -> bytes:
    """What signs a bundle, from hexadecimal digits; a ValueError with one sentence, which does not repeat them."""
    try:
        key = bytes.fromhex(file.read_text().strip())
    except OSError as error:
        raise ValueError(f"The key file {file} cannot be read: {error.strerror}.") from error
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(f"{file} is not a secret key: {2 * KEY_BYTES} hexadecimal digits and nothing else.")
    return key


def describe(trained: Trained, calibrated: Mapping[str, Any]) -> Manifest:
    """The manifest of one seed.

    Args:
        trained: the seed.
        calibrated: what its calibration file holds, empty without one; the caution that was calibrated is the one
            that travels.
    """
    description, run = trained.task.description, trained.run
    nets, limit = architecture(trained.task, run.train), _limit(trained, calibrated)
    usual = "actor" if nets.risk_conditioned else "refinement"
    critic, ranges = nets.critic, trained.method.trained_by(trained.task, run.train).ranges
    return Manifest(
        method=run.method,
        task=schema.Task(description.name, description.summary, description.action_map, description.control_period),
        observation=tuple(schema.Field(f.name, f.unit, f.low, f.high) for f in description.observation),
        action=tuple(schema.Field(f.name, f.unit, f.low, f.high) for f in description.action),
        dynamics_features=nets.features,
        closeness=nets.closeness,
        contrasts=nets.contrasts,
        approaches=nets.approaches,
        network=Network(
            latent=nets.sizes.latent,
            hidden=nets.sizes.hidden,
            critic_width=critic.width,
            critic_blocks=critic.blocks,
            critic_heads=critic.heads if calibrated or run.method not in NEVER_REFINED else 0,
            feature_layers=critic.feature_layers,
            cosines=critic.cosines,
            fractions=nets.sizes.fractions,
            activation=critic.activation,
            dynamics_scale=nets.sizes.dynamics_scale,
            risk_conditioned=nets.risk_conditioned,
        ),
        budget=schema.Budget(
            limit.per_episode, limit.per_decision, limit.discounted, limit.discount, limit.decisions_per_episode
        ),
        refinement=Refinement(**calibrated.get("refinement", {})),
        caution=calibrated.get("caution", usual),
        training_ranges=tuple(dataclasses.asdict(row) for row in ranges),
        versions=versions(),
    )


def _limit(trained: Trained, calibrated: Mapping[str, Any]) -> Budget:
    """The budget that the calibration was asked for, and otherwise the one that was trained for."""
    limit, asked = budget(trained.task, trained.run.train), calibrated.get("settings", {}).get("budget")
    return limit if asked is None else dataclasses.replace(limit, per_episode=asked)


def _travelling(trained: Trained, manifest: Manifest) -> dict[str, np.ndarray]:
    """The weights that a bundle with this manifest holds."""
    left = () if manifest.network.critic_heads else CRITIC_NAMES
    return {
        name: tensor
        for name, tensor in trained.weights.items()
        if not name.endswith("/count") and name.split("/")[0] not in left
    }


def training_in_words(trained: Trained) -> str:
    """How a policy came about, in one sentence."""
    run, description = trained.run, trained.task.description
    env_steps = trained.decisions * run.train.worlds * description.action_repeat
    return (
        f"method `{run.method}` on {run.task} (preset {run.task_preset}), {env_steps / 1e6:.2f} M env steps in "
        f"{run.train.worlds} simulated worlds, seed {run.seed} (index {trained.seed_index} of {run.seeds})"
    )


def versions() -> dict[str, str]:
    """Versions of what takes part, and the revision of the source where it is known."""
    found = {"ashore": ashore.__version__, "python": platform.python_version()}
    found |= {name: metadata.version(name) for name in LIBRARIES}
    return found | {"source": _revision()}


def _revision() -> str:
    """The last commit that touched either package; `+` where something is not committed."""
    here, runtime = (str(Path(str(package.__file__)).parent) for package in (ashore, ashore_runtime))
    asked = (["log", "-1", "--format=%H", "--", here, runtime], ["status", "--porcelain", "--", here, runtime])
    try:
        answers = [subprocess.run(["git", "-C", here, *words], capture_output=True, text=True) for words in asked]
    except OSError:
        return "unknown"
    commit, changes = (answer.stdout.strip() for answer in answers)
    return (commit + ("+" if changes else "")) or "unknown"
