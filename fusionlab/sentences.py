"""From an exception to the sentence that a user can act on; one place for all kinds of them."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fusionlab.errors import InputError, first_line
from fusionlab.paths import as_given

try:
    import resource
except ImportError:  # no such limits on Windows
    resource = None  # type: ignore[assignment]

_ELSEWHERE = "free some, or choose an output on another disk"
# By error number: what is wrong, and the way on. Names that a system lacks are left out.
SYSTEM_ERRORS = {
    "ENOSPC": f"no space is left on its disk; {_ELSEWHERE}",
    "EDQUOT": f"the disk quota is used up; {_ELSEWHERE}",
    "EFBIG": "the system allows no file of this size; raise the limit (ulimit -f), or choose an output on another disk",
    "EROFS": "its file system is read-only; expected a folder that can be written to",
    "EACCES": "permission is denied; expected a file that this user may read, or a folder that may be written to",
    "EPERM": "the operation is not permitted; expected a file that this user may read, or a folder that may be "
    "written to",
    "ENOENT": "there is no such file or folder; expected one that exists",
    "EEXIST": "it exists already; choose another output, or allow it to be replaced (--overwrite, overwrite=True)",
    "ENOTDIR": "a part of this path is a file; expected a path through folders",
    "EISDIR": "it is a folder; expected a file",
    "ENOTEMPTY": "the folder is not empty; choose another output",
    "ENAMETOOLONG": "the name is too long; expected at most 255 bytes in each part of a path",
    "ELOOP": "its links lead in a circle; expected a file or folder",
    "EMFILE": "too many files are open; raise the limit (ulimit -n), or use fewer workers (num_workers)",
    "ENFILE": "too many files are open on this machine; close some programs and start again",
    "EAGAIN": "no more processes or threads can be started; use fewer workers (num_workers)",
    "ENOMEM": "memory ran out; use smaller batches or fewer models at a time, or a machine with more memory",
    "EIO": "the device failed to read or write it; check the disk, or use another one",
    "ENXIO": "it is a device that cannot be read; expected an ordinary file",
    "ENODEV": "it is a device that cannot be read; expected an ordinary file",
    "EBUSY": "it is in use, as a mounted folder is; choose another output",
    "ETXTBSY": "it is in use; choose another output",
    "EINVAL": "the system refuses this name or operation; expected an ordinary file or folder",
    "ENOTSUP": "its file system cannot do this; expected an ordinary file or folder",
    "ESTALE": "the network disk has lost it; mount it again, or use a local disk",
    "ETIMEDOUT": "the network did not answer in time; try again",
    "ENETUNREACH": "the network cannot be reached; expected a path on this machine, or a network",
    "EHOSTUNREACH": "the network cannot be reached; expected a path on this machine, or a network",
    "ECONNREFUSED": "the connection was refused; try again, or use a path on this machine",
    "ECONNRESET": "the connection was lost; try again",
    "EPIPE": "the process at the other end of a connection has ended; start again",
    "EADDRINUSE": "the network address is in use by another process; choose another port (MASTER_PORT)",
}
_BY_NUMBER = {getattr(errno, name): words for name, words in SYSTEM_ERRORS.items() if hasattr(errno, name)}
# What a write fails with for want of a good disk; where no file is named it is the output.
WRITING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
# By the package that defines an exception: libraries that read what users give them. Their own words follow.
_LIBRARIES = {
    "safetensors": "a safetensors file is damaged, or could not be read or written",
    "safetensors_rust": "a safetensors file is damaged, or could not be read or written",
    "yaml": "a config is no valid YAML",
    "json": "a file is no valid JSON",
    "pickle": "a file is damaged, or holds more than tensors and plain data",
    "_pickle": "a file is damaged, or holds more than tensors and plain data",
    "zipfile": "a file is damaged",
    "pyarrow": "a data file is damaged, or its columns do not fit",
    "datasets": "a data set cannot be read",
    "huggingface_hub": "the Hugging Face hub, or its local cache, does not have what was asked for",
    "httpx": "the network could not be reached",
    "requests": "the network could not be reached",
    "PIL": "an image cannot be read",
    "jsonargparse": "the options cannot be read",
    "argparse": "the options cannot be read",
}
_LIGHTNING = ("MisconfigurationException", "DeadlockDetectedException")
_MEMORY = re.compile(
    r"can't allocate memory|not enough memory|cannot allocate memory|out of memory|unable to allocate|std::bad_alloc",
    re.IGNORECASE,
)
# How the writers of other languages tell the system's error number.
_OS_CODE = re.compile(r"\bcode: (\d+), kind: |\bos error (\d+)\b")
# Of a sentence, in characters: a value that was given is repeated in it, and may be of any length.
_LONGEST = 800
_TORCH_WRITER = re.compile(r"PytorchStreamWriter|iostream error|inline_container\.cc.*unexpected pos", re.DOTALL)


def sentence(error: BaseException) -> str | None:
    """The fault and the way on, in one sentence without its full stop.

    Args:
        error: an exception; those that it was raised from are looked at too.

    Returns:
        The sentence; None for an exception that no input, disk or machine explains: an error of fusionlab's own.
    """
    for cause in _chain(error):
        if (told := _told(cause)) is not None:
            return _one_line(as_given(told))
    return None


def _one_line(text: str) -> str:
    """A text on one line that any terminal may be sent: signs that control it are spelled, what is endless is cut."""
    line = re.sub(r"\s+", " ", text).strip().rstrip(".")
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}"


def system_error(error: BaseException, path: str | os.PathLike[str]) -> OSError | None:
    """The system's own error behind an exception of a library that was writing.

    Args:
        error: what was raised while `path` was written.
        path: the output.

    Returns:
        An OSError that names `path`; None where no error of the system is behind it.
    """
    name = os.fspath(path)
    if isinstance(error, OSError):
        number = error.errno
    elif found := _OS_CODE.search(str(error)):
        number = int(found.group(1) or found.group(2))
    elif isinstance(error, RuntimeError) and _TORCH_WRITER.search(str(error)):
        number = _why_not_written(name)
    else:
        return None
    return None if number is None else OSError(number, os.strerror(number), name)


@contextmanager
def naming(path: Callable[[], str | os.PathLike[str]]) -> Iterator[None]:
    """Name the output in a failure of the disk that names no file, as those of a file that is open already do.

    Args:
        path: gives the file or folder that the block writes to; asked when it has failed.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in WRITING:
            error.filename = os.fspath(path())
        raise


