"""Nothing is written half: output goes to a temporary name beside its target and is renamed when complete.

Complete means on the disk: files and folders are synced before they get their name, and the folder that holds the name
after it. An output that is replaced is exchanged in one step where the system can.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from fusionlab import leftovers, signals
from fusionlab.errors import InputError
from fusionlab.renames import exchange, rename_to_free
from fusionlab.sentences import WRITING, system_error

MIB = 2**20
# A file system that cannot sync a folder, or needs no syncing.
_NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF, errno.EACCES, errno.EPERM, errno.EROFS}


@dataclass(eq=False)
class _Output:
    """One output while it is written.

    Attributes:
        target: its name; None for one that nobody is to keep.
        temporary: the name it is written under; after an exchange, that of what it replaced.
        previous: where what it replaces is put for a moment, if the system cannot exchange names.
        parents: folders that were made to hold it, outermost first.
    """

    target: Path | None
    temporary: Path
    previous: Path | None = None
    parents: list[Path] = field(default_factory=list)

    def abandon(self) -> None:
        """Leave everything as it was before, or as it is complete."""
        if self.previous is not None and self.target is not None and os.path.lexists(self.previous):
            if os.path.lexists(self.target):
                _discard_quietly(self.previous)
            else:
                with suppress(OSError):
                    self.previous.rename(self.target)
        _discard_quietly(self.temporary)
        _remove_empty(self.parents)


_open: list[_Output] = []


def discard_all() -> None:
    """Remove every temporary output of this process: the last thing it does when it has to end at once."""
    for output in reversed(_open):
        output.abandon()


def refuse_existing(target: str | Path, overwrite: bool = False) -> None:
    """Stop before any work is done when `target` may not, or cannot, be written.

    What killed runs left beside it is removed first, and an output that such a run had moved aside put back.

    Args:
        target: the file or folder that is to be written.
        overwrite: whether something that is already there may be replaced.

    Raises:
        InputError: `target` exists and `overwrite` is false; or it is the working folder or holds it, which
            would be lost with everything in it; or cannot be replaced; or writing beside it was tried and failed.
    """
    target = Path(target)
    _recover(target)
    _refuse(target, overwrite)
    try_to_write(target)


def try_to_write(target: str | Path) -> None:
    """Write and remove a byte beside `target`, under the kind of name that its output will have.

    Folders that are missing on the way to it are made, and removed again.

    Raises:
        InputError: it cannot be written; says why.
    """
    target = Path(target)
    for _ in range(10):
        trial = _Output(None, leftovers.hidden(target, "new"))
        _open.append(trial)
        try:
            trial.parents = _make_parents(target.parent)
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
            _open.remove(trial)
    raise InputError(
        f"{target}: nothing can be written into {target.absolute().parent} ({failure.strerror}); expected a folder "
        f"with that permission, on a disk with space"
    ) from failure


def require_space(target: str | Path, size: int) -> None:
    """Stop before any work is done when the disk has less space than will be written.

    Args:
        target: the file or folder that is to be written.
        size: how large it will be, in bytes; what it replaces stays until it is complete, so that counts as taken.

    Raises:
        InputError: names the space needed and the space there is, in MiB.
    """
    folder = next(parent for parent in Path(target).absolute().parents if parent.exists())
    try:
        found = shutil.disk_usage(folder)
    except OSError:
        return
    # A file system without a size, as some of networks are, says nothing about its space.
    if found.total and found.free < size:
        raise InputError(
            f"{target}: about {max(1, round(size / MIB)):,} MiB will be written, but the disk of {folder} has "
            f"{found.free // MIB:,} MiB left; free some, or choose an output on another disk"
        )


@contextmanager
def atomic_folder(target: str | Path, overwrite: bool = False) -> Iterator[Path]:
    """Write a folder that appears under its name only once the block has ended without an error.

    Args:
        target: the folder to be written; its parents are made when they are missing.
        overwrite: whether a folder that is already there may be replaced, which happens after the new one is complete.

    Yields:
        An empty temporary folder beside `target`. It is deleted when the block fails or is interrupted.

    Raises:
        InputError: as `refuse_existing`.
        OSError: the disk failed or is full; the error names the output.
    """
    with _atomic(target, overwrite, folder=True) as temporary:
        yield temporary


@contextmanager
def atomic_file(target: str | Path, overwrite: bool = False) -> Iterator[Path]:
    """Write a file that appears under its name only once the block has ended without an error.

    Args:
        target: the file to be written; its parents are made when they are missing.
        overwrite: whether a file that is already there may be replaced, which happens after the new one is complete.

    Yields:
        The temporary name beside `target` that the block writes to.

    Raises:
        InputError: as `refuse_existing`.
        OSError: the disk failed or is full; the error names the output.
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
    with _atomic(folder / "entries", overwrite=True, folder=True, put=_put_entries) as temporary:
        yield temporary


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder for what nobody is to keep, in the system's place for temporary files.

    Like a temporary output it is removed at the end, when interrupted, or by the next run.

    Yields:
        The empty folder.
    """
    target = Path(tempfile.gettempdir()) / "scratch"
    _recover(target)
    output = _Output(None, leftovers.hidden(target, "new"))
    _open.append(output)
    try:
        output.temporary.mkdir(mode=0o700)
        yield output.temporary
    finally:
        output.abandon()
        _open.remove(output)


@contextmanager
def _atomic(
    target: str | Path,
    overwrite: bool,
    folder: bool,
    put: Callable[[_Output, Path, bool], None] | None = None,
) -> Iterator[Path]:
    target = Path(target)
    _recover(target)
    _refuse(target, overwrite)
    output = _Output(target, leftovers.hidden(target, "new"), leftovers.hidden(target, "old"))
    # Known before it is there, so that an interruption at any moment finds it.
    _open.append(output)
    try:
        output.parents = _make_parents(target.parent)
        if folder:
            output.temporary.mkdir()
        yield output.temporary
        signals.check()
        _sync_tree(output.temporary)
        # Asked again: somebody else may have written the target while this output was being made.
        _refuse(target, overwrite)
        (put or _put)(output, target, overwrite)
        for made in output.parents:
            _sync(made.parent)
    except BaseException as error:
        # Before the temporary output goes, as the space that it frees is what the error is about.
        located = _located(error, output.temporary, target if put is None else target.parent)
        output.abandon()
        if located is not error:
            raise located from error
        raise
    finally:
        _open.remove(output)


def _refuse(target: Path, overwrite: bool) -> None:
    """Refuse a target by what is there now."""
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
        raise InputError(f"{target} exists already; choose another output, or allow it to be replaced (overwrite)")
    if os.path.ismount(target):
        raise InputError(f"{target} is a mounted file system, which cannot be replaced; choose an output inside it")
    if hasattr(os, "geteuid"):
        holder = parent.stat()
        if holder.st_mode & stat.S_ISVTX and os.geteuid() not in (0, found.st_uid, holder.st_uid):
            raise InputError(f"{target} belongs to another user, so it cannot be replaced; choose another output")


def _recover(target: Path) -> None:
    """Remove what killed runs left beside `target`, and put back what one had moved aside."""
    for found in leftovers.dead(target.absolute().parent):
        if found.kind == "old":
            replaced = target if leftovers.belongs(found, target) else found.path.with_name(found.label)
            if not os.path.lexists(replaced):
                # That of another output is left to the next run that writes there.
                if replaced is target:
                    with suppress(OSError):
                        found.path.rename(target)
                continue
        _discard_quietly(found.path)


def _put(output: _Output, target: Path, overwrite: bool) -> None:
    """Give a complete output its name; what has it is exchanged in one step where the system can."""
    try:
        rename_to_free(output.temporary, target)
    except FileExistsError:
        if not overwrite:
            raise InputError(f"{target} exists already; another process wrote it meanwhile") from None
        if not exchange(output.temporary, target):
            _put_in_two(output, target)
    _sync(target.absolute().parent)
    # What was replaced, under the name that the system left it.
    _discard_quietly(output.temporary)


def _put_entries(output: _Output, target: Path, overwrite: bool) -> None:
    """Give each entry of a complete folder its name in the folder that holds `target`."""
    for entry in sorted(output.temporary.iterdir()):
        place = target.parent / entry.name
        part = _Output(place, entry, leftovers.hidden(place, "old"))
        _open.append(part)
        try:
            _put(part, place, overwrite)
        finally:
            part.abandon()
            _open.remove(part)
    _discard_quietly(output.temporary)


def _put_in_two(output: _Output, target: Path) -> None:
    """The same where the system cannot exchange names: one rename for files, two for folders."""
    if not output.temporary.is_dir() and (target.is_symlink() or not target.is_dir()):
        output.temporary.replace(target)
        return
    assert output.previous is not None
    target.rename(output.previous)
    output.temporary.rename(target)  # if this fails, the output is abandoned, which puts the previous one back
    _discard_quietly(output.previous)


def _located(error: BaseException, temporary: Path, target: Path) -> BaseException:
    """An error of the disk, told of the output and not of its temporary name."""
    if isinstance(error, OSError):
        name = error.filename
        if isinstance(name, str) and Path(name).is_relative_to(temporary):
            error.filename = str(target / Path(name).relative_to(temporary))
        elif name is None and error.errno in WRITING:
            error.filename = str(target)
        return error
    found = system_error(error, target) if isinstance(error, Exception) else None
    return error if found is None else found


def _make_parents(folder: Path) -> list[Path]:
    """Make a folder with all that holds it; returns what was missing, outermost first."""
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()][::-1]
    made: list[Path] = []
    try:
        for parent in missing:
            with suppress(FileExistsError):
                parent.mkdir()
                made.append(parent)
    except BaseException:
        _remove_empty(made)
        raise
    return made


def _remove_empty(folders: list[Path]) -> None:
    for folder in reversed(folders):
        with suppress(OSError):
            folder.rmdir()


def _discard_quietly(path: Path) -> None:
    """Delete what may be in use for a moment yet; what stays is for the next run."""
    for _ in range(3):
        try:
            leftovers.discard(path)
            return
        except OSError:
            continue


def _sync_tree(path: Path) -> None:
    """Bring a file, or a folder with all in it, onto the disk."""
    if path.is_symlink():
        return
    if path.is_dir():
        for entry in path.iterdir():
            _sync_tree(entry)
    _sync(path)


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():
        return  # Windows opens no folders
    try:
        handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    except OSError as error:
        if error.errno in _NO_SYNC:
            return
        raise
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(handle)
