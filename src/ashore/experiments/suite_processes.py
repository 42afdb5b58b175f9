"""The cells of a suite several at a time on this machine, in processes of their own.

A training step of a light world is thousands of tiny kernels, which leave most of a GPU idle: methods beside one
another take little longer than one alone, if the driver lets their kernels run at the same time (docs/suites.md).
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from typing import TextIO

from ashore.compilation_cache import keep_compiled_programs
from ashore.experiments.suite_run import Job, Made, Onlooker, Stop, run_job

_LOOKS_EVERY = 0.5
"""Seconds between two looks at whether somebody wants all of it to stop."""


def run_in_processes(
    todo: Sequence[Job], force: bool, onlooker: Onlooker, stop: Stop, seconds: float, at_once: int
) -> Iterator[Made]:
    """Make all cells, so many jobs at a time; what a job prints has its name in front.

    Args:
        onlooker: is pickled and travels to the processes.
        stop: asked here; the processes are told.
        seconds: after which they stop where they can go on later.
    """
    # Every process would take three quarters of a GPU's memory for itself.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    context = multiprocessing.get_context("spawn")
    asked, waiting = context.Event(), list(todo)
    running: dict[Connection, tuple[Job, BaseProcess]] = {}
    end = time.monotonic() + seconds
    try:
        while running or waiting:
            if stop():
                asked.set()
            while waiting and len(running) < at_once and not asked.is_set():
                job = waiting.pop(0)
                here, there = context.Pipe(duplex=False)
                given = (there, asked, job, force, onlooker, end - time.monotonic())
                process = context.Process(target=_in_a_process, args=given)
                process.start()
                there.close()
                running[here] = (job, process)
            if asked.is_set() and not running:
                yield from (made for job in waiting for made in _not_begun(job))
                return
            for done in wait(list(running), timeout=_LOOKS_EVERY):
                assert isinstance(done, Connection)
                yield from _what_became(done, *running.pop(done))
    finally:
        for _, process in running.values():
            process.terminate()


def _not_begun(job: Job) -> list[Made]:
    return [Made(plan.title, "stopped", "the same command goes on from here") for plan in job.plans]


def _what_became(said: Connection, job: Job, process: BaseProcess) -> list[Made]:
    try:
        return said.recv()
    except EOFError:
        process.join()
        why = f"its process ended with {process.exitcode}"
        return [Made(plan.title, "failed", why) for plan in job.plans]
    finally:
        said.close()
        process.join()


def _in_a_process(answer: Connection, asked: Event, job: Job, force: bool, onlooker: Onlooker, seconds: float) -> None:
    # Ctrl-C reaches everybody on a terminal; the first process decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_compiled_programs()
    end = time.monotonic() + seconds
    with contextlib.redirect_stdout(_Named(job.plans[0].title, sys.stdout)):
        answer.send(list(run_job(job, force, onlooker, _either(asked, end))))
    answer.close()


def _either(asked: Event, end: float) -> Callable[[], bool]:
    return lambda: asked.is_set() or time.monotonic() > end


class _Named(TextIO):
    """Whole lines with a name in front, so that several may write into one terminal."""

    def __init__(self, name: str, out: TextIO) -> None:
        self._name, self._out, self._begun = name, out, ""

    def write(self, text: str, /) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._out.write(f"{self._name} | {line}\n")
        return len(text)

    def flush(self) -> None:
        self._out.flush()

    def isatty(self) -> bool:
        return False
