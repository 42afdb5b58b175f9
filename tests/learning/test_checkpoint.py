"""Checkpoints: a run that was stopped goes on bit for bit, and a damaged checkpoint costs one interval, not the run."""

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.artifacts import Damaged
from ashore.learning import checkpoint


class State(NamedTuple):
    weights: dict[str, jax.Array]
    key: jax.Array
    count: jax.Array
    small: jax.Array
    flags: jax.Array


def state(seed: int) -> State:
    key = jax.random.key(seed)
    return State(
        weights={"kernel": jax.random.normal(key, (3, 4)), "bias": jnp.zeros(4)},
        key=jax.random.split(key, 2),
        count=jnp.int32(seed),
        small=jnp.array([1.5, -2.25], jnp.bfloat16),
        flags=jnp.array([True, False]),
    )


def same(one: Any, other: Any) -> bool:
    def numbers(leaf: jax.Array) -> np.ndarray:
        return np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)

    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(a.dtype == b.dtype and np.array_equal(numbers(a), numbers(b)) for a, b in pairs)


def test_every_kind_of_leaf_comes_back_bit_for_bit(tmp_path: Path):
    checkpoint.save(tmp_path, state(3), step=3, facts={"note": "x"})
    restored = checkpoint.restore(tmp_path, jax.eval_shape(lambda: state(0)))
    assert restored.step == 3 and restored.facts["note"] == "x" and restored.passed_over == []
    assert same(restored.state, state(3))
    # A key that came back draws what it would have drawn.
    np.testing.assert_array_equal(jax.random.normal(restored.state.key[0]), jax.random.normal(state(3).key[0]))


def test_the_two_newest_are_kept(tmp_path: Path):
    for step in (5, 10, 100, 20):
        checkpoint.save(tmp_path, state(step), step, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_000000020", "step_000000100"]
    assert checkpoint.restore(tmp_path, state(0)).step == 100


def test_a_damaged_checkpoint_is_passed_over_and_said_so(tmp_path: Path):
    for step in (1, 2):
        checkpoint.save(tmp_path, state(step), step, {})
    tensors = tmp_path / "step_000000002" / "state.safetensors"
    content = bytearray(tensors.read_bytes())
    content[-1] ^= 1
    tensors.write_bytes(content)
    restored = checkpoint.restore(tmp_path, state(0))
    assert restored.step == 1 and same(restored.state, state(1))
    assert len(restored.passed_over) == 1 and "step_000000002" in restored.passed_over[0]


def test_nothing_intact_is_an_error_that_says_why(tmp_path: Path):
    with pytest.raises(Damaged, match="holds none"):
        checkpoint.restore(tmp_path, state(0))
    path = checkpoint.save(tmp_path, state(1), 1, {})
    (path / "state.safetensors").unlink()
    with pytest.raises(Damaged, match="lacks state.safetensors"):
        checkpoint.restore(tmp_path, state(0))


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path):
    checkpoint.save(tmp_path, state(1), 1, {})
    wider = state(1)._replace(count=jnp.zeros(2, jnp.int32))
    with pytest.raises(Damaged, match="another kind of run"):
        checkpoint.restore(tmp_path, wider)
    with pytest.raises(Damaged, match="another kind of run"):
        checkpoint.restore(tmp_path, {"only": jnp.zeros(1)})


def test_an_unfinished_checkpoint_is_not_there(tmp_path: Path):
    checkpoint.save(tmp_path, state(1), 1, {})
    (tmp_path / "step_000000002.unfinished").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checkpoint.restore(tmp_path, state(0)).step == 1
