"""SHA-256 of the weight files of checkpoints, computed once, beside other work where that is begun early.

A file that changes meanwhile has none: what was read of it is not what lies there.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fusionlab.checkpoints.files import is_adapter, weight_files
from fusionlab.errors import InputError

_ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")
_PIECE = 2**24
# The hub's cache keeps large files under this name of them.
_BLOB = re.compile(r"[0-9a-f]{64}")
_Key = tuple[str, int, int]

_lock = threading.Lock()
_known: dict[_Key, str] = {}
# Files as they were when a command began with them.
_begun: dict[str, _Key] = {}


def begin(locations: Iterable[Path]) -> None:
    """Compute the hashes of checkpoints as they are now, beside other work.

    `hashes_of` has them when they are asked for, and leaves out files that are others by then.

    Args:
        locations: files and folders.
    """
    places = list(locations)
    for file in (file for place in places for file in _files(place)):
        with suppress(OSError):
            _begun[str(file.resolve())] = _key(file.resolve())
    thread = threading.Thread(target=lambda: [hashes_of(place) for place in places], daemon=True)
    thread.start()


def hashes_of(location: Path) -> dict[str, str]:
    """The SHA-256 of each weight file of a checkpoint, in hexadecimal digits, by the file's name.

    Args:
        location: a file or folder; one without weights has none, and a file that cannot be read, or is another than
            `begin` saw, is left out.
    """
    found = {}
    for file in _files(location):
        try:
            # Of a link outside the hub's cache, the file's own name.
            found[file.name if _BLOB.fullmatch(file.resolve().name) else file.resolve().name] = _hash_of(file)
        except OSError:
            continue
    return found


def _files(location: Path) -> list[Path]:
    if location.is_file():
        return [location]
    try:
        if is_adapter(location):
            return [file for name in _ADAPTERS if (file := location / name).is_file()][:1]
        return weight_files(location)
    except InputError:
        return []


def _hash_of(file: Path) -> str:
    real = file.resolve()
    if real.parent.name == "blobs" and _BLOB.fullmatch(real.name):
        return real.name
    # One file at a time, and each once: whoever comes second finds what the first has computed.
    with _lock:
        key = _key(real)
        if _begun.get(str(real), key) != key:
            raise OSError(f"{real} changed")
        if key not in _known:
            digest = hashlib.sha256()
            piece = bytearray(_PIECE)
            with real.open("rb", buffering=0) as opened:
                while count := opened.readinto(piece):
                    digest.update(memoryview(piece)[:count])
            if _key(real) != key:
                raise OSError(f"{real} changed")
            _known[key] = digest.hexdigest()
        return _known[key]


def _key(real: Path) -> _Key:
    stat = real.stat()
    return str(real), stat.st_size, stat.st_mtime_ns
