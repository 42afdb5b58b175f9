"""Compilation without optimisation, for programs that run so briefly that optimising them costs more than it saves."""

import contextlib
import functools
from collections.abc import Generator

import jax

jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})

QUICK_PROCESS = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
"""Environment of a process whose programs are compiled as `quickly` compiles them, to the bit."""


@contextlib.contextmanager
def quickly() -> Generator[None, None, None]:
    """The same for programs that are compiled inside the library."""
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", False)
