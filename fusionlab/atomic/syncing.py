"""Bringing files and folders onto the disk."""

import errno
import os
from pathlib import Path

# A file system that cannot sync a folder, or needs no syncing.
_NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF, errno.EACCES, errno.EPERM, errno.EROFS}


def sync_tree(path: Path) -> None:
    """Bring a file, or a folder with all in it, onto the disk."""
    if path.is_symlink():
        return
    if path.is_dir():
        for entry in path.iterdir():
            sync_tree(entry)
    sync(path)


def sync(path: Path) -> None:
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
