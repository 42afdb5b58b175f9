"""Workers of the demo: as many processes as there are cores to use, and what they tell on the way."""

import multiprocessing
import queue
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, NamedTuple

_PATIENCE = 0.05
"""Seconds between two looks whether there is news."""


class Stopped(Exception):
    """Whoever watches has gone."""


class _Line(NamedTuple):
    """From a worker to whoever watches, and the other way whether to go on."""

    news: Any
    """A queue, between threads or processes."""
    stop: Any


_line: _Line | None = None
"""That of this worker; queues can be handed to a process only when it begins."""


def tell(news: Any) -> None:
    """Say from within a worker how it stands."""
    assert _line is not None
    if _line.stop.is_set():
        raise Stopped
    _line.news.put(news)


class Crew:
    """Gives out work and hears what becomes of it."""

    def __init__(self, executor: Executor, line: _Line) -> None:
        self._executor, self._line = executor, line
        self._pending: set[Future[Any]] = set()

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Have something done by the next worker that is free."""
        future = self._executor.submit(work, *arguments)
        self._pending.add(future)
        return future

    def finished(self, watch: Callable[[Any], None]) -> Iterator[Future[Any]]:
        """Everything that was given out, or is meanwhile, as it gets done; news are passed on to `watch`."""
        while self._pending:
            done = wait(self._pending, _PATIENCE, FIRST_COMPLETED).done
            self._pending -= done
            # What a worker told before it was done is there by now: these queues have no thread in between.
            while not self._line.news.empty():
                watch(self._line.news.get())
            yield from done


@contextmanager
def crew(processes: int) -> Generator[Crew]:
    """Workers in processes of their own, or for one of them in a thread of this one."""
    if processes > 1:
        # Not forked: JAX's threads do not survive that.
        context = multiprocessing.get_context("spawn")
        line = _Line(context.SimpleQueue(), context.Event())
        executor = ProcessPoolExecutor(processes, context, _begin_process, line)
    else:
        line = _Line(queue.SimpleQueue(), threading.Event())
        executor = ThreadPoolExecutor(1, initializer=_begin, initargs=line)
    try:
        yield Crew(executor, line)
    finally:
        line.stop.set()
        executor.shutdown(cancel_futures=True)


def _begin(news: Any, stop: Any) -> None:
    global _line
    _line = _Line(news, stop)


def _begin_process(news: Any, stop: Any) -> None:
    # Ctrl-C reaches every process of a terminal; the one that was called answers it, and stops the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _begin(news, stop)
