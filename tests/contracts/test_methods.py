"""What every method promises: it trains on every task, goes on from a checkpoint as if nothing had happened, gives the
same numbers for the same key, leaves a policy under the names that everybody reads, and leaves a bundle that acts.

A method that is added to `METHODS` is held to all of it without another line of test.
"""

import functools
import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.cli.main import main
from ashore.environments import tasks
from ashore.experiments import evaluation, exporting, presets, settings, training
from ashore.experiments.evaluation import EvaluationConfig, evaluate_controller
from ashore.experiments.training import TrainingRun
from ashore.learning import checkpoint, train_config
from ashore.learning.train_config import TrainConfig
from ashore.methods.registry import METHODS
from ashore.networks import architecture, encoder
from ashore.networks.architecture import named_weights
from ashore_runtime import bundle
from contracts import training_runs
from contracts.training_runs import (
    TRAINED,
    WORLD,
    deployed,
    go_on,
    jit,
    numbers,
    real_task,
    same,
    starting,
    write_trained,
)
from experiments import cart_run

OTHERS = [name for name in METHODS if name not in TRAINED]
LATENT_FREE = ["nominal", "domain_randomisation", "spidr", "robust"]
FORMS = {
    "spidr": [["spidr.ranges=train", "spidr.compare=dynamics", "spidr.multiplier=pid"]],
    "robust": [["attack.kind=reward", "attack.worlds=train"]],
}
"""Settings of the other forms that the methods' pages name."""

# Compiling is what takes the time here. One real world is trained in; the others, whose physics would be compiled once
# per method for minutes, are traced, which meets every line that would run (`test_training_everywhere` runs them).
SMOKE = training_runs.smoke(WORLD)
trained = functools.partial(training_runs.trained, WORLD)
begin = functools.partial(training_runs.begin, WORLD)


@pytest.mark.parametrize("name", TRAINED)
def test_training_learns_and_stays_finite(name: str):
    state, metrics = trained(name)
    # 24 decisions, of which the first three come without an update.
    assert int(state.learner.updates) == 21 and int(state.learner.skipped) == 0
    floats = [leaf for leaf in numbers(state) if np.issubdtype(leaf.dtype, np.floating)]
    assert all(np.isfinite(leaf).all() for leaf in floats)
    # What a watcher shows of every method.
    assert {"cost_rate", "multiplier", "kl", "episode_return", "episode_cost"} <= set(metrics)


@pytest.mark.parametrize("name", TRAINED)
def test_every_network_is_trained_or_said_not_to_be(name: str):
    before, after = begin(name, 0).learner.params, trained(name)[0].learner.params
    assert {part for part in before if same(before[part], after[part])} == set(METHODS[name].untrained)


@pytest.mark.parametrize("name", TRAINED)
def test_the_same_key_gives_the_same_run_and_a_checkpoint_changes_nothing(name: str, tmp_path: Path):
    early, _ = go_on(WORLD, name, begin(name, 0), 1)
    checkpoint.save(tmp_path, early, SMOKE.chunk, {})
    template = jax.eval_shape(starting(WORLD, name), jax.random.key(0))
    resumed, _ = go_on(WORLD, name, checkpoint.restore(tmp_path, template).state, 2)
    assert same(resumed, trained(name)[0])


@pytest.mark.parametrize("name", TRAINED)
def test_a_policy_is_stored_under_the_names_that_everybody_reads(name: str, tmp_path: Path):
    state, _ = trained(name)
    training._write_policy(tmp_path, jax.tree.map(lambda leaf: leaf[None], state), SMOKE.decisions)
    ((params, normalisers),) = evaluation.load_policies(tmp_path)
    nets = train_config.architecture(real_task(WORLD), SMOKE)
    expected = jax.eval_shape(lambda: named_weights(architecture.init(jax.random.key(0), nets)))
    stored = named_weights(params)
    assert {path: leaf.shape for path, leaf in stored.items()} == {path: leaf.shape for path, leaf in expected.items()}
    assert same(params, state.learner.params) and same(normalisers, state.normalisers)


@pytest.mark.parametrize("name", LATENT_FREE)
def test_without_a_latent_nothing_is_believed_anywhere(name: str):
    state, _ = trained(name)
    assert not np.any(state.collector.latent) and not np.any(state.collector.posterior.count)
    # Whoever deploys it may ask the encoder: it answers that the world is the prior's.
    nets = train_config.architecture(real_task(WORLD), SMOKE)
    rows = jax.random.normal(jax.random.key(0), (20, nets.encoder.inputs))
    encode = jit(lambda params: encoder.mean(encoder.encode(nets.encoder, params, rows, jnp.ones(20, bool))))
    np.testing.assert_array_equal(encode(state.learner.params["encoder"]), np.zeros(nets.sizes.latent))


def test_the_penalty_is_reported_beside_the_true_cost():
    state, metrics = trained("spidr")
    assert float(metrics["penalty_rate"]) > 0.0 and np.any(np.asarray(state.replay.experience.penalty) > 0.0)
    assert {field.shape for field in jax.tree.leaves(state.models)} == {(8,)}


def test_another_key_gives_another_run():
    assert not same(begin("pearl", 1).parameters, begin("pearl", 0).parameters)


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("task_name", training_runs.OTHERS)
def test_it_trains_on_every_task_in_shapes_and_types(task_name: str, name: str):
    task, smoke, method = real_task(task_name), presets.lookup(task_name, "smoke").train, METHODS[name]
    before = jax.eval_shape(lambda key: method.start(task, smoke, key), jax.random.key(0))
    after, metrics = jax.eval_shape(lambda state: method.train_chunk(task, smoke, state), before)
    shapes = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree) for tree in (before, after)]
    assert shapes[0] == shapes[1]
    assert all(value.shape == () for value in metrics.values())


