"""Processes that are forked together and meet, as those that a launcher starts for several devices."""

import multiprocessing
import socket
from collections.abc import Callable


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def run_together(work: Callable[..., None], *arguments: object, count: int = 2, seconds: float = 120) -> list[int]:
    """The exit codes of several processes: -9 of one that did not end.

    What this process has imported and inferred is theirs too: what all of them need is best made before.

    Args:
        work: called in each with its rank, with how many there are, and with the arguments.
        arguments: the same for all.
        count: of processes.
        seconds: after which one is given up.
    """
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=work, args=(rank, count, *arguments)) for rank in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(seconds)
    for process in processes:
        process.kill()
        process.join()
    return [process.exitcode or 0 for process in processes]
