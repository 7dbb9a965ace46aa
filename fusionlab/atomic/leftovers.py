"""Names of temporary outputs: they say which process made them, so that what a killed run left behind can be removed.

A name is ``.LABEL.fusionlab-KIND-HOST-PID-START-TOKEN``. HOST stands for the machine and, in a container, for its
space of process numbers; START tells a process from a later one with its number. What another host made is left alone,
as nothing here says whether it still runs.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

# ``new`` is being written; ``old`` is an output that is being replaced, where that takes two renames; ``part`` is being
# written, or waits for a call that goes on with it.
Kind = Literal["new", "old", "part"]
_NAME = re.compile(
    r"\.(?P<label>.+)\.fusionlab-(?P<kind>new|old|part)-(?P<host>\w+)-(?P<pid>\d+)-(?P<start>\w+)-(?P<token>[0-9a-f]{8})"
)
_LONGEST = 255  # bytes in a file name, on nearly every file system


@dataclass(frozen=True)
class Leftover:
    """A temporary output, by its name.

    Attributes:
        path: where it is.
        label: the output's name, or a digest of one too long.
        kind: ``new``, ``old`` or ``part``.
    """

    path: Path
    label: str
    kind: str


def hidden(target: Path, kind: Kind) -> Path:
    """A hidden name beside `target` that nobody uses yet, on its file system so that renaming is atomic."""
    suffix = f".fusionlab-{kind}-{host()}-{os.getpid()}-{started(os.getpid()) or 'unknown'}-{secrets.token_hex(4)}"
    return target.parent / f".{_label(target.name, len(suffix))}{suffix}"


def belongs(leftover: Leftover, target: Path) -> bool:
    """True if a temporary output was made for `target`."""
    return leftover.label in (target.name, _digest(target.name))


def dead(folder: Path) -> Iterator[Leftover]:
    """The temporary outputs in a folder whose process has ended: this user's, made on this host.

    Args:
        folder: to look through; one that cannot be read has none.
    """
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None or match["host"] != host():
            continue
        found = Leftover(folder / name, match["label"], match["kind"])
        now = started(int(match["pid"]))
        lives = now is not None and (now == match["start"] or "unknown" in (now, match["start"]))
        if mine(found.path) and not lives:
            yield found


def parse_name(path: Path) -> Leftover | None:
    """A temporary output by its path, whoever made it; None where that is none."""
    match = _NAME.fullmatch(path.name)
    return None if match is None else Leftover(path, match["label"], match["kind"])


def mine(path: Path) -> bool:
    """True if something is there that belongs to this user."""
    try:
        return not hasattr(os, "geteuid") or os.lstat(path).st_uid == os.geteuid()
    except OSError:
        return False


def discard(path: Path) -> None:
    """Delete a file, link or folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@functools.cache
def host() -> str:
    """This machine, as letters and digits; in a container also its space of process numbers, and the boot it is of."""
    name = re.sub(r"\W|_", "", platform.node())[:24] or "host"
    space = _read_link("/proc/self/ns/pid")
    parts = [platform.node(), _read("/etc/machine-id")]
    if space not in ("", "pid:[4026531836]"):  # the number of the first such space on every Linux
        parts += [space, _read("/proc/sys/kernel/random/boot_id")]
    return f"{name}_{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:8]}"


def started(pid: int) -> str | None:
    """The start time of a process of this host, as letters and digits that no later process with its number shares.

    Returns:
        None where there is no such process; ``unknown`` where the system does not tell.
    """
    if sys.platform == "linux":
        return _started_on_linux(pid)
    if sys.platform == "win32":
        return "unknown"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return re.sub(r"\W", "", found.stdout) or "unknown"


def _started_on_linux(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The name stands in brackets and may hold spaces; the 22nd field is the start, in ticks since the boot.
            state, *rest = file.read().rpartition(")")[2].split()
            ticks = rest[18]
    except (FileNotFoundError, ProcessLookupError):
        return None
    except (OSError, ValueError, IndexError):
        return "unknown"
    # One that has ended, though nobody has asked for its exit code yet, is no more.
    return None if state in "ZX" else f"{_read('/proc/sys/kernel/random/boot_id')[:8]}x{ticks}"


def _label(name: str, room: int) -> str:
    return name if len(os.fsencode(name)) + room + 1 <= _LONGEST else _digest(name)


def _digest(name: str) -> str:
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _read_link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
