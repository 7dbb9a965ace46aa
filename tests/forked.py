"""Code run in a forked child, which costs no imports and may be ended by a signal."""

import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code (negative: the signal that killed it), and what it wrote."""

    code: int
    out: str
    err: str


class Child:
    """A forked child that runs a function and exits with the code it returns: with 99 and a traceback if it raises.

    Args:
        function: what to run.
        seconds: after which it is given up.
    """

    def __init__(self, function: Callable[[], int], seconds: float = 60) -> None:
        self._files = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115
        self._end = time.monotonic() + seconds
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            code = 99
            try:
                for number, file in enumerate(self._files, start=1):
                    os.dup2(file.fileno(), number)
                sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
                sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
                code = function()
                sys.stdout.flush()
                sys.stderr.flush()
            except Exception:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(code)

    def send(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def wait_for(self, path: Path) -> None:
        """Wait until the child has made a file."""
        while not path.exists():
            assert time.monotonic() < self._end, f"the child did not make {path}"
            time.sleep(0.01)

    def end(self) -> Ended:
        """Wait until it has ended."""
        while (found := os.waitpid(self.pid, os.WNOHANG))[0] == 0:
            if time.monotonic() > self._end:
                os.kill(self.pid, 9)
                os.waitpid(self.pid, 0)
                raise AssertionError("the child did not end")
            time.sleep(0.01)
        texts = []
        for file in self._files:
            file.seek(0)
            texts.append(file.read().decode())
            file.close()
        return Ended(os.waitstatus_to_exitcode(found[1]), *texts)