def _why_not_written(path: str) -> int:
    """The reason why a write stopped short, where its writer does not say: nearly always a disk without space."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return errno.ENOSPC
    if free > 2**20 and resource is not None and resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        return errno.EFBIG
    return errno.ENOSPC


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and what it was raised from; not what was merely being handled, which would excuse any bug."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__


def _told(error: BaseException) -> str | None:
    """The sentence for one exception, or None."""
    told = None
    packages = [cls.__module__.partition(".")[0] for cls in type(error).__mro__]
    # By its name: what defines it is not imported for every error.
    is_of_symmetry = "SymmetryError" in [cls.__name__ for cls in type(error).__mro__]
    if isinstance(error, InputError) or (packages[0] == "fusionlab" and is_of_symmetry):
        told = str(error)
    elif isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _MEMORY.search(str(error))):
        how = f" ({_short(error)})" if str(error) else ""
        told = f"memory ran out{how}; use smaller batches or fewer models at a time, or a machine with more memory"
    elif isinstance(error, RecursionError):
        told = "the input is nested too deeply; expected configs and files of ordinary depth"
    elif isinstance(error, OSError) and error.errno is not None:
        told = _of_number(error.errno, error.filename, _short(error))
    elif number := _OS_CODE.search(str(error)):
        told = _of_number(int(number.group(1) or number.group(2)), None, _short(error))
    elif library := next((_LIBRARIES[package] for package in packages if package in _LIBRARIES), None):
        told = f"{library} ({_short(error)}); expected a readable one of the kind that the command takes"
    elif isinstance(error, OSError):
        told = _of_number(None, error.filename, _short(error))
    elif isinstance(error, UnicodeError):
        told = f"a text is not UTF-8 ({_short(error)}); expected UTF-8 in files, and in their names"
    elif packages[0] == "lightning" and type(error).__name__ in _LIGHTNING:
        told = _short(error)
    return told


def _of_number(number: int | None, path: object, message: str) -> str:
    words = _BY_NUMBER.get(number or 0)
    where = f"{os.fsdecode(path)}: " if isinstance(path, str | bytes | os.PathLike) and path else ""
    if words is None:
        return f"{where}{message}; expected a file or folder that can be read, or written where it is an output"
    return where + words if where else f"{words} (no file was named: {message})"


def _short(error: BaseException, limit: int = 200) -> str:
    """The first line of a message, no longer than fits a sentence."""
    line = first_line(error)
    return line if len(line) <= limit else f"{line[: limit - 3]}..."
