"""The end of a command: exit codes, and where the traceback of fusionlab's own errors goes."""

from __future__ import annotations

import os
import platform
import select
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from fusionlab.errors import first_line
from fusionlab.sentences import sentence

DONE = 0
INPUT = 2
OWN = 70  # EX_SOFTWARE of sysexits.h
BROKEN_PIPE = 141  # 128 and SIGPIPE, as of a program that does not handle it


def tell(error: BaseException, name: str, argv: Sequence[str]) -> int:
    """Print the one sentence that an exception is worth on the standard error stream.

    Args:
        error: what ended the command.
        name: of the command, such as ``fusionlab merge``.
        argv: its arguments, for the log of an error of fusionlab's own.

    Returns:
        The exit code: `INPUT` where an input, the disk or the machine explains it, else `OWN`.
    """
    words = sentence(error)
    if words is not None:
        _print(f"{name}: error: {words}")
        return INPUT
    report = _report(error, name, argv)
    path = _log(report)
    if path is None:
        _print(report.rstrip())
    where = "the traceback is above" if path is None else f"the traceback is in {path}"
    what = " ".join(first_line(error).split())[:200]
    _print(
        f"{name}: internal error: {type(error).__name__}: {what}; this is a fault of fusionlab, not of your input; "
        f"{where}, please report it"
    )
    return OWN


def is_broken_pipe(error: BaseException) -> bool:
    """True if an exception says that nobody reads the standard output any more; it is closed then.

    Args:
        error: what ended the command; rich turns a broken pipe into a SystemExit.
    """
    if isinstance(error, SystemExit):
        return isinstance(error.__context__, BrokenPipeError)
    if not isinstance(error, BrokenPipeError):
        return False
    try:
        output = sys.stdout.fileno()
        watched = select.poll()
        watched.register(output, 0)  # an error is told unasked: here, that the other end is closed
        if not watched.poll(0):
            return False
        # What is left in the buffer would be told once more when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    except (OSError, ValueError, AttributeError):  # an output without a file, or a system without poll
        return False
    return True


def _print(text: str) -> None:
    try:
        print(text, file=sys.stderr, flush=True)
    except UnicodeEncodeError:
        print(text.encode(errors="backslashreplace").decode(), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass  # nobody listens; the exit code says it


def _report(error: BaseException, name: str, argv: Sequence[str]) -> str:
    """The traceback with what is needed to see it again."""
    from fusionlab import __version__  # noqa: PLC0415 - looked up among the installed packages, for faults alone

    found = [f"{package} {module.__version__}" for package in _PACKAGES if (module := sys.modules.get(package))]
    return "\n".join(
        [
            f"{name} {' '.join(argv)}",
            time.strftime("%Y-%m-%d %H:%M:%S %z"),
            f"fusionlab {__version__}, Python {platform.python_version()}, {platform.platform()}",
            ", ".join(found),
            "",
            "".join(traceback.format_exception(error)),
        ]
    )


_PACKAGES = ("torch", "lightning", "transformers", "timm", "datasets", "safetensors", "jsonargparse", "numpy")


def _log(text: str) -> Path | None:
    """Write a log into the folder for temporary files, or else the cache; None where neither can be written."""
    for folder in (None, Path.home() / ".cache" / "fusionlab"):
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
            handle, path = tempfile.mkstemp(prefix="fusionlab-error-", suffix=".log", dir=folder)
            with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except (OSError, RuntimeError):
            continue
        return Path(path)
    return None
