"""How every test runs: no implicit broadcasting, no implicit type promotion, compiled programs kept between runs."""

from collections.abc import Iterator

import jax
import pytest

import ashore  # noqa: F401 - before JAX opens a device: it makes old JAX safe to start
from ashore.compilation_cache import keep_compiled_programs
from tests.compilation import quickly

# Our code says which types and shapes it means; `mjx_engine` lifts both rules for the time of a call into MJX.
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
keep_compiled_programs()


@pytest.fixture
def compiled_quickly() -> Iterator[None]:
    """For tests whose programs, compiled inside the library, take longer to optimise than to run."""
    with quickly():
        yield
