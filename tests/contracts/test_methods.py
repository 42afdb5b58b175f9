"""What every method promises: it trains on every task, goes on from a checkpoint as if nothing had happened, gives the
same numbers for the same key, and leaves a policy under the names that everybody reads.

A method that is added to `METHODS` is held to all of it without another line of test.
"""

import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.cli.main import main
from ashore.environments import tasks
from ashore.experiments import evaluation, presets, settings, training
from ashore.experiments.evaluation import EvaluationConfig, evaluate_controller
from ashore.learning import checkpoint, train
from ashore.learning.collect import CollectConfig
from ashore.learning.train import TrainConfig, TrainState
from ashore.methods.registry import METHODS
from ashore.networks import architecture, encoder
from ashore.networks.architecture import Sizes, named_weights
from toy_world import Cart, CartConfig

CART = Cart(CartConfig(decisions=5))
SETTINGS = TrainConfig(
    worlds=4,
    decisions=16,
    updates_per_decision=1,
    learning_starts=3,
    chunk=4,
    sizes=Sizes(critic_width=8, fractions=2, hidden=(8,), critic_blocks=1, context=4, latent=2, cosines=4),
    capacity=16,
    batch_tasks=2,
    batch_transitions=2,
    collect=CollectConfig(random_decisions=1),
)
TRAINED = [name for name, method in METHODS.items() if method.recipe is not None]
OTHERS = [name for name in METHODS if name not in TRAINED]
LATENT_FREE = ["nominal", "domain_randomisation", "spidr", "robust"]


# These programs run a few times: most of their time is compilation, which needs no optimisation.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@functools.cache
def program(name: str) -> Any:
    return jit(functools.partial(METHODS[name].train_chunk, CART, SETTINGS))


@functools.cache
def begin(name: str, seed: int) -> TrainState:
    return jit(functools.partial(METHODS[name].start, CART, SETTINGS))(jax.random.key(seed))


def go_on(name: str, state: TrainState, chunks: int) -> tuple[TrainState, dict[str, Any]]:
    metrics: dict[str, Any] = {}
    for _ in range(chunks):
        state, metrics = program(name)(state)
    return state, metrics


@functools.cache
def trained(name: str) -> tuple[TrainState, dict[str, Any]]:
    return go_on(name, begin(name, 0), 4)


def numbers(tree: Any) -> list[np.ndarray]:
    leaves = jax.tree.leaves(tree)
    return [
        np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)
        for leaf in leaves
    ]


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(numbers(one), numbers(other), strict=True))


@pytest.mark.parametrize("name", TRAINED)
def test_training_learns_and_stays_finite(name: str):
    state, metrics = trained(name)
    # Sixteen decisions, of which the first two come without an update.
    assert int(state.learner.updates) == 14 and int(state.learner.skipped) == 0
    assert not same(begin(name, 0).learner.params["actor"], state.learner.params["actor"])
    assert not same(begin(name, 0).learner.params["critics"], state.learner.params["critics"])
    floats = [leaf for leaf in numbers(state) if np.issubdtype(leaf.dtype, np.floating)]
    assert all(np.isfinite(leaf).all() for leaf in floats)
    # What a watcher shows of every method.
    assert {"cost_rate", "multiplier", "kl", "episode_return", "episode_cost"} <= set(metrics)


@pytest.mark.parametrize("name", TRAINED)
def test_the_same_key_gives_the_same_run_and_a_checkpoint_changes_nothing(name: str, tmp_path: Path):
    halfway, _ = go_on(name, begin(name, 0), 2)
    checkpoint.save(tmp_path, halfway, 8, {})
    template = jax.eval_shape(lambda key: METHODS[name].start(CART, SETTINGS, key), jax.random.key(0))
    resumed, _ = go_on(name, checkpoint.restore(tmp_path, template).state, 2)
    assert same(resumed, trained(name)[0])


@pytest.mark.parametrize("name", TRAINED)
def test_a_policy_is_stored_under_the_names_that_everybody_reads(name: str, tmp_path: Path):
    state, _ = trained(name)
    training._write_policy(tmp_path, jax.tree.map(lambda leaf: leaf[None], state), 16)
    ((params, normalisers),) = evaluation.load_policies(tmp_path)
    nets = train.architecture(CART, SETTINGS)
    expected = jax.eval_shape(lambda: named_weights(architecture.init(jax.random.key(0), nets)))
    stored = named_weights(params)
    assert {path: leaf.shape for path, leaf in stored.items()} == {path: leaf.shape for path, leaf in expected.items()}
    assert same(params, state.learner.params) and same(normalisers, state.normalisers)


@pytest.mark.parametrize("name", LATENT_FREE)
def test_without_a_latent_nothing_is_believed_anywhere(name: str):
    state, _ = trained(name)
    assert not np.any(state.collector.latent) and not np.any(state.collector.posterior.count)
    assert same(begin(name, 0).learner.params["encoder"], state.learner.params["encoder"])
    # Whoever deploys it may ask the encoder: it answers that the world is the prior's.
    nets = train.architecture(CART, SETTINGS)
    rows = jax.random.normal(jax.random.key(0), (20, nets.encoder.inputs))
    posterior = encoder.encode(nets.encoder, state.learner.params["encoder"], rows, jnp.ones(20, bool))
    np.testing.assert_array_equal(encoder.mean(posterior), np.zeros(2))


def test_the_penalty_is_reported_beside_the_true_cost():
    state, metrics = trained("spidr")
    assert float(metrics["penalty_rate"]) > 0.0 and np.any(np.asarray(state.replay.experience.penalty) > 0.0)
    assert [field.shape for field in jax.tree.leaves(state.models)] == [(8,), (8,)]


def test_another_key_gives_another_run():
    assert not same(begin("pearl", 1).parameters, begin("pearl", 0).parameters)


@functools.cache
def real_task(name: str) -> Any:
    family = tasks.TASKS[name]
    return family.make(family.presets[family.default_preset])


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("task_name", tasks.TASKS)
def test_it_trains_on_every_task_in_shapes_and_types(task_name: str, name: str):
    # Tracing meets every line that would run; compiling real worlds once per method would take minutes.
    task, smoke, method = real_task(task_name), presets.lookup(task_name, "smoke").train, METHODS[name]
    before = jax.eval_shape(lambda key: method.start(task, smoke, key), jax.random.key(0))
    after, metrics = jax.eval_shape(lambda state: method.train_chunk(task, smoke, state), before)
    shapes = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree) for tree in (before, after)]
    assert shapes[0] == shapes[1]
    assert all(value.shape == () for value in metrics.values())


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
        SETTINGS,
    )
    assert (changed.spidr.weight, changed.attack.kind, changed.sac.temperature) == (0.5, "reward", 1.0)
    assert settings.from_json(TrainConfig, json.loads(json.dumps(settings.to_json(changed)))) == changed
    assert hash(changed) != hash(SETTINGS)
