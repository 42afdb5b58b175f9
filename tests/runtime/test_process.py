"""The process: one thread of arithmetic, no collection inside a decision, and nothing left behind."""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

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


# A deployment that counts the threads of its process: after NumPy is imported, and after it has acted and learnt. Then
# it says how long other threads worked on a product large enough to be shared out, and how long it did itself.
THREADS = """
import json, sys, threading, time
from pathlib import Path
import numpy as np
from ashore_runtime import Runtime

TASKS = Path("/proc/self/task")

def threads():
    return len(list(TASKS.iterdir())) if TASKS.exists() else None

imported = threads()
runtime = Runtime.load(sys.argv[1], journal=sys.argv[2])
runtime.arm()
generator = np.random.default_rng(0)
for _ in range(20):
    observation = generator.uniform(-1, 1, 4)
    runtime.act(observation)
    runtime.observe(observation + 0.1, 0.0, 0.0)
large = np.ones((1000, 1000))
all_of_it, own = time.process_time(), time.thread_time()
large @ large
own = time.thread_time() - own
others = time.process_time() - all_of_it - own
runtime.close()
found = {"told": runtime.health()["one_blas_thread"], "python": threading.active_count(), "imported": imported}
print(json.dumps({**found, "acted": threads(), "own": own, "others": others, "learnt": runtime.posterior.count}))
"""


@pytest.mark.parametrize("limited_by", ["the runtime", "the environment"])
def test_everything_happens_in_one_thread(bundle_folder: Path, tmp_path: Path, limited_by):
    # Whatever the tests were started with, and what loading a runtime in this process left for its children.
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    if limited_by == "the environment":
        environment |= dict.fromkeys(process._THREAD_VARIABLES, "1")
    command = [sys.executable, "-W", "error", "-c", THREADS, str(bundle_folder), str(tmp_path / "run.jnl")]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    found = json.loads(run.stdout)
    assert found["learnt"] == 20 and found["python"] == 1
    # A BLAS starts its threads when NumPy is imported, before anybody can tell it not to; the runtime adds none.
    assert found["acted"] == found["imported"]
    if limited_by == "the environment":
        assert found["acted"] in (1, None), "None where the system does not list threads"
    if sys.platform == "linux":
        assert found["told"], "NumPy's wheels for Linux bring a BLAS that can be told"
    if found["told"]:
        assert found["others"] <= 0.01 * found["own"], "threads of the BLAS worked too"


def test_asking_for_priority_says_what_was_refused(monkeypatch: pytest.MonkeyPatch):
    def refused(*_):
        raise PermissionError("not for you")

    monkeypatch.setattr(os, "sched_setscheduler", refused)
    monkeypatch.setattr(process.ctypes, "CDLL", refused)
    assert [sentence.split()[0] for sentence in process.ask_for_priority()] == ["SCHED_FIFO", "mlockall"]
