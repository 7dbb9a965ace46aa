"""Giving complete outputs their names, in one step where the system can."""

from __future__ import annotations

from pathlib import Path

from fusionlab.atomic.leftovers import hidden
from fusionlab.atomic.pending import Output, discard_quietly, pending
from fusionlab.atomic.renames import exchange, rename_to_free
from fusionlab.atomic.syncing import sync
from fusionlab.errors import InputError


def put_output(output: Output, target: Path, overwrite: bool) -> None:
    """Give a complete output its name; what has it is exchanged in one step where the system can.

    Args:
        output: complete, and on the disk.
        target: its name.
        overwrite: whether what has the name may be replaced.

    Raises:
        InputError: something has the name that may not be replaced.
    """
    try:
        rename_to_free(output.temporary, target)
    except FileExistsError:
        if not overwrite:
            raise InputError(f"{target} exists already; another process wrote it meanwhile") from None
        if not exchange(output.temporary, target):
            _put_in_two(output, target)
    sync(target.absolute().parent)
    # What was replaced, under the name that the system left it.
    discard_quietly(output.temporary)


def put_entries(output: Output, target: Path, overwrite: bool) -> None:
    """Give each entry of a complete folder its name in the folder that holds `target`.

    Args:
        output: a complete folder, on the disk.
        target: any name in the folder that the entries are put into.
        overwrite: whether entries may replace others of their names.

    Raises:
        InputError: something has the name of an entry, and may not be replaced.
    """
    for entry in sorted(output.temporary.iterdir()):
        place = target.parent / entry.name
        part = Output(place, entry, hidden(place, "old"))
        pending.append(part)
        try:
            put_output(part, place, overwrite)
        finally:
            part.abandon()
            pending.remove(part)
    discard_quietly(output.temporary)


def _put_in_two(output: Output, target: Path) -> None:
    """The same where the system cannot exchange names: one rename for files, two for folders."""
    if not output.temporary.is_dir() and (target.is_symlink() or not target.is_dir()):
        output.temporary.replace(target)
        return
    assert output.previous is not None
    target.rename(output.previous)
    output.temporary.rename(target)  # if this fails, the output is abandoned, which puts the previous one back
    discard_quietly(output.previous)