def run_of(task_name: str, name: str, folder: Path) -> Path:
    """What `ashore train` leaves: the trained policy where there is one, and an untrained one elsewhere."""
    preset = tasks.TASKS[task_name].default_preset
    if task_name != WORLD:
        return cart_run.write(folder, task=task_name, task_preset=preset, method=name)
    return write_trained(task_name, name, folder)


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("task_name", tasks.TASKS)
def test_it_leaves_a_bundle_that_acts_at_risk_level_0(task_name: str, name: str, tmp_path: Path):
    # Exporting has the networks answer the golden vectors in JAX, and the runtime answer them again.
    made = exporting.export_run(exporting.load_trained(run_of(task_name, name, tmp_path), 0), tmp_path / "b", None)
    assert made.manifest.method == name and f"made by `{name}`" in made.card and "has no calibration" in made.card
    assert made.networks.identifies == (name not in LATENT_FREE)
    assert made.networks.predicts == (name == "risk_adaptive")
    seen = deployed(made.path, task_name)
    assert {(moment.result.eta, moment.result.k_used, moment.result.source) for moment in seen} == {(0.0, 0, "nominal")}
    assert all(moment.evidence.used for moment in seen)
    # Without an encoder the latent is zero for ever; with one it moves with the first transition.
    latents = np.array([moment.result.z_mean for moment in seen])
    assert not latents[0].any() and latents[1:].any(axis=1).all() == made.networks.identifies
    # Deterministic: PEARL's actor is its mean here, and the same deployment is the same to the last bit.
    again = deployed(made.path, task_name)
    for one, other in zip(seen, again, strict=True):
        np.testing.assert_array_equal(one.result.action, other.result.action)


def test_a_baseline_goes_from_run_to_deployment_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run, out = run_of(WORLD, "nominal", tmp_path / "run"), tmp_path / "out"
    assert main(["export", str(run)]) == 0
    assert "it runs at eta = 0.\n" in capsys.readouterr().out
    path = run / "bundle" / "seed_0.bundle"
    assert main(["inspect", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "nominal" in shown and "no encoder" in shown and "no calibration: the policy runs at eta = 0" in shown
    # A policy of the nominal world was in no other one.
    assert all(row["low"] == row["high"] == row["nominal"] for row in bundle.load(path).manifest.training_ranges)
    assert main(["deploy", str(path), "--shift", "deploy", "--episodes", "1", "--out", str(out)]) == 0
    assert "mean eta 0.00" in capsys.readouterr().out
    summary = json.loads((out / "summary.json").read_text())
    assert summary["method"] == "nominal" and summary["refined"] == 0 and summary["held_or_fallback"] == 0


@pytest.mark.parametrize("task_name", tasks.TASKS)
@pytest.mark.parametrize("name", TRAINED)
def test_every_preset_is_one_for_every_method(task_name: str, name: str, capsys: pytest.CaptureFixture[str]):
    task = real_task(task_name)
    for preset, changes in itertools.product(("smoke", "laptop", "gpu", "paper"), ([], *FORMS.get(name, []))):
        words = ["train", task_name, name, "--preset", preset, "--print-config", *(["--set", *changes] * bool(changes))]
        assert main(words) == 0
        run = settings.from_json(TrainingRun, json.loads(capsys.readouterr().out))
        recipe = METHODS[name].trained_by(task, run.train)
        assert [row.name for row in recipe.ranges] == [row.name for row in task.description.shifts["train"]]
        # What a method is does not depend on how long and how large it is trained.
        small = functools.reduce(settings.override, changes, SMOKE)
        assert recipe.ranges == METHODS[name].trained_by(task, small).ranges


@pytest.mark.parametrize("name", OTHERS)
def test_a_method_that_is_not_trained_says_what_to_do_instead(name: str, capsys: pytest.CaptureFixture[str]):
    assert main(["train", "Platoon", name, "--preset", "smoke"]) == 2
    assert capsys.readouterr().err == f"ashore: {METHODS[name].instead}\n"


def test_a_controller_is_evaluated_like_a_run():
    config = EvaluationConfig(shifts=("train", "deploy"), environments=4, episodes=1)
    knowing, guessing = (
        evaluate_controller(real_task("Platoon"), METHODS["fvd"], believes, config) for believes in ("true", "nominal")
    )
    assert [result.shift for result in knowing] == ["train", "deploy"]
    for mine, other in zip(knowing, guessing, strict=True):
        assert np.isfinite(mine.episode_return.mean) and mine.episode_return.mean != other.episode_return.mean


def test_every_method_is_listed_with_its_provenance(capsys: pytest.CaptureFixture[str]):
    assert main(["list", "--methods"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name, method in METHODS.items():
        assert f"{name}: {method.summary}" in shown
        assert method.reference in shown and method.differs in shown


def test_settings_of_a_method_are_reached_by_name_and_survive_a_file():
    changed = functools.reduce(
        settings.override,
        ["spidr.weight=0.5", "attack.kind=reward", "sac.temperature=1", "attack.radius=0.1"],
        SMOKE,
    )
    assert (changed.spidr.weight, changed.attack.kind, changed.sac.temperature) == (0.5, "reward", 1.0)
    assert settings.from_json(TrainConfig, json.loads(json.dumps(settings.to_json(changed)))) == changed
    assert hash(changed) != hash(SMOKE)
