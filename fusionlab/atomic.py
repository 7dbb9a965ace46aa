"""Nothing is written half: output goes to a temporary name beside its target and is renamed when complete."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fusionlab.errors import InputError


def refuse_existing(target: str | Path, overwrite: bool = False) -> None:
    """Stop before any work is done when `target` may not be written.

    Args:
        target: the file or folder that is to be written.
        overwrite: whether something that is already there may be replaced.

    Raises:
        InputError: `target` exists and `overwrite` is false; or it is the working folder or holds it, which
            would be lost with everything in it; or it would stand in a file, or in a folder that may not be written to.
    """
    target = Path(target)
    working_folder = Path.cwd().resolve()
    if target.resolve() in (working_folder, *working_folder.parents):
        raise InputError(f"{target}: an output may not replace the working folder or a folder that holds it")
    parent = next(folder for folder in target.absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise InputError(f"{target}: nothing can be written into {parent}; expected a folder with that permission")
    if not overwrite and (target.exists() or target.is_symlink()):
        raise InputError(f"{target} exists already; choose another output, or allow it to be replaced (overwrite)")


def _discard(path: Path) -> None:
    """Delete a file, link or folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _exchange(complete: Path, target: Path) -> None:
    """Put `complete` in the place of `target`; what stood there is deleted last, and put back on failure."""
    if not (target.exists() or target.is_symlink()):
        complete.rename(target)
        return
    previous = _beside(target)
    target.rename(previous)
    try:
        complete.rename(target)
    except BaseException:
        previous.rename(target)
        raise
    _discard(previous)


def _beside(target: Path) -> Path:
    """A hidden name that nobody uses yet, on the same file system as `target` so that renaming is atomic."""
    return target.parent / f".{target.name}.{uuid.uuid4().hex[:12]}"


@contextmanager
def _atomic(target: str | Path, overwrite: bool, folder: bool) -> Iterator[Path]:
    target = Path(target)
    refuse_existing(target, overwrite)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(target)
    try:
        if folder:
            temporary.mkdir()
        yield temporary
        # Asked again: somebody else may have written the target while this output was being made.
        refuse_existing(target, overwrite)
        _exchange(temporary, target)
    except BaseException:
        _discard(temporary)
        raise


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
    """
    with _atomic(target, overwrite, folder=False) as temporary:
        yield temporary
