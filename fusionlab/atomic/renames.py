"""Renaming in one step what other systems need two for: two names exchanged, or a name taken only if it is free."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

_AT_FDCWD = -100
# renameat2(2) of Linux; renamex_np(2) of macOS.
_LINUX = {"no_replace": 1, "exchange": 2}
_MACOS = {"exchange": 2, "no_replace": 4}
# A kernel, C library or file system that does not know the call or the flag.
_UNKNOWN = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM}


def exchange(first: Path, second: Path) -> bool:
    """Exchange what two names of one folder stand for, in one step: there is no moment without either.

    Returns:
        False where the system cannot; nothing has changed then.

    Raises:
        OSError: one of them is not there, or may not be renamed.
    """
    return _native(first, second, "exchange")


def rename_to_free(source: Path, target: Path) -> None:
    """Rename to a name that nothing has.

    Raises:
        FileExistsError: something has it; noticed in the same step where the system can, else just before.
        OSError: it may not be renamed.
    """
    if _native(source, target, "no_replace"):
        return
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    source.rename(target)


def _native(source: Path, target: Path, flag: str) -> bool:
    if sys.platform not in ("linux", "darwin"):
        return False
    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(source), os.fsencode(target)
    if sys.platform == "linux":
        if not hasattr(library, "renameat2"):
            return False
        failed = library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _LINUX[flag])
    else:
        if not hasattr(library, "renamex_np"):
            return False
        failed = library.renamex_np(*names, _MACOS[flag])
    if not failed:
        return True
    number = ctypes.get_errno()
    if number in _UNKNOWN:
        return False
    raise OSError(number, os.strerror(number), str(source), None, str(target))
