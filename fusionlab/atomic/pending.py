"""Outputs of this process that are being written, and how each is left where that fails."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fusionlab.atomic.leftovers import discard


@dataclass(eq=False)
class Output:
    """One output while it is written.

    Attributes:
        target: its name; None for one that nobody is to keep.
        temporary: the name it is written under; after an exchange, that of what it replaced.
        previous: where what it replaces is put for a moment, if the system cannot exchange names.
        parents: folders that were made to hold it, outermost first.
        kept: whether it stays for a call that goes on with it.
        lock: handle of a file that this process has locked while it writes.
    """

    target: Path | None
    temporary: Path
    previous: Path | None = None
    parents: list[Path] = field(default_factory=list)
    kept: bool = False
    lock: int | None = None

    def abandon(self) -> None:
        """Leave everything as it was before, or as it is complete."""
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None
        if self.kept:
            return
        if self.previous is not None and self.target is not None and os.path.lexists(self.previous):
            if os.path.lexists(self.target):
                discard_quietly(self.previous)
            else:
                with suppress(OSError):
                    self.previous.rename(self.target)
        discard_quietly(self.temporary)
        remove_empty(self.parents)


# Each is known before it is there, so that an interruption at any moment finds it.
pending: list[Output] = []


def discard_all() -> None:
    """Remove every temporary output of this process: the last thing it does when it has to end at once."""
    for output in reversed(pending):
        output.abandon()


def make_parents(folder: Path) -> list[Path]:
    """Make a folder with all that holds it; returns what was missing, outermost first."""
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()][::-1]
    made: list[Path] = []
    try:
        for parent in missing:
            with suppress(FileExistsError):
                parent.mkdir()
                made.append(parent)
    except BaseException:
        remove_empty(made)
        raise
    return made


def remove_empty(folders: list[Path]) -> None:
    for folder in reversed(folders):
        with suppress(OSError):
            folder.rmdir()


def discard_quietly(path: Path) -> None:
    """Delete what may be in use for a moment yet; what stays is for the next run."""
    for _ in range(3):
        try:
            discard(path)
            return
        except OSError:
            continue
