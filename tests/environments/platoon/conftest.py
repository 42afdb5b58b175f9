"""Programs that several tests share, so that each is compiled once."""

from collections.abc import Iterator

import jax
import pytest

from ashore.environments.platoon import Platoon, PlatoonParameters


@pytest.fixture(autouse=True)
def strict_arithmetic() -> Iterator[None]:
    """Our own code needs no implicit promotion of types or ranks."""
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture(scope="session")
def task() -> Platoon:
    return Platoon()


@pytest.fixture(scope="session")
def nominal() -> PlatoonParameters:
    return PlatoonParameters(*(jax.numpy.float32(1.0) for _ in PlatoonParameters._fields))
