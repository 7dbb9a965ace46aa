"""What a child may not do unseen: write, connect, start programs. It is told as it happens, so a kill hides nothing."""

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_NETWORK = {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.bind"}
_PROGRAMS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile", "pty.spawn"}
# Which arguments of an event are paths that change, and which argument (if any) is the folder they are relative to.
_CHANGES: dict[str, tuple[tuple[int, int | None], ...]] = {
    "os.mkdir": ((0, 2),), "os.rename": ((0, 2), (1, 3)), "os.remove": ((0, 1),), "os.rmdir": ((0, 1),),
    "os.link": ((1, 3),), "os.symlink": ((1, 2),), "os.truncate": ((0, None),), "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),), "os.setxattr": ((0, None),), "os.mkfifo": ((0, 1),), "os.utime": ((0, 3),),
}  # fmt: skip


class Watch:
    """An audit hook: writes outside of some places, connections and programs become lines of JSON on a pipe.

    Args:
        report: the file descriptor of the pipe.
        may_write: files and folders that may be written; a name that ends in ``*`` stands for all that begin so.
        kill_at: the change of the file system, counted from 1, at which the process kills itself; never if None.
    """

    def __init__(self, report: int, may_write: Sequence[str], kill_at: int | None = None) -> None:
        self.report_to = report
        self.exact = [os.path.realpath(path) for path in may_write if not path.endswith("*")]
        self.beginnings = [
            os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)[:-1])
            for path in may_write
            if path.endswith("*")
        ]
        self.kill_at = kill_at
        self.changes = 0
        self.busy = False

    def start(self) -> None:
        """Watch from now on; there is no way to stop."""
        sys.addaudithook(self)

    def tell(self, kind: str, value: Any) -> None:
        """Put a line on the pipe."""
        os.write(self.report_to, (json.dumps({kind: value}) + "\n").encode())

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.busy:  # what the hook itself does
            return
        if event in _NETWORK:
            self.tell("network", f"{event} {str(arguments[1:])[:200]}")
            raise ConnectionRefusedError("the network is out of bounds here")
        if event in _PROGRAMS:
            self.tell("program", f"{event} {str(arguments)[:200]}")
            return
        self.busy = True
        try:
            paths = [
                # Making a folder that is there fails, or is the way to say that it may be there.
                path
                for path in self._changed(event, arguments)
                if event != "os.mkdir" or not os.path.lexists(path)
            ]
            for path in paths:
                if not self._allowed(path):
                    self.tell("outside", f"{event} {path}")
            # Devices and pipes are no files that a crash could leave half written.
            if paths and not any(path.startswith(("/dev/", "/proc/")) for path in paths):
                self.changes += 1
                self.tell("change", f"{event} {paths[-1]}")
                if self.changes == self.kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
        finally:
            self.busy = False

    def _changed(self, event: str, arguments: tuple[Any, ...]) -> Sequence[str]:
        if event == "open":
            path, mode, flags = arguments
            writes = any(c in mode for c in "wax+") if isinstance(mode, str) else bool((flags or 0) & _WRITING_FLAGS)
            return [_absolute(path, None)] if writes and not isinstance(path, int) else []
        places = _CHANGES.get(event, ())
        return [
            _absolute(arguments[path], arguments[folder] if folder is not None and folder < len(arguments) else None)
            for path, folder in places
            if not isinstance(arguments[path], int)
        ]

    def _allowed(self, path: str) -> bool:
        if path in ("/dev/null", "/dev/tty"):
            return True
        inside = any(path == place or path.startswith(f"{place}{os.sep}") for place in self.exact)
        return inside or any(path.startswith(beginning) for beginning in self.beginnings)


def _absolute(path: Any, folder: Any) -> str:
    name = os.fsdecode(path)
    if isinstance(folder, int) and folder >= 0 and not os.path.isabs(name):
        name = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), name)
    return os.path.join(os.path.realpath(os.path.dirname(os.path.abspath(name))), os.path.basename(name))


def inventory(folder: Path) -> dict[str, tuple[str, int, int]]:
    """Every name below a folder, hidden ones too: its kind, size and the time it was changed last.

    Folders are told without their times, which change with what is made and removed in them.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        state = path.lstat()
        kind = "link" if path.is_symlink() else "folder" if path.is_dir() else "file"
        found[str(path.relative_to(folder))] = (kind, 0, 0) if kind == "folder" else (
            kind, state.st_size, state.st_mtime_ns,
        )  # fmt: skip
    return found
