"""Failures of threads that libraries start: raised where their work was asked for, instead of printed and forgotten."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


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
