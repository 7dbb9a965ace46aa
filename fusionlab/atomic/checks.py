"""Outputs that cannot be written are refused, before any work is done and again before they get their name."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from fusionlab.atomic.leftovers import belongs, dead, hidden
from fusionlab.atomic.pending import Output, discard_quietly, make_parents, pending
from fusionlab.atomic.unfinished import MANIFEST
from fusionlab.errors import InputError

MIB = 2**20


def refuse_existing(target: str | Path, overwrite: bool = False, resume: bool = False) -> None:
    """Stop before any work is done when `target` may not, or cannot, be written.

    What killed runs left beside it is removed first, and an output that such a run had moved aside put back.

    Args:
        target: the file or folder that is to be written.
        overwrite: whether something that is already there may be replaced.
        resume: whether what an earlier call left unfinished of `target` stays.

    Raises:
        InputError: `target` exists and `overwrite` is false; or it is the working folder or holds it, which
            would be lost with everything in it; or cannot be replaced; or writing beside it was tried and failed.
    """
    target = Path(target)
    recover(target, resume)
    refuse_target(target, overwrite)
    try_to_write(target)


def refuse_target(target: Path, overwrite: bool) -> None:
    """Refuse a target by what is there now.

    Args:
        target: the file or folder that is to be written.
        overwrite: whether something that is already there may be replaced.

    Raises:
        InputError: as `refuse_existing`, but for the trial.
    """
    working_folder = Path.cwd().resolve()
    if Path(os.path.realpath(target)) in (working_folder, *working_folder.parents):
        raise InputError(f"{target}: an output may not replace the working folder or a folder that holds it")
    parent = next(folder for folder in target.absolute().parents if os.path.lexists(folder))
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise InputError(f"{target}: nothing can be written into {parent}; expected a folder with that permission")
    try:
        found = target.lstat()
    except FileNotFoundError:
        return
    if not overwrite:
        raise InputError(
            f"{target} exists already; choose another output, or allow it to be replaced (--overwrite, overwrite=True)"
        )
    if os.path.ismount(target):
        raise InputError(f"{target} is a mounted file system, which cannot be replaced; choose an output inside it")
    if hasattr(os, "geteuid"):
        holder = parent.stat()
        if holder.st_mode & stat.S_ISVTX and os.geteuid() not in (0, found.st_uid, holder.st_uid):
            raise InputError(f"{target} belongs to another user, so it cannot be replaced; choose another output")


def try_to_write(target: str | Path) -> None:
    """Write and remove a byte beside `target`, under the kind of name that its output will have.

    Folders that are missing on the way to it are made, and removed again.

    Raises:
        InputError: it cannot be written; says why.
    """
    target = Path(target)
    for _ in range(10):
        trial = Output(None, hidden(target, "new"))
        pending.append(trial)
        try:
            trial.parents = make_parents(target.parent)
            trial.temporary.mkdir()
            (trial.temporary / "byte").write_bytes(b"0")
            return
        except FileNotFoundError as error:
            # Another process that tries the same may just have removed the folders again: once more.
            failure: OSError = error
        except OSError as error:
            failure = error
            break
        finally:
            trial.abandon()
            pending.remove(trial)
    raise InputError(
        f"{target}: nothing can be written into {target.absolute().parent} ({failure.strerror}); expected a folder "
        f"with that permission, on a disk with space"
    ) from failure


def free_space(target: str | Path) -> tuple[Path, int] | None:
    """The folder on whose disk an output would be written, and the bytes that are left there; None if nobody knows.

    Args:
        target: the file or folder that is to be written.
    """
    folder = next(parent for parent in Path(target).absolute().parents if parent.exists())
    try:
        found = shutil.disk_usage(folder)
    except OSError:
        return None
    # A file system without a size, as some of networks are, says nothing about its space.
    return (folder, found.free) if found.total else None


def require_space(target: str | Path, size: int, scratch: int = 0) -> None:
    """Stop before any work is done when the disk has less space than will be written.

    Args:
        target: the file or folder that is to be written.
        size: how large it will be, in bytes; what it replaces stays until it is complete, so that counts as taken.
        scratch: how many of these bytes are numbers on the way, which are removed again.

    Raises:
        InputError: names the space needed and the space there is, in MiB.
    """
    space = free_space(target)
    if space is not None and space[1] < size:
        folder, left = space
        way = f", {_mib(scratch)} of them numbers on the way that are removed again" if scratch else ""
        raise InputError(
            f"{target}: about {_mib(size)} will be written{way}, but the disk of {folder} has {left // MIB:,} MiB "
            f"left; free some, or choose an output on another disk"
        )


def _mib(size: int) -> str:
    return f"{max(1, round(size / MIB)):,} MiB"


def recover(target: Path, resume: bool = False) -> None:
    """Remove what killed runs left beside `target`, and put back what one had moved aside.

    Args:
        target: the file or folder that is to be written.
        resume: whether what such a run left unfinished of `target` stays; that of others always does.
    """
    for found in dead(target.absolute().parent):
        stays = resume and (found.path / MANIFEST).exists()  # without one nothing is known of it
        if found.kind == "part" and (stays or not belongs(found, target)):
            continue
        if found.kind == "old":
            replaced = target if belongs(found, target) else found.path.with_name(found.label)
            if not os.path.lexists(replaced):
                # That of another output is left to the next run that writes there.
                if replaced is target:
                    with suppress(OSError):
                        found.path.rename(target)
                continue
        discard_quietly(found.path)
