"""Outputs that a later call may go on with: they stay where the call that writes them is ended, however it ends.

Each is a folder like other temporary outputs, with a manifest that its writer holds a lock on. The system gives a lock
back when its process ends, so one that is free says that nobody writes any more, on whatever machine that was.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fusionlab.atomic.leftovers import belongs, hidden, mine, parse_name
from fusionlab.atomic.pending import Output

# What says how far an unfinished output is.
MANIFEST = "unfinished.jsonl"


def unfinished(target: str | Path) -> Iterator[Path]:
    """The unfinished outputs that nobody is writing, and that a call for `target` may go on with.

    Args:
        target: the folder that is to be written.
    """
    for path in _left(Path(target)):
        if (lock := _locked(path / MANIFEST)) is not None:
            os.close(lock)
            yield path


def begin(output: Output, target: Path) -> None:
    """Take up what an earlier call left of an output, or make an empty folder for it; locked either way.

    Args:
        output: that will be written.
        target: its name.

    Raises:
        OSError: the folder cannot be made.
    """
    place = hidden(target, "part")
    for path in _left(target):
        if (lock := _locked(path / MANIFEST)) is None:
            continue
        with suppress(OSError):  # another call may have taken it up just now
            path.rename(place)
            output.temporary, output.lock = place, lock
            return
        os.close(lock)
    # Nobody finds it before it has a lock.
    output.temporary.mkdir()
    (output.temporary / MANIFEST).touch()
    output.lock = _locked(output.temporary / MANIFEST)
    output.temporary.rename(place)
    output.temporary = place


def _left(target: Path) -> Iterator[Path]:
    """The unfinished outputs of this user for `target`, written or not."""
    folder = target.absolute().parent
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        found = parse_name(folder / name)
        if found is not None and found.kind == "part" and belongs(found, target) and mine(found.path):
            yield found.path


def _locked(path: Path) -> int | None:
    """A handle of a file with the lock on it; None where another process has it, or the system has no locks."""
    try:
        import fcntl  # noqa: PLC0415 - Windows lacks it

        handle = os.open(path, os.O_RDWR)
    except (ImportError, OSError):
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
