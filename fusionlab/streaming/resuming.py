"""The manifest of an output that a later call may go on with: of what it is made, and which of its files are complete.

It has a line of JSON for each: the first says of what and how, each further one names a complete file with its SHA-256
and what was found while it was written. Lines are only added, and a file is on the disk before its line is.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from fusionlab import __version__
from fusionlab.atomic import MANIFEST, unfinished
from fusionlab.errors import InputError
from fusionlab.streaming.stored import StoredModel, TensorSpec

_PIECE = 2**24


def made_of(options: Mapping[str, object], models: Mapping[str, StoredModel]) -> dict[str, object]:
    """A description of what is written: equal ones stand for equal bytes.

    Args:
        options: all that say how.
        models: all that it is made of. Their weight files are told from others by path, size and time of change.
    """
    stored = {f"the model {name}": _identity(model) for name, model in models.items()}
    described = {"the version of fusionlab": __version__, **options, "the names of the models": list(models), **stored}
    # As it will be read again.
    return dict(json.loads(json.dumps(described, default=str)))


def _identity(model: StoredModel) -> dict[str, object]:
    files = dict.fromkeys([*(file for tensor in model.tensors.values() for file in tensor.files), *model.beside])
    return {"files": files_of(files), "config": model.config, "tensors": list(model.tensors)}


def files_of(files: Iterable[Path]) -> dict[str, list[int]]:
    """Size and time of change in nanoseconds by the paths of files, which tell them from others."""
    return {str(file.resolve()): [(stat := file.stat()).st_size, stat.st_mtime_ns] for file in files}


def refuse_other(target: Path, described: Mapping[str, object]) -> int:
    """Refuse to go on with an output that is made of something else, or otherwise.

    Args:
        target: the folder that is to be written.
        described: of what it is to be made, see `made_of`.

    Returns:
        The bytes on the disk of what an earlier call left: complete files stay, and the place of others is taken again.

    Raises:
        InputError: names what differs.
    """
    for folder in unfinished(target):
        begun, _ = _read(folder)
        if begun is None:
            continue
        for name in {**described, **begun}:
            if begun.get(name) != described.get(name):
                told = f": {begun[name]} then, {described[name]} now" if _is_short(begun, described, name) else ""
                raise InputError(
                    f"{target} was begun by an earlier call with another input or option ({name} differs{told}); "
                    f"repeat that call, or leave out --resume, which removes what it left"
                )
        return sum(_bytes_on_disk(path) for path in folder.rglob("*") if path.is_file())
    return 0


def _bytes_on_disk(path: Path) -> int:
    """The bytes that a file takes; of one that is not complete fewer than it is long."""
    found = path.stat()
    return getattr(found, "st_blocks", found.st_size // 512) * 512


def _is_short(begun: Mapping[str, object], described: Mapping[str, object], name: str) -> bool:
    return all(name in one and len(str(one[name])) < 60 for one in (begun, described))


class Manifest:
    """The manifest of an output while it is written.

    Args:
        folder: the unfinished output; files in it that are not as the manifest says are removed.
        described: of what it is made.

    Attributes:
        finished: what was found while complete files were written, by file.
    """

    def __init__(self, folder: Path, described: Mapping[str, object]) -> None:
        self.folder, self._lock = folder, threading.Lock()
        begun, files = _read(folder)
        self.finished: dict[str, Any] = {}
        for file, line in files.items():
            if begun == described and _is_as(folder / file, line["sha256"]):
                self.finished[file] = line["found"]
        lines = [dict(described), *({**files[file]} for file in self.finished)]
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        # The file stays the one that is locked. What is lost if this is cut short is known by no line.
        with (folder / MANIFEST).open("r+", encoding="utf-8") as opened:
            opened.truncate()
            opened.write(text)
            _sync(opened.fileno(), opened)
        kept = {folder / MANIFEST, *(folder / file for file in self.finished)}
        for path in [path for path in folder.rglob("*") if path not in kept and not path.is_dir()]:
            path.unlink()
        for path in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
            with suppress(OSError):
                path.rmdir()  # of those that are empty now

    def add(self, file: str, found: object) -> None:
        """Say that a file is complete, from any thread.

        Args:
            file: its path in the output; it is brought onto the disk first.
            found: while it was written, as JSON has it.
        """
        with (self.folder / file).open("rb") as opened:
            os.fsync(opened.fileno())
            digest = _digest(opened)
        line = json.dumps({"file": file, "sha256": digest, "found": found})
        with self._lock, (self.folder / MANIFEST).open("a", encoding="utf-8") as manifest:
            manifest.write(f"{line}\n")
            _sync(manifest.fileno(), manifest)


class Tally:
    """Numbers found while files are written, by file, and what is left of each to write.

    Args:
        files: names of tensors by file.
        tensors: what is written.
        count: of the numbers that are found of each file.
        manifest: that is told of complete files, where there is one; by a thread beside what writes.
        prefix: of files, where they lie in a folder of the output that has the manifest.
    """

    def __init__(
        self,
        files: Mapping[str, Sequence[str]],
        tensors: Mapping[str, TensorSpec],
        count: int,
        manifest: Manifest | None,
        prefix: str = "",
    ) -> None:
        files = {f"{prefix}{file}": names for file, names in files.items()}
        self.of = {name: file for file, names in files.items() for name in names}
        self.manifest, self._thread = manifest, ThreadPoolExecutor(1)
        self.finished: Mapping[str, Sequence[float]] = {} if manifest is None else manifest.finished
        self.found = {file: list(self.finished.get(file, [0.0] * count)) for file in files}
        self._left = {f: sum(tensors[n].size for n in names) for f, names in files.items() if f not in self.finished}
        self._added: list[Future[None]] = []

    def __enter__(self) -> Tally:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Also where the work was ended: what is complete then is not to be written again.
        self._thread.shutdown(wait=True)
        if kind is None:
            for added in self._added:
                added.result()

    def is_written(self, names: Iterable[str]) -> bool:
        """True if all of some tensors lie in files that were complete before."""
        return all(self.of[name] in self.finished for name in names)

    def add(self, sizes: Mapping[str, int], found: Sequence[float] = ()) -> None:
        """Count what was written of some tensors, and what was found of them.

        Args:
            sizes: the bytes written of each.
            found: numbers, which go to the file of the first tensor.
        """
        first = self.of[next(iter(sizes))]
        if found and first not in self.finished:
            self.found[first] = [total + one for total, one in zip(self.found[first], found, strict=True)]
        for name, size in sizes.items():
            if (file := self.of[name]) in self._left:
                self._left[file] -= size
                if self._left[file] <= 0:
                    del self._left[file]
                    if self.manifest is not None:
                        self._added.append(self._thread.submit(self.manifest.add, file, self.found[file]))

    def totals(self) -> list[float]:
        """The numbers of all files together."""
        return [sum(column) for column in zip(*self.found.values(), strict=True)]


def _read(folder: Path) -> tuple[dict[str, object] | None, dict[str, dict[str, Any]]]:
    """The line on what an output was begun of, None if it is not known; and those on its complete files, by file."""
    lines = []
    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None, {}
    for line in text.splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break  # the process ended while it wrote this one
    if not lines:
        return None, {}
    return lines[0], {line["file"]: line for line in lines[1:]}


def _is_as(file: Path, digest: str) -> bool:
    try:
        with file.open("rb") as opened:
            return _digest(opened) == digest
    except OSError:
        return False


def _digest(opened: Any) -> str:
    digest = hashlib.sha256()
    while piece := opened.read(_PIECE):
        digest.update(piece)
    return digest.hexdigest()


def _sync(handle: int, opened: Any) -> None:
    opened.flush()
    os.fsync(handle)
