"""Consoles: results on the standard output, progress on the standard error stream, nothing where quiet was asked for.

Progress is shown on terminals alone, as in a log it would be lines of half-drawn bars. Verbose commands print a bar
there once it is full.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

TYPE_CHECKING = False  # as typing has it, which the command's first answers do without
if TYPE_CHECKING:
    from typing import Any

    from rich.console import Console, ConsoleRenderable, RenderHook

# Columns of what no terminal shows: programs and files break no lines.
WIDE = 1000
_quiet = [False]
_verbose = [False]
_for_machines = [False]


@contextmanager
def quieted(quiet: bool) -> Iterator[None]:
    """Print neither results nor progress inside the block, errors only; what was asked of JSON ends with the block.

    Args:
        quiet: whether to; nothing is changed if not.
    """
    before = _quiet[0], _for_machines[0]
    _quiet[0] = _quiet[0] or quiet
    try:
        yield
    finally:
        _quiet[0], _for_machines[0] = before


def is_quiet() -> bool:
    """True inside a block that prints errors only."""
    return _quiet[0]


@contextmanager
def spoken(verbose: bool) -> Iterator[None]:
    """Show progress inside the block where no terminal is too; quiet goes first.

    Args:
        verbose: whether to; nothing is changed if not.
    """
    before = _verbose[0]
    _verbose[0] = before or verbose
    try:
        yield
    finally:
        _verbose[0] = before


def is_verbose() -> bool:
    """True inside a block that shows progress everywhere."""
    return _verbose[0] and not _quiet[0]


def ask_for_json() -> None:
    """Print results as one JSON document from now on, and not for people; until the block of `quieted` ends."""
    _for_machines[0] = True


def publish(document: Mapping[str, Any]) -> None:
    """Print the results of a command as JSON on the standard output, where that was asked for.

    Args:
        document: mappings, lists, words and numbers; those that are not finite become null.
    """
    if _for_machines[0]:
        print(json.dumps(_finite(document), indent=2, ensure_ascii=False, default=str))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def size_words(size: float) -> str:
    """A number of bytes in words, in the largest unit that there is one of."""
    unit = max(1, min(3, (int(size).bit_length() - 1) // 10))
    return f"{size / 1024**unit:,.1f} {('KiB', 'MiB', 'GiB')[unit - 1]}"


def results() -> Console:
    """The console that results for people are printed on; nothing is where JSON was asked for.

    Lines are as long as they are where no terminal shows them.
    """
    from rich.console import Console  # noqa: PLC0415 - what prints comes last

    is_free = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    console = Console(quiet=is_quiet() or _for_machines[0], width=WIDE if is_free else None)
    if is_free:
        console.push_render_hook(_unbroken_titles())
    return console


def _unbroken_titles() -> RenderHook:
    """A hook that keeps titles and captions of tables in one line, which else are broken at the table's width."""
    from rich.console import RenderHook  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    class Unbroken(RenderHook):
        def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
            for table in renderables:
                if isinstance(table, Table):
                    for place in ("title", "caption"):
                        if words := getattr(table, place):
                            text = Text.from_markup(words) if isinstance(words, str) else Text(str(words))
                            text.no_wrap, text.overflow = True, "ignore"
                            setattr(table, place, text)
            return renderables

    return Unbroken()


def progress() -> Console:
    """The console that progress is shown on."""
    from rich.console import Console  # noqa: PLC0415

    return Console(**progress_options())


def progress_options() -> dict[str, Any]:
    """Arguments of rich's Console for progress: on the standard error stream, on a terminal or in a notebook alone.

    Verbose commands show it everywhere.
    """
    is_seen = is_verbose() or sys.stderr.isatty() or "ipykernel" in sys.modules
    return {"stderr": True, "quiet": is_quiet() or not is_seen}
