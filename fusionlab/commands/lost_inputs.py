"""Outputs that would take the place of something that the same command reads are refused."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from fusionlab.checkpoints.files import base_named_in
from fusionlab.errors import InputError
from fusionlab.paths import NAMES_FILES, expanded

# Options that name files or folders that are read, and those that name what is written.
# A config may lie in the output that it repeats.
_READ = (
    "ckpts", "ckpt", "checkpoint", "sources", "source", "anchor", "base", "like", "statistics", "example",
    "architecture",
)  # fmt: skip
_DATA = ("data", "out_of_domain", "probes")
_WRITTEN = ("output", "picture")


def refuse_lost_inputs(parsed: Namespace, beside: Path | None = None) -> None:
    """Refuse an output that may be overwritten and is an input, or a folder that holds one.

    Args:
        parsed: the options of a command, before data modules are built.
        beside: what else is written, beside the output that the options name.

    Raises:
        InputError: names both.
    """
    if not parsed.get("overwrite"):
        return
    for option in _WRITTEN:
        if isinstance(parsed.get(option), str) and parsed[option]:
            refuse_lost(expanded(parsed[option]), _inputs(parsed))
    if beside is not None:
        refuse_lost(beside, _inputs(parsed))


def refuse_lost(output: Path, inputs: Iterable[str]) -> None:
    """Refuse an output that is one of some inputs, a folder that holds one, or a file of one.

    Args:
        output: the file or folder that would be replaced.
        inputs: paths; what does not exist, such as a hub id, is left alone.

    Raises:
        InputError: names both.
    """
    place, working = Path(os.path.realpath(output)), Path.cwd().resolve()
    if place in (working, *working.parents):
        return  # refused for that
    for given in inputs:
        found = Path(os.path.realpath(expanded(given)))
        if not found.exists():
            continue
        is_part = place.is_file() and place.parent == found
        if is_part or place in (found, *found.parents):
            what = "lies in" if is_part else "is" if place == found else "holds"
            raise InputError(
                f"{output} {what} the input {given}, which would be lost when it is replaced; choose another output"
            )


def _inputs(parsed: Namespace) -> Iterator[str]:
    """The paths that the options name as inputs."""
    for option in _READ:
        for value in _texts(parsed.get(option)):
            yield value.partition(".py:")[0] + ".py" if ".py:" in value else value
            yield from _base_of(value)
    for option in _DATA:
        yield from _files(parsed.get(option))


def _base_of(path: str) -> Iterator[str]:
    """The base model that an adapter names: it would change another one."""
    with suppress(InputError):
        yield from _texts(base_named_in(expanded(path)))


def _texts(value: Any) -> Iterator[str]:
    """The texts in a value, or in the values of a list."""
    for one in value if isinstance(value, list | tuple) else [value]:
        if isinstance(one, str) and one:
            yield one


def _files(value: Any, name: str = "") -> Iterator[str]:
    """The paths in the settings of data modules."""
    if isinstance(value, Namespace | Mapping):
        for key, inner in (value.as_dict() if isinstance(value, Namespace) else value).items():
            yield from _files(inner, str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _files(inner, name)
    elif isinstance(value, str) and value and NAMES_FILES.search(name) and name != "class_path":
        yield value
