"""The cells of a suite as Ray tasks: on this machine or on a cluster, by the same call.

Cells are written to the pool by the workers themselves, so the pool must be a folder that every node sees under the
same name, and every node must have Ashore installed.
"""

import importlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ashore.compilation_cache import keep_compiled_programs
from ashore.experiments.suite_run import Job, Made, Onlooker, run_job


def require_ray() -> Any:
    """The ray package, or a sentence that says how to get it."""
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise ValueError("The backend ray needs its package: pip install 'ashore[ray]'.") from None


def run_on_ray(
    todo: Sequence[Job], force: bool, onlooker: Onlooker, seconds: float, address: str | None
) -> Iterator[Made]:
    """Make all cells, as many at a time as the cluster has room for; every task gets a GPU where there are any.

    Args:
        onlooker: travels to the workers; what it prints there comes back.
        seconds: after which a task stops where it can go on later.
        address: of a running cluster; None starts one on this machine.
    """
    ray = _cluster(address)
    try:
        gpus = 1 if ray.cluster_resources().get("GPU", 0) else 0
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0)(_in_a_worker)
        pending = [task.remote(_absolute(job), force, onlooker, seconds) for job in todo]
        while pending:
            done, pending = ray.wait(pending)
            yield from ray.get(done[0])
    finally:
        ray.shutdown()


def _cluster(address: str | None) -> Any:
    """Ray, with a cluster of its own on this machine or connected to a running one."""
    ray = require_ray()
    try:
        # Without an address Ray would look for a cluster that somebody has started here, and may wait for a dead one.
        ray.init(address="local", include_dashboard=False) if address is None else ray.init(address=address)
    except ConnectionError:
        raise ValueError(f"No Ray cluster answers at {address}.") from None
    return ray


def _in_a_worker(job: Job, force: bool, onlooker: Onlooker, seconds: float) -> list[Made]:
    keep_compiled_programs()
    end = time.perf_counter() + seconds
    return list(run_job(job, force, onlooker, lambda: time.perf_counter() > end))


def _absolute(job: Job) -> Job:
    """Workers have another current directory."""
    plans = [
        replace(plan, folder=plan.folder.resolve(), run=None if plan.run is None else plan.run.resolve())
        for plan in job.plans
    ]
    return job._replace(plans=tuple(plans))
