"""Inferred blueprints on disk, so that a later process need not infer them again: one file for each.

A file lies in the user's cache folder, is named by a digest of everything that its blueprint follows from, and holds
plain data. It is an aid and never a condition: a file that is damaged or not ours counts as none, and a folder that
cannot be written as one that is empty.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version
from torch import Tensor, nn

from fusionlab.symmetry.blueprint import Blueprint, SymmetryError
from fusionlab.symmetry.infer.values import RULES
from fusionlab.symmetry.plain import PlainError, dumps, loads

# Names the folder; `CACHES` that of all programs' caches, where it is not set.
FOLDER, CACHES = "FUSIONLAB_CACHE", "XDG_CACHE_HOME"
# Where a module's code follows from a version; that of any other may change from one process to the next.
PACKAGES = ("transformers", "timm", "torchvision", "torch")
OWN = "fusionlab"
# Blueprints of models of a hundred billion parameters take one MiB.
MOST_BYTES = 2**23
# The oldest files beyond so many, or beyond so many bytes together, are removed.
MOST_FILES, MOST_BYTES_TOGETHER = 1000, 2**28
SUFFIX, UNFINISHED = ".json", ".unfinished-"
# Nobody writes one file for longer.
SECONDS_UNFINISHED = 3600


def folder() -> Path | None:
    """The folder that blueprints are kept in; None where there is no place for any."""
    try:
        if named := os.environ.get(FOLDER):
            return Path(named).expanduser().absolute() / "blueprints"
        caches = Path(os.environ.get(CACHES, ""))
        return (caches if caches.is_absolute() else Path.home() / ".cache") / "fusionlab" / "blueprints"
    except RuntimeError:  # the home folder is not known
        return None


def place(model: nn.Module, key: str) -> Path | None:
    """The file of a model's blueprint; None where none may be kept.

    A blueprint is kept where all code that the model computes with is that of an installed package's version, and every
    rule of inference is one of fusionlab's.

    Args:
        model: any module.
        key: says what its blueprint follows from, code aside.
    """
    where = folder()
    packages = {_package(code) for code in _code_of(model)}
    if where is None or not packages <= set(PACKAGES) or {_package(rule) for rule in RULES.values()} != {OWN}:
        return None
    versions = {name: version_of(name) for name in sorted(packages | {"torch", "transformers", OWN})}
    if any(versions[name] is None for name in packages):
        return None
    told = json.dumps([key, versions, digest_of_sources()])
    return where / f"{hashlib.sha256(told.encode()).hexdigest()}{SUFFIX}"


def read(path: Path, state: Mapping[str, Tensor]) -> Blueprint | None:
    """The blueprint in a file; None where there is no such file, or none that holds one for these parameters."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > 2 * MOST_BYTES:
            return None
        digest, _, text = path.read_text(encoding="utf-8").partition("\n")
        if json.loads(digest) != {"sha256": _digest(text)}:
            return None
        blueprint = loads(text)
        blueprint.check(state)
    except (OSError, ValueError, RecursionError, PlainError, SymmetryError):
        return None
    return blueprint


def write(path: Path, blueprint: Blueprint) -> None:
    """Keep a blueprint, if there is room for it and the folder can be written."""
    text = dumps(blueprint)
    if len(text) > MOST_BYTES:
        return
    content = f"{json.dumps({'sha256': _digest(text)})}\n{text}"
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=UNFINISHED, dir=path.parent)
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.write(content)
            os.replace(name, path)
        finally:
            # It has gone where all went well.
            Path(name).unlink(missing_ok=True)
        _make_room(path)


def _make_room(kept: Path) -> None:
    """Remove the oldest files beyond the bounds, and what killed processes left unfinished."""
    now, files = time.time(), []
    for entry in os.scandir(kept.parent):
        with suppress(OSError):  # another process was quicker
            found = entry.stat(follow_symlinks=False)
            if entry.name.startswith(UNFINISHED) and now - found.st_mtime > SECONDS_UNFINISHED:
                os.unlink(entry)
            elif entry.name.endswith(SUFFIX):
                files.append((entry.name != kept.name, -found.st_mtime_ns, entry.path, found.st_size))
    together = 0
    # This one first, then from new to old.
    for count, (_, _, path, size) in enumerate(sorted(files), start=1):
        together += size
        if count > MOST_FILES or together > MOST_BYTES_TOGETHER:
            with suppress(OSError):
                os.unlink(path)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _code_of(model: nn.Module) -> Iterator[type | Callable[..., Any]]:
    """The classes and functions that a model computes with."""
    for module in model.modules():
        yield type(module)
        yield from module._forward_pre_hooks.values()
        yield from module._forward_hooks.values()
        if "forward" in vars(module):
            yield vars(module)["forward"]


def _package(code: type | Callable[..., Any]) -> str:
    return str(getattr(code, "__module__", None)).partition(".")[0]


@cache
def version_of(package: str) -> str | None:
    """The version of an installed package; None where it has none that stands for its code."""
    try:
        found = importlib.metadata.version(package)
        return None if Version(found).is_devrelease else found
    except (importlib.metadata.PackageNotFoundError, InvalidVersion):
        return None


@cache
def digest_of_sources() -> str:
    """A digest of the code that infers."""
    root, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()
