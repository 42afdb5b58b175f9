"""Checkpoints: everything a run needs to go on, bit for bit, as if it had never stopped.

A checkpoint is a folder `step_<decisions>` with one safetensors file, a leaf of the state per tensor, named by its path
in the state. The newest two are kept; when the newest one is damaged, the one before it is used and the caller is told.
"""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file, save_file

from ashore import artifacts

KEPT = 2
_TENSORS = "state.safetensors"
_PREFIX = "step_"


class Restored(NamedTuple):
    """A state read back from disk."""

    state: Any
    step: int
    facts: dict[str, Any]
    passed_over: list[str]
    """One sentence for each newer checkpoint that was damaged."""


def save(folder: Path, state: Any, step: int, facts: dict[str, Any]) -> Path:
    """Write a checkpoint and remove all but the newest ones; the old are there until the new one is complete."""
    tensors = {name: _as_numpy(leaf) for name, leaf in _leaves(state)}
    path = folder / f"{_PREFIX}{step:09d}"
    artifacts.write_folder(path, {_TENSORS: lambda file: save_file(tensors, file)}, {"step": step, **facts})
    for old in _newest_first(folder)[KEPT:]:
        shutil.rmtree(old)
    return path


def restore(folder: Path, template: Any) -> Restored:
    """The newest intact checkpoint.

    Args:
        folder: where checkpoints are kept.
        template: a state of the same shape, or what `jax.eval_shape` says of it.

    Raises:
        artifacts.Damaged: there is none, or none is intact.
    """
    passed_over: list[str] = []
    for path in _newest_first(folder):
        try:
            facts = artifacts.verify_folder(path)
            return Restored(_read(path / _TENSORS, template), int(facts["step"]), facts, passed_over)
        except artifacts.Damaged as damage:
            passed_over.append(str(damage))
    reasons = " ".join(passed_over) or "It holds none."
    raise artifacts.Damaged(f"{folder} has no intact checkpoint. {reasons}")


def _newest_first(folder: Path) -> list[Path]:
    found = [path for path in folder.glob(f"{_PREFIX}*") if path.name.removeprefix(_PREFIX).isdigit()]
    return sorted(found, key=lambda path: int(path.name.removeprefix(_PREFIX)), reverse=True)


def _leaves(state: Any) -> list[tuple[str, Any]]:
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(state)]


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _as_numpy(leaf: Any) -> np.ndarray:
    numbers = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf, order="C")
    # safetensors has no NumPy name for bfloat16; its bits travel as integers.
    return numbers.view(np.uint16) if numbers.dtype == jnp.bfloat16 else numbers


def _read(path: Path, template: Any) -> Any:
    tensors = load_file(path)
    expected = _leaves(template)
    different = {name for name, _ in expected} ^ set(tensors)
    if different:
        raise artifacts.Damaged(f"{path} belongs to another kind of run: {min(different)} is in only one of them.")
    leaves = [_as_leaf(path, name, tensors[name], leaf) for name, leaf in expected]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def _as_leaf(path: Path, name: str, numbers: np.ndarray, like: Any) -> jax.Array:
    if _is_key(like):
        leaf = jax.random.wrap_key_data(jnp.asarray(numbers))
    else:
        leaf = jnp.asarray(numbers.view(jnp.bfloat16) if like.dtype == jnp.bfloat16 else numbers)
    if leaf.shape != like.shape or leaf.dtype != like.dtype:
        raise artifacts.Damaged(f"{path} belongs to another kind of run: {name} is {leaf.shape}, not {like.shape}.")
    return leaf
