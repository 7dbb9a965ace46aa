"""A reader of weights that takes nothing for granted: what a merge may rightly be made from.

Written from the description of the formats and with nothing of the project, so that it can be held against it.
"""

import json
import math
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1", "BOOL": "?"}
Tensors = dict[str, np.ndarray]


class VisibleDamageError(ValueError):
    """What can be seen to be damaged from the bytes alone."""


def safetensors(path: Path) -> Tensors:
    """The tensors of a well-formed safetensors file.

    Raises:
        VisibleDamageError: a length that leads beyond the file, a header that is no JSON or names a thing twice, a type
            that there is not, a shape that does not fill its bytes, or bytes that belong to no tensor or to two.
    """
    content = path.read_bytes()
    if len(content) < 8:
        raise VisibleDamageError("shorter than its own length field")
    (size,) = struct.unpack("<Q", content[:8])
    if size > len(content) - 8:
        raise VisibleDamageError("the header is longer than the file")
    header = strict_json(content[8 : 8 + size])
    buffer = content[8 + size :]
    if not isinstance(header, dict):
        raise VisibleDamageError("the header is no mapping")
    found, places = {}, []
    for name, entry in header.items():
        if name == "__metadata__":
            if entry is not None and not (
                isinstance(entry, dict) and all(isinstance(value, str) for value in entry.values())
            ):
                raise VisibleDamageError("metadata that is no text")
            continue
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise VisibleDamageError(f"{name} is not described")
        shape, offsets = entry["shape"], entry["data_offsets"]
        if entry["dtype"] not in _TYPES or not _naturals(shape) or not _naturals(offsets) or len(offsets) != 2:
            raise VisibleDamageError(f"{name} has an odd description")
        kind = np.dtype(_TYPES[entry["dtype"]])
        if offsets[1] - offsets[0] != kind.itemsize * math.prod(shape) or offsets[1] > len(buffer):
            raise VisibleDamageError(f"{name} does not fill its bytes")
        places.append(offsets)
        found[name] = np.frombuffer(buffer[offsets[0] : offsets[1]], kind).reshape(shape)
    end = 0
    for first, last in sorted(places):
        if first != end:
            raise VisibleDamageError("bytes of no tensor, or of two")
        end = last
    if end != len(buffer):
        raise VisibleDamageError("bytes behind the last tensor")
    return found


def folder(path: Path) -> Tensors:
    """The tensors of a folder with one safetensors file, or with shards that an index names.

    Raises:
        VisibleDamageError: as `safetensors`; or an index that names no shards, or some that are elsewhere or hold one
            tensor twice. In which of its shards a tensor stands an index may say wrongly: it is there once.
    """
    if (path / "model.safetensors").is_file():
        return safetensors(path / "model.safetensors")
    index = strict_json((path / "model.safetensors.index.json").read_bytes())
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise VisibleDamageError("an index without a weight map")
    found: Tensors = {}
    for name in set(map(str, weight_map.values())):
        if Path(name).name != name or not (path / name).is_file():
            raise VisibleDamageError(f"the shard {name!r} is not there")
        shard = safetensors(path / name)
        if twice := found.keys() & shard.keys():
            raise VisibleDamageError(f"{min(twice)} is in two shards")
        found |= shard
    return found


def archive(path: Path) -> dict[str, bytes]:
    """The members of a file that torch saved, by name without the folder that all are in.

    Raises:
        VisibleDamageError: no archive, one whose checksums are wrong, or one that holds a name twice.
    """
    try:
        with zipfile.ZipFile(path) as opened:
            names = opened.namelist()
            if len(set(names)) != len(names):
                raise VisibleDamageError("a member twice")
            return {name.split("/", 1)[-1]: opened.read(name) for name in names}
    except VisibleDamageError:
        raise
    except Exception as error:  # zipfile raises many things
        raise VisibleDamageError(f"no sound archive: {error}") from error


def complaint_about_weights(path: Path, sound: Path) -> str:
    """Why no merge may be made of a checkpoint that was damaged; empty where one may.

    One may if what was damaged cannot be seen: a reader that checks everything finds every tensor of the undamaged
    checkpoint, with its type and shape, in finite numbers (a flipped bit of a mantissa is a number like any other).
    Pickled weights carry checksums, so there every byte must be as it was.

    Args:
        path: the damaged checkpoint.
        sound: the undamaged one, of the same kind.
    """
    try:
        if sound.is_file() or any(sound.glob("*.bin")):
            _refuse_other_bytes(path, sound)
        else:
            _refuse_other_tensors(folder(path), folder(sound))
    except (VisibleDamageError, OSError) as error:
        return f"a strict reader refuses it: {error}"
    return ""


def _refuse_other_bytes(path: Path, sound: Path) -> None:
    for file in [sound] if sound.is_file() else sorted(sound.glob("*.bin")):
        damaged = path if sound.is_file() else path / file.name
        if archive(damaged) != archive(file) and not _same_tensors(damaged, file):
            raise VisibleDamageError(f"the content of {file.name} has changed")
    if not sound.is_file() and not _same_shards(path, sound):
        raise VisibleDamageError("the index names other shards")


def _same_tensors(path: Path, sound: Path) -> bool:
    """Whether a file was written anew with the same tensors of the model: other entries are not its weights."""
    try:
        found, wanted = (torch.load(file, weights_only=True) for file in (path, sound))
        found, wanted = (
            {name: tensor for name, tensor in content["state_dict"].items() if name.startswith("model.")}
            if "state_dict" in content
            else content
            for content in (found, wanted)
        )
        return found.keys() == wanted.keys() and all(torch.equal(found[name], wanted[name]) for name in wanted)
    except Exception:
        # Whatever it is, it cannot be read as the other one can.
        return False


def _refuse_other_tensors(found: Tensors, wanted: Tensors) -> None:
    if found.keys() != wanted.keys():
        raise VisibleDamageError(f"other names: {sorted(found.keys() ^ wanted.keys())[:3]}")
    for name, tensor in wanted.items():
        if found[name].dtype != tensor.dtype or found[name].shape != tensor.shape:
            raise VisibleDamageError(f"another type or shape of {name}")
        if not np.isfinite(found[name]).all():
            raise VisibleDamageError(f"{name} holds numbers that are not finite")


def _same_shards(path: Path, sound: Path) -> bool:
    name = "pytorch_model.bin.index.json"
    if not (sound / name).is_file():
        return True
    before, after = (strict_json((folder / name).read_bytes())["weight_map"] for folder in (sound, path))
    return isinstance(after, dict) and set(after.values()) == set(before.values())


def strict_json(content: bytes) -> Any:
    """JSON in UTF-8 that names nothing twice.

    Raises:
        VisibleDamageError: anything else.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) != len(pairs):
            raise VisibleDamageError("a name twice")
        return dict(pairs)

    try:
        return json.loads(content.decode("utf-8"), object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise VisibleDamageError(f"no JSON: {error}") from error


def _naturals(value: Any) -> bool:
    return isinstance(value, list) and all(type(number) is int and number >= 0 for number in value)
