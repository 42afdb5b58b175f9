"""The one door to MJX: what we ask of it, under the conditions it was written for."""

import contextlib
import io

import jax
import mujoco

with contextlib.redirect_stdout(io.StringIO()):  # MJX prints that its optional Warp backend is missing
    from mujoco import mjx as mjx


def put(model: mujoco.MjModel) -> tuple[mjx.Model, mjx.Data]:
    """Model and an empty data, on the device, for MJX's JAX implementation."""
    return mjx.put_model(model, impl="jax"), mjx.make_data(model, impl="jax")


def physics_step(model: mjx.Model, data: mjx.Data) -> mjx.Data:
    """One MJX step.

    MJX leans on implicit broadcasting and type promotion; our own code is checked with both forbidden, so they are
    allowed for the time of this call only.
    """
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return mjx.step(model, data)
