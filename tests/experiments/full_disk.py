"""A disk that is full for this process only: no file may grow beyond so many bytes."""

import contextlib
import resource
from collections.abc import Generator


@contextlib.contextmanager
def room_for(largest: int) -> Generator[None, None, None]:
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
