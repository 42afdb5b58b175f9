"""The parts of a decision: whoever takes part in the benchmark gives the same answers to the same questions."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from ashore.experiments import decision_parts, jax_twin, onnx_export
from ashore.experiments.decision_parts import ACTOR, COST, COST_GRADIENT, EVIDENCE, REWARD_GRADIENT, STEP, Question
from ashore.experiments.onnx_policy import OnnxPolicy
from ashore_runtime import bundle, golden
from ashore_runtime.bundle import Bundle
from ashore_runtime.policy import PolicyNetworks
from runtime import small_bundle

ALL = [ACTOR, COST, COST_GRADIENT, REWARD_GRADIENT, STEP, EVIDENCE]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return bundle.load(small_bundle.write(tmp_path_factory.mktemp("bundles") / "toy.bundle"))


@pytest.fixture(scope="module")
def asked() -> Question:
    generator = np.random.default_rng(0)

    def drawn(*shape: int) -> np.ndarray:
        return generator.uniform(-0.5, 0.5, shape).astype(np.float32)

    return Question(observations=drawn(5, 4), latent=drawn(3), action=drawn(2), eta=0.5)


def same(one, other) -> None:
    for mine, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert isinstance(theirs, float | np.floating | np.ndarray), "the answer has arrived on the host"
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_numpy_has_every_part_and_each_observation_its_own_answer(found: Bundle, asked: Question):
    parts = dict(decision_parts.numpy_parts(found, asked))
    assert list(parts) == ALL
    for work in parts.values():
        first, other, again = (np.hstack(jax.tree.leaves(work(i))) for i in (0, 1, 5))
        assert not np.array_equal(first, other) and np.array_equal(first, again)


def test_jax_has_the_same_parts_and_the_same_answers(found: Bundle, asked: Question):
    twin = jax_twin.twin(found.manifest, found.weights)
    ours = dict(decision_parts.numpy_parts(found, asked))
    theirs = dict(decision_parts.jax_parts(*twin, found.manifest, asked))
    assert list(theirs) == ALL
    for what in ALL:
        for i in range(5):
            same(ours[what](i), theirs[what](i))


def test_onnx_runtime_has_those_of_its_files_and_the_same_answers(found: Bundle, asked: Question):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    policy = OnnxPolicy(found.manifest, onnx_export.build(found.manifest, found.weights))
    ours = dict(decision_parts.numpy_parts(found, asked))
    theirs = dict(decision_parts.onnx_parts(policy, found.manifest, asked))
    assert list(theirs) == [ACTOR, STEP]
    for what, work in theirs.items():
        for i in range(5):
            same(ours[what](i), work(i))


def test_some_steps_are_taken_and_some_are_not_worth_it(found: Bundle, asked: Question):
    # Otherwise the three would agree on little.
    step = dict(decision_parts.numpy_parts(found, asked))[STEP]
    moved = [bool(np.abs(step(i)[0] - asked.action).max() > 1e-4) for i in range(5)]
    assert set(moved) == {True, False}


def test_what_a_bundle_does_not_hold_is_no_part_of_it(tmp_path: Path, asked: Question):
    whole = small_bundle.manifest()
    facts = replace(whole, network=replace(whole.network, critic_heads=0))
    kept = {n: w for n, w in small_bundle.weights(whole).items() if n.startswith(("actor", "normaliser"))}
    given = golden.inputs(facts, kept)
    vectors = given | golden.outputs(facts, PolicyNetworks(facts, kept), given)
    least = bundle.load(bundle.write(tmp_path / "least.bundle", facts, kept, vectors, "# A toy\n"))
    assert [what for what, _ in decision_parts.numpy_parts(least, asked)] == [ACTOR]
    twin = jax_twin.twin(facts, kept)
    assert [what for what, _ in decision_parts.jax_parts(*twin, facts, asked)] == [ACTOR]
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    policy = OnnxPolicy(facts, onnx_export.build(facts, kept))
    assert [what for what, _ in decision_parts.onnx_parts(policy, facts, asked)] == [ACTOR]
