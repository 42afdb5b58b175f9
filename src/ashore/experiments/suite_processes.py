"""The cells of a suite several at a time on this machine, in processes of their own.

A training step of a light world is thousands of tiny kernels, which leave most of a GPU idle: methods beside one
another take little longer than one alone, if the driver lets their kernels run at the same time (docs/suites.md).
"""

import contextlib
import io
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from typing import NamedTuple, TextIO, cast

from ashore.compilation_cache import keep_compiled_programs
from ashore.experiments import suite_cells
from ashore.experiments.suite_run import FAILURE, Job, Made, Onlooker, Stop, run_job

_LOOKS_EVERY = 0.5
"""Seconds between two looks at whether somebody wants all of it to stop."""
_MEANT_FOR_THE_FIRST = (signal.SIGINT, signal.SIGTERM)
"""Signals that reach everybody of a terminal or a job; what they mean is decided by the first process alone."""
_PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"
"""Every process would take three quarters of a GPU's memory for itself."""


class _Running(NamedTuple):
    """A job in a process of its own."""

    job: Job
    process: BaseProcess
    made: list[Made]
    """What it has said so far."""


def run_in_processes(
    todo: Sequence[Job], force: bool, onlooker: Onlooker, stop: Stop, seconds: float, at_once: int
) -> Iterator[Made]:
    """Make all cells, so many jobs at a time; what a job prints has the name of its first cell in front.

    Args:
        todo: the jobs, in the order in which they are begun.
        force: whether cells that were made with other settings are made again.
        onlooker: is pickled and travels to the processes.
        stop: asked here; the processes are told.
        seconds: after which they stop where they can go on later.
        at_once: how many jobs run at the same time.
    """
    context = multiprocessing.get_context("spawn")
    # An event has started the process that keeps track of such things: it would unblock the signals below.
    asked, waiting = context.Event(), list(todo)
    running: dict[Connection, _Running] = {}
    end = time.monotonic() + seconds
    try:
        while running or waiting:
            if stop():
                asked.set()
            while waiting and (len(running) < at_once or asked.is_set()):
                job = waiting.pop(0)
                if asked.is_set() or not _something_to_do(job, force):
                    # Says what is there already, and of everything else that it was stopped.
                    yield from run_job(job, force, onlooker, asked.is_set)
                    continue
                here, there = context.Pipe(duplex=False)
                given = (there, asked, job, force, onlooker, end - time.monotonic())
                process = context.Process(target=_in_a_process, args=given)
                with _as_a_child_needs_it():
                    process.start()
                there.close()
                running[here] = _Running(job, process, [])
            for heard in wait(list(running), timeout=_LOOKS_EVERY) if running else ():
                assert isinstance(heard, Connection)
                yield from _listen(heard, running, onlooker)
    finally:
        for _, process, _ in running.values():
            process.kill()


def _something_to_do(job: Job, force: bool) -> bool:
    """Whether a process is worth its start."""
    try:
        states = [suite_cells.status(plan).state for plan in job.plans]
    except ValueError:
        return True
    return any(state != "finished" and (force or state != "changed") for state in states)


@contextlib.contextmanager
def _as_a_child_needs_it() -> Generator[None]:
    """What is inherited: signals that wait until the child ignores them, and memory that is taken as it is needed."""
    before, own = signal.pthread_sigmask(signal.SIG_BLOCK, _MEANT_FOR_THE_FIRST), os.environ.get(_PREALLOCATE)
    os.environ.setdefault(_PREALLOCATE, "false")
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if own is None:
            del os.environ[_PREALLOCATE]


def _listen(said: Connection, running: dict[Connection, _Running], onlooker: Onlooker) -> Iterator[Made]:
    """One more cell of a job, or what its end means for the cells of which nothing was heard."""
    job, process, made = running[said]
    try:
        made.append(said.recv())
        yield made[-1]
    except EOFError:
        del running[said]
        said.close()
        process.join()
        why = f"its process ended with {process.exitcode}"
        for place, plan in list(zip(*job, strict=True))[len(made) :]:
            plan.folder.mkdir(parents=True, exist_ok=True)
            (plan.folder / FAILURE).write_text(f"{why}\n")
            onlooker.say(f"[{place}] {plan.title}: failed: {why}")
            yield Made(plan.title, "failed", why)


def _in_a_process(answer: Connection, asked: Event, job: Job, force: bool, onlooker: Onlooker, seconds: float) -> None:
    for number in _MEANT_FOR_THE_FIRST:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _MEANT_FOR_THE_FIRST)
    keep_compiled_programs()
    named = _Named(job.plans[0].title, sys.stdout)
    with contextlib.redirect_stdout(cast(TextIO, named)):
        for made in run_job(job, force, onlooker, _either(asked, time.monotonic() + seconds)):
            answer.send(made)
    named.rest()
    answer.close()


def _either(asked: Event, end: float) -> Callable[[], bool]:
    """Whether to stop: somebody asked, time is up, or the first process is gone and nobody is left to answer to."""
    first = multiprocessing.parent_process()
    return lambda: asked.is_set() or time.monotonic() > end or (first is not None and not first.is_alive())


class _Named(io.TextIOBase):
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

    def rest(self) -> None:
        """Write the line that was begun and not ended."""
        if self._begun:
            self.write("\n")
        self.flush()
