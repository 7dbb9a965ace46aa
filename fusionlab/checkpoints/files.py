"""The files of a checkpoint: reading them without ever running code."""

import json
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fusionlab.errors import InputError, first_line

CONFIG = "config.json"
SAFETENSORS = "model.safetensors"
SAFETENSORS_INDEX = "model.safetensors.index.json"
PICKLE = "pytorch_model.bin"
PICKLE_INDEX = "pytorch_model.bin.index.json"
ADAPTER_CONFIG = "adapter_config.json"
GENERATION_CONFIG = "generation_config.json"

# The first words of the small file that stands for a large one in a clone without its large files.
_POINTER = b"version https://git-lfs"


def read_json(path: Path) -> dict[str, Any]:
    """The mapping in a JSON file.

    Args:
        path: the file.

    Returns:
        Its content.

    Raises:
        InputError: the file is not JSON, not a mapping, or says two things of one key.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_without_contradictions)
    except RecursionError as error:
        raise InputError(f"{path} is nested too deeply to be read; expected JSON of ordinary depth") from error
    except (ValueError, OSError) as error:
        raise InputError(f"{path} is not a readable JSON file ({first_line(error)})") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds a {type(content).__name__}, but a mapping was expected")
    return content


def _without_contradictions(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping; a key twice is let pass where it says the same twice."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found and found[name] != value:
            raise ValueError(f"the key {name!r} stands there twice, with different values")
        found[name] = value
    return found


def is_adapter(location: Path) -> bool:
    """True if a folder holds an adapter of PEFT.

    Args:
        location: a file or folder.

    Raises:
        InputError: it holds the weights of a model too, so that it could be either.
    """
    if not (location / ADAPTER_CONFIG).is_file():
        return False
    model = next((n for n in (SAFETENSORS, SAFETENSORS_INDEX, PICKLE, PICKLE_INDEX) if (location / n).is_file()), None)
    if model is not None:
        raise InputError(
            f"{location} holds an adapter ({ADAPTER_CONFIG}) and a model ({model}); expected one of the two"
        )
    return True


def base_named_in(folder: Path) -> str | None:
    """The base model that the config of an adapter names; None in a folder without one.

    Args:
        folder: any file or folder.

    Raises:
        InputError: the config is damaged.
    """
    path = folder / ADAPTER_CONFIG
    return read_json(path).get("base_model_name_or_path") if path.is_file() else None


def read_config(folder: Path) -> dict[str, Any]:
    """The ``config.json`` of a checkpoint folder.

    Args:
        folder: the checkpoint folder.

    Returns:
        The configuration as a plain mapping.

    Raises:
        InputError: there is none, or it is damaged.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise InputError(
            f"{folder} has no {CONFIG}, so it is not a transformers or timm checkpoint folder; {_nearby(folder)}"
        )
    return read_json(path)


def _nearby(folder: Path) -> str:
    """The checkpoints inside a folder that is none, or else what a checkpoint is."""
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    found = [
        one
        for one in inside
        if one.suffix == ".ckpt" or any((one / name).is_file() for name in (CONFIG, ADAPTER_CONFIG))
    ]
    found = found or sorted(folder.glob("*/*.ckpt")) or sorted(folder.glob("*/checkpoints/*.ckpt"))
    if found:
        more = f" or {len(found) - 1} more" if len(found) > 1 else ""
        return f"did you mean {found[-1]}{more} in it?"
    return "expected a folder that save_pretrained wrote, an adapter's folder, a Lightning .ckpt file or a hub id"


