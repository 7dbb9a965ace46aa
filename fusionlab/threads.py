"""Threads: those that solve side by side, and failures of those that libraries start."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any


def solvers(count: int) -> Executor:
    """An executor with threads of its own; for one thread, it works at once in this one, which saves waking another.

    Args:
        count: of threads, at least 1.
    """
    return ThreadPoolExecutor(count) if count > 1 else _AtOnce()


class _AtOnce(Executor):
    """Runs what is submitted before it returns."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # raised where the result is asked for, as of a thread
            future.set_exception(error)
        return future


@contextmanager
def failures_raised() -> Iterator[None]:
    """Raise, once the block has ended without an error of its own, the first failure of a thread that began in it.

    TensorBoard's writer is such a thread: when a disk is full it prints a traceback, drops what was still to be
    written, and says nothing when it is closed. Threads that were there before keep the hook that they had.

    Raises:
        Exception: what ended the thread.
    """
    failures: list[BaseException] = []
    there, previous = set(threading.enumerate()), threading.excepthook

    def keep(arguments: threading.ExceptHookArgs) -> None:
        if arguments.thread in there or arguments.exc_value is None:
            previous(arguments)
        else:
            failures.append(arguments.exc_value)

    threading.excepthook = keep
    try:
        yield
    finally:
        threading.excepthook = previous
    if failures:
        raise failures[0]
