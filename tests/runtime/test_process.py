"""The process: one thread of arithmetic, no collection inside a decision, and nothing left behind."""

import gc
import os

import pytest

from ashore_runtime import process


def test_collection_is_off_inside_and_as_before_outside():
    def fail():
        assert not gc.isenabled()
        raise RuntimeError("inside")

    assert gc.isenabled()
    with pytest.raises(RuntimeError, match="inside"), process.no_collection():
        fail()
    assert gc.isenabled()
    gc.disable()
    try:
        with process.no_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_blas_is_told_and_children_inherit_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    assert isinstance(process.one_blas_thread(), bool)
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"


def test_asking_for_priority_says_what_was_refused(monkeypatch: pytest.MonkeyPatch):
    def refused(*_):
        raise PermissionError("not for you")

    monkeypatch.setattr(os, "sched_setscheduler", refused)
    monkeypatch.setattr(process.ctypes, "CDLL", refused)
    assert [sentence.split()[0] for sentence in process.ask_for_priority()] == ["SCHED_FIFO", "mlockall"]