def weight_files(folder: Path) -> list[Path]:
    """The weight files of a checkpoint folder, in order: safetensors where there are any, else pickled ones.

    Args:
        folder: the checkpoint folder.

    Returns:
        One file, or every shard that the index names.

    Raises:
        InputError: no weights, or a shard that the index names is missing.
    """
    for single, index in ((SAFETENSORS, SAFETENSORS_INDEX), (PICKLE, PICKLE_INDEX)):
        if (folder / single).is_file():
            return [folder / single]
        if (folder / index).is_file():
            weight_map = read_json(folder / index).get("weight_map")
            if not isinstance(weight_map, dict) or not weight_map:
                raise InputError(f"{folder / index} has no weight_map that says which shard holds which parameter")
            shards = [folder / name for name in sorted({str(name) for name in weight_map.values()})]
            for shard in shards:
                # A shard is a plain file name: an index must not lead out of its folder.
                if shard.parent != folder or not shard.is_file():
                    raise InputError(f"{folder / index} names the shard {shard.name}, which is not in {folder}")
            return shards
    if (gguf := next(iter(sorted(folder.glob("*.gguf"))), None)) is not None:
        raise gguf_refused(gguf)
    raise InputError(f"{folder} has no weights: {SAFETENSORS} (or its shards) or {PICKLE} was expected")


def gguf_refused(path: Path) -> InputError:
    """The sentence that refuses a file in GGUF, with the way on."""
    return InputError(
        f"{path} is a quantised model in GGUF, which fusionlab does not read; dequantise it first: load it by "
        f"from_pretrained(folder, gguf_file=FILE) of transformers and save_pretrained"
    )


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of one safetensors file.

    Args:
        path: the file.

    Returns:
        Tensors by name.

    Raises:
        InputError: the file is truncated or corrupt.
    """
    try:
        return load_file(path)
    except (SafetensorError, OSError, RuntimeError, OverflowError) as error:
        raise damaged(path, error) from error


def read_pickle(path: Path) -> dict[str, Any]:
    """The content of a file that torch saved, read without running any code in it.

    Args:
        path: a ``.bin``, ``.pt`` or ``.ckpt`` file.

    Returns:
        The mapping it holds.

    Raises:
        InputError: it holds anything but plain data and tensors, is damaged, or is not a mapping.
    """
    refuse_damaged_archive(path)
    try:
        with warnings.catch_warnings():
            # Of pickles that other programs wrote; whether one can be read is told below.
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(
            f"{path} is refused: it holds something other than tensors and plain data, or is damaged, and reading "
            f"it further could run code"
        ) from error
    except Exception as error:
        # Half-read pickles fail in any way: a missing key, a wrong type, a stack that is empty, too deep a nesting.
        raise damaged(path, error) from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds a {type(content).__name__}, but a mapping of parameters was expected")
    return content


def refuse_damaged_archive(path: Path) -> None:
    """Hold the members of a file that torch saved against their checksums, which torch itself leaves unread.

    Files of the format before torch 1.6 are no archives and have no checksums; nor have those that were saved with
    them turned off (zeros stand in their place).

    Args:
        path: the file.

    Raises:
        InputError: a member was changed, stands there twice, or is packed smaller than it is, as torch packs none.
    """
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len({member.filename for member in members}) != len(members):
                raise zipfile.BadZipFile("a member stands in it twice")
            if any(member.compress_size != member.file_size for member in members):
                raise zipfile.BadZipFile("a member is compressed, as torch saves none")
            for member in members:
                if not member.CRC:
                    continue
                with archive.open(member) as opened:
                    while opened.read(2**22):
                        pass
    except Exception as error:  # zipfile raises a dozen kinds on damage
        raise damaged(path, error) from error


def damaged(path: Path, error: BaseException) -> InputError:
    """The sentence for a file that cannot be read to its end."""
    try:
        with path.open("rb") as opened:
            if opened.read(len(_POINTER)) == _POINTER:
                return InputError(f"{path} is a pointer of Git LFS in place of the file; fetch that with git lfs pull")
    except OSError as refusal:
        return InputError(f"{path} cannot be read ({refusal.strerror}); expected a file with permission to read it")
    return InputError(f"{path} is truncated or corrupt and cannot be read ({first_line(error)})")
