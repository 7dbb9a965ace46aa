"""Work on many pieces by a few threads: while one waits for the disk another computes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from fusionlab import signals

Piece = TypeVar("Piece")
Result = TypeVar("Result")
# Numbers of all pieces in work together, where nothing else is said.
MOST = 2**24


@contextmanager
def workers() -> Iterator[ThreadPoolExecutor]:
    """A few threads, each of which computes by itself: pieces are what runs side by side, not parts of an operation."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    # One more than processors, as somebody always waits for the disk.
    pool = ThreadPoolExecutor(min(count, 8) + 1, thread_name_prefix="fusionlab")
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        torch.set_num_threads(threads)


def in_order(
    pool: ThreadPoolExecutor,
    work: Callable[[Piece], Result],
    pieces: Iterable[Piece],
    size: Callable[[Piece], int],
    most: int = MOST,
) -> Iterator[Result]:
    """The results of work on pieces, in the pieces' order; no more are in work than memory allows.

    Args:
        pool: of threads.
        work: on a piece; the first failure, in the pieces' order, is raised.
        pieces: in order.
        size: numbers that the work on a piece holds in memory.
        most: numbers of all pieces in work together; a larger piece is in work alone.
    """
    ahead: deque[tuple[Future[Result], int]] = deque()
    held = 0
    try:
        for piece in pieces:
            needed = size(piece)
            while ahead and held + needed > most:
                future, freed = ahead.popleft()
                yield future.result()
                held -= freed
            signals.check()
            ahead.append((pool.submit(work, piece), needed))
            held += needed
        while ahead:
            yield ahead.popleft()[0].result()
    finally:
        for future, _ in ahead:
            future.cancel()
