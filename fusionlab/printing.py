"""Consoles: results on the standard output, progress on the standard error stream, nothing where quiet was asked for.

Progress is shown on terminals alone: in a log it would be lines of half-drawn bars.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TYPE_CHECKING = False  # as typing has it, which the command's first answers do without
if TYPE_CHECKING:
    from typing import Any

    from rich.console import Console

# Columns of what no terminal shows: programs and files break no lines.
WIDE = 1000
_quiet = [False]


@contextmanager
def quieted(quiet: bool) -> Iterator[None]:
    """Print neither results nor progress inside the block, errors only.

    Args:
        quiet: whether to; nothing is changed if not.
    """
    before = _quiet[0]
    _quiet[0] = before or quiet
    try:
        yield
    finally:
        _quiet[0] = before


def is_quiet() -> bool:
    """True inside a block that prints errors only."""
    return _quiet[0]


def results() -> Console:
    """The console that results are printed on; lines are as long as they are where no terminal shows them."""
    from rich.console import Console  # noqa: PLC0415 - what prints comes last

    is_free = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(quiet=is_quiet(), width=WIDE if is_free else None)


def progress() -> Console:
    """The console that progress is shown on."""
    from rich.console import Console  # noqa: PLC0415

    return Console(**progress_options())


def progress_options() -> dict[str, Any]:
    """Arguments of rich's Console for progress: on the standard error stream, on a terminal or in a notebook alone."""
    is_seen = sys.stderr.isatty() or "ipykernel" in sys.modules
    return {"stderr": True, "quiet": is_quiet() or not is_seen}
