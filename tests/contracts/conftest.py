import pytest

from contracts.subjects import DEFAULTS, PRESETS, PROGRAMS, Subject, subject_of


@pytest.fixture(params=PRESETS)
def declared(request) -> Subject:
    """Every preset of every family: for promises that need nothing compiled."""
    return subject_of(*request.param)


@pytest.fixture(params=PROGRAMS)
def batched(request) -> Subject:
    """Every preset that is a program of its own: for promises of the batch."""
    return subject_of(*request.param)


@pytest.fixture(params=DEFAULTS)
def subject(request) -> Subject:
    """The default preset of a family: for promises that take more programs, or more time, to check."""
    return subject_of(*request.param)
