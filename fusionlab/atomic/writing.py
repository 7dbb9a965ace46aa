"""Blocks that write an output under a temporary name, which it keeps until it is complete."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fusionlab import signals
from fusionlab.atomic.checks import recover, refuse_target
from fusionlab.atomic.leftovers import hidden
from fusionlab.atomic.pending import Output, make_parents, pending
from fusionlab.atomic.placing import put_entries, put_output
from fusionlab.atomic.syncing import sync, sync_tree
from fusionlab.atomic.unfinished import MANIFEST, begin
from fusionlab.errors import InputError
from fusionlab.sentences import WRITING, system_error


@contextmanager
def atomic_folder(target: str | Path, overwrite: bool = False, resume: bool = False) -> Iterator[Path]:
    """Write a folder that appears under its name only once the block has ended without an error.

    Args:
        target: the folder to be written; its parents are made when they are missing.
        overwrite: whether a folder that is already there may be replaced, which happens after the new one is complete.
        resume: whether to go on with what an earlier call left, and to leave for a later one what is unfinished when
            this one is interrupted. The folder holds a `MANIFEST` then, which is removed at the end.

    Yields:
        An empty temporary folder beside `target`. It is deleted when the block fails or is interrupted.

    Raises:
        InputError: as `refuse_existing`.
        OSError: the disk failed or is full; the error names the output.
    """
    with _atomic(target, overwrite, folder=True, resume=resume) as temporary:
        yield temporary


@contextmanager
def atomic_file(target: str | Path, overwrite: bool = False) -> Iterator[Path]:
    """Write a file that appears under its name only once the block has ended without an error.

    Arguments and errors are those of `atomic_folder`.

    Yields:
        The temporary name beside `target` that the block writes to.
    """
    with _atomic(target, overwrite, folder=False) as temporary:
        yield temporary


@contextmanager
def replaced_entries(folder: str | Path) -> Iterator[Path]:
    """Write entries of a folder that has others too: each replaces its namesake in one step, once all are complete.

    Args:
        folder: that they are put into; made when it is missing.

    Yields:
        An empty temporary folder; what it holds at the end is put into `folder`. It is deleted when the block fails.

    Raises:
        OSError: the disk failed or is full; the error names `folder`.
    """
    folder = Path(folder)
    with _atomic(folder / "entries", overwrite=True, folder=True, put=put_entries) as temporary:
        yield temporary


@contextmanager
def scratch_folder(beside: str | Path | None = None) -> Iterator[Path]:
    """Make a folder for what nobody is to keep.

    Like a temporary output it is removed at the end, when interrupted, or by the next run.

    Args:
        beside: an output on whose disk it lies; in the system's place for temporary files if None.

    Yields:
        The empty folder.

    Raises:
        OSError: the disk failed or is full; the error names `beside`.
    """
    target = Path(tempfile.gettempdir()) / "scratch" if beside is None else Path(beside)
    recover(target)
    output = Output(None, hidden(target, "new"))
    pending.append(output)
    try:
        output.parents = make_parents(target.parent)
        output.temporary.mkdir(mode=0o700)
        yield output.temporary
    except Exception as error:
        located = error if beside is None else _located(error, output.temporary, target)
        if located is not error:
            raise located from error
        raise
    finally:
        output.abandon()
        pending.remove(output)


@contextmanager
def _atomic(
    target: str | Path,
    overwrite: bool,
    folder: bool,
    put: Callable[[Output, Path, bool], None] | None = None,
    resume: bool = False,
) -> Iterator[Path]:
    target = Path(target)
    recover(target, resume)
    refuse_target(target, overwrite)
    output = Output(target, hidden(target, "new"), hidden(target, "old"))
    # Known before it is there, so that an interruption at any moment finds it.
    pending.append(output)
    try:
        output.parents = make_parents(target.parent)
        if resume:
            begin(output, target)
            output.kept = True
        elif folder:
            output.temporary.mkdir()
        yield output.temporary
        signals.check()
        sync_tree(output.temporary)
        # Asked again: somebody else may have written the target while this output was being made.
        refuse_target(target, overwrite)
        if resume:
            (output.temporary / MANIFEST).unlink(missing_ok=True)
            output.kept = False
        (put or put_output)(output, target, overwrite)
        for made in output.parents:
            sync(made.parent)
    except BaseException as error:
        # Before the temporary output goes, as the space that it frees is what the error is about.
        located = _located(error, output.temporary, target if put is None else target.parent)
        # Input that is refused would be refused again.
        output.kept &= not isinstance(located, InputError)
        output.abandon()
        if located is not error:
            raise located from error
        raise
    finally:
        if output.lock is not None:
            os.close(output.lock)
        pending.remove(output)


def _located(error: BaseException, temporary: Path, target: Path) -> BaseException:
    """An error of the disk, told of the output and not of its temporary name."""
    if isinstance(error, OSError):
        # A copy names its source first; what takes no more is where it writes to.
        second = error.filename2 if error.errno in WRITING else None
        name = error.filename if second is None else second
        if isinstance(name, str | Path) and Path(name).is_relative_to(temporary):
            error.filename = str(target / Path(name).relative_to(temporary))
            error.filename2 = None
        elif name is None and error.errno in WRITING:
            error.filename = str(target)
        return error
    found = system_error(error, target) if isinstance(error, Exception) else None
    return error if found is None else found
