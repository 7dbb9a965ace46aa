"""Fingerprints of settings: by them a grid tells whether a number that it has made is still true."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningDataModule

from fusionlab.paths import NAMES_FILES, expanded


def signature(module: LightningDataModule) -> str:
    """A data module's class and settings, for telling whether data changed; of files here also when they were written.

    Settings are what the module saved of its arguments (`save_hyperparameters`); of one that saves none, its public
    attributes, so that it has to be asked before it finds out more.
    """
    settings = {name: _plain(value) for name, value in (module.hparams or vars(module)).items() if name[0] != "_"}
    known = {name: value for name, value in settings.items() if value is not _UNKNOWN}
    here = {name: when for name, value in known.items() if NAMES_FILES.search(name) and (when := _written(value))}
    known |= {"written": here} if here else {}
    return f"{type(module).__name__}({json.dumps(known, sort_keys=True)})"


def digest(value: Any, length: int = 16) -> str:
    """A digest of plain values, the same whenever they are."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


_UNKNOWN = object()


def _written(value: Any) -> int | None:
    """The time, in nanoseconds, at which a file, or anything in a folder, was last written, taken away or put there."""
    if not isinstance(value, str) or not value:
        return None
    path = expanded(value)
    # Of a folder, when a file came or went.
    times = [place.stat().st_mtime_ns for place in (path, *path.rglob("*")) if place.exists()]
    return max(times, default=None)


def _plain(value: Any) -> Any:
    """A setting as JSON has it; `_UNKNOWN` for anything else, such as a model or a table."""
    if isinstance(value, LightningDataModule):
        return signature(value)
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): known for name, item in value.items() if (known := _plain(item)) is not _UNKNOWN}
    if isinstance(value, list | tuple):
        return [known for item in value if (known := _plain(item)) is not _UNKNOWN]
    if isinstance(value, Path):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else _UNKNOWN


def choices(options: Any) -> Any:
    """The options that differ from their defaults, so that an option that is new to fusionlab changes nothing."""
    if not is_dataclass(options):
        return options
    chosen = {}
    for one in fields(options):
        value = getattr(options, one.name)
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        if value != default:
            chosen[one.name] = choices(value)
    return chosen


def stamp(checkpoint: str | Path | None) -> Any:
    """The place of a given checkpoint, and when its newest file was written; they tell it from another one."""
    if checkpoint is None:
        return None
    path = Path(checkpoint)
    files = [file for file in (path, *path.glob("*")) if file.is_file()]
    return [str(path), max((file.stat().st_mtime_ns for file in files), default=None)]
