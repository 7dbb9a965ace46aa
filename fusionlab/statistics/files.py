"""Statistics as safetensors files: what a data owner hands over instead of data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fusionlab.atomic import atomic_file
from fusionlab.errors import InputError
from fusionlab.paths import expanded
from fusionlab.statistics.checks import refuse_impossible
from fusionlab.statistics.statistics import Activations, Fisher, Grams, LinearMap, Statistics
from fusionlab.types import State

FORMAT = "fusionlab statistics 2"
TYPES: dict[str, type[Statistics]] = {cls.kind: cls for cls in (Grams, Fisher, Activations)}
# The fields of each kind that are tensors by name; all others are told as JSON.
TENSORS = {"gram": ("matrices",), "fisher": ("diagonal",), "activations": ("inputs", "outputs", "gradients")}


def save(
    statistics: Mapping[str, Statistics] | Iterable[Statistics], path: str | Path, overwrite: bool = False
) -> None:
    """Write statistics of one model, one of each kind at most, into one file.

    Args:
        statistics: all of one model in one basis.
        path: the file to write.
        overwrite: whether a file that is there may be replaced.

    Raises:
        InputError: the file exists, or the statistics are of several models or twice of one kind.
    """
    found = list(statistics.values() if isinstance(statistics, Mapping) else statistics)
    if len({one.basis for one in found}) != 1 or len({one.kind for one in found}) != len(found):
        raise InputError("one file holds statistics of one model, each kind once; expected such")
    text, tensors = packed(found)
    with atomic_file(expanded(path), overwrite) as temporary:
        metadata = {"format": FORMAT, "statistics": text, "checksum": checksum(text, tensors)}
        save_file(tensors, temporary, metadata)


def packed(found: Iterable[Statistics]) -> tuple[str, dict[str, Tensor]]:
    """Statistics of one model, one of each kind at most, as the JSON of all that is no tensor, and tensors by name."""
    tensors: dict[str, Tensor] = {}
    described: dict[str, dict[str, Any]] = {}
    for one in found:
        # Names that share a tensor keep one copy: the first name, which the others point to.
        first: dict[int, str] = {}
        shared: dict[str, str] = {}
        for part in TENSORS[one.kind]:
            for name, tensor in getattr(one, part).items():
                key = f"{one.kind}/{part}/{name}"
                if (known := first.setdefault(id(tensor), key)) == key:
                    tensors[key] = tensor.detach().cpu().contiguous()
                else:
                    shared[key] = known
        described[one.kind] = {"fields": _told(one), "shared": shared}
    return json.dumps(described), tensors


def unpacked(text: str, tensors: Mapping[str, Tensor]) -> dict[str, Statistics]:
    """The statistics that `packed` was given, by kind."""
    return {kind: _rebuilt(kind, told, tensors) for kind, told in json.loads(text).items()}


def load(path: str | Path, state: State | None = None) -> dict[str, Statistics]:
    """Read statistics.

    Args:
        path: a file that `save` wrote.
        state: of the model that they must describe; any if None.

    Returns:
        By kind.

    Raises:
        InputError: a file that is unreadable, of another kind or version, or of another model.
    """
    if not expanded(path).is_file():
        raise InputError(
            f"{path} is not a readable file of statistics (no such file); expected one of `fusionlab gather`"
        )
    try:
        with safe_open(expanded(path), framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise InputError(
                    f"{path} is {metadata.get('format') or 'no file of statistics'!r}; expected {FORMAT!r}, "
                    f"as `fusionlab gather` writes"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        if metadata.get("checksum") != checksum(metadata["statistics"], tensors):
            raise InputError("its checksum does not fit what it holds; expected it as `fusionlab gather` wrote it")
        described = json.loads(metadata["statistics"])
        found = {kind: _rebuilt(kind, told, tensors) for kind, told in described.items()}
        _refuse_strays(tensors, described)
        for statistics in found.values():
            refuse_impossible(statistics)
    except InputError as error:
        # An error of the file itself names it already.
        raise error if str(error).startswith(str(path)) else InputError(f"{path}: {error}") from error
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"{path} is not a readable file of statistics ({error}); expected one that `fusionlab gather` wrote"
        ) from error
    except (KeyError, TypeError, AttributeError, ValueError, RuntimeError, OverflowError, RecursionError) as error:
        raise InputError(
            f"{path} is a damaged file of statistics; expected one that `fusionlab gather` wrote"
        ) from error
    if state is not None:
        for statistics in found.values():
            try:
                statistics.check(state)
                statistics.refuse_strangers(state)
            except InputError as error:
                raise InputError(f"{path}: {error}") from error
    return found


def checksum(described: str, tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 of everything that a file says: the numbers alone cannot show that one of them was changed.

    Args:
        described: the JSON of all that is no tensor.
        tensors: by name.
    """
    found = hashlib.sha256(described.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        found.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _refuse_strays(tensors: Mapping[str, Tensor], described: Mapping[str, Any]) -> None:
    """Refuse tensors that belong to no statistics, and a file without any."""
    if not described:
        raise InputError("it describes no statistics; expected some that `fusionlab gather` wrote")
    starts = tuple(f"{kind}/{part}/" for kind in described for part in TENSORS[kind])
    for name in tensors:
        if not name.startswith(starts):
            raise InputError(f"it holds {name[:100]!r}, which belongs to no statistics; expected none")


def tensors_of(statistics: Statistics) -> list[Tensor]:
    """The tensors that statistics hold, each once though several maps share it."""
    parts = [getattr(statistics, part).values() for part in TENSORS[statistics.kind]]
    return list({id(tensor): tensor for tensors in parts for tensor in tensors}.values())


def _told(statistics: Statistics) -> dict[str, Any]:
    """The fields that are no tensors, fit for JSON."""
    plain = [field.name for field in fields(statistics) if field.name not in TENSORS[statistics.kind]]
    told = {name: getattr(statistics, name) for name in plain}
    if "maps" in told:
        told["maps"] = {name: asdict(linear) for name, linear in told["maps"].items()}
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in told.items()}


def _rebuilt(kind: str, told: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Statistics:
    values = dict(told["fields"])
    if "maps" in values:
        values["maps"] = {name: LinearMap(**linear) for name, linear in values["maps"].items()}
    every = {**tensors, **{name: tensors[first] for name, first in told["shared"].items()}}
    for part in TENSORS[kind]:
        start = f"{kind}/{part}/"
        values[part] = {name.removeprefix(start): every[name] for name in sorted(every) if name.startswith(start)}
    return TYPES[kind](**values)
