"""Reading a checkpoint of any supported kind, and writing a model back as the same kind."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from fusionlab.atomic import atomic_file, atomic_folder, refuse_existing
from fusionlab.checkpoints import huggingface, lightning_file, own_module, timm_folder
from fusionlab.checkpoints.adapted import read_adapted
from fusionlab.checkpoints.adapters import base_of, read_adapter
from fusionlab.checkpoints.beside import write_beside
from fusionlab.checkpoints.files import (
    CONFIG,
    gguf_refused,
    is_adapter,
    read_config,
)
from fusionlab.checkpoints.hub import locate
from fusionlab.checkpoints.side_files import copy_side_files
from fusionlab.dtypes import Types, find_dtype, in_types, types_of
from fusionlab.errors import InputError
from fusionlab.finite import refuse_not_finite
from fusionlab.paths import expanded
from fusionlab.symmetry.wrappers import unwrapped

Format = Literal["transformers", "timm", "lightning", "torch"]


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A model together with where it came from and how it is stored."""

    model: nn.Module = dataclasses.field(repr=False)
    """The model, in eval mode, each parameter in the dtype it is stored in."""
    source: str
    """The path or hub id it was read from."""
    format: Format
    """The format that it is stored in: a transformers folder, a timm folder, a Lightning file, or for a module of one's
    own a state dict of torch."""
    location: Path = dataclasses.field(repr=False)
    """The local file or folder that `source` stands for."""
    dtypes: Types = dataclasses.field(repr=False)
    """The dtype of every parameter and buffer."""
    base: str | None = None
    """The path or hub id of the base model, of an adapter; where it is stored, the model is."""
    adapter: Path | None = None
    """The folder of an adapter, whose tokenizer and other side files come before those of its base model."""
    outside: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    """Names of floating-point tensors in a Lightning file that are not the model's; a file that is written like it has
    them as they are."""

    def is_file(self, output: Path) -> bool:
        """A checkpoint of this format is written as one file under this name, not as a folder."""
        return self.format == "lightning" or (self.format == "torch" and output.suffix == own_module.SUFFIX)

    def entry(self, name: str) -> str:
        """The name that a checkpoint of this format has among others in a folder.

        Args:
            name: of the model; the end of its path.
        """
        if self.format == "lightning":
            return f"{name}.ckpt"
        is_file = self.format == "torch" and self.location.is_file()
        return str(Path(name).with_suffix(own_module.SUFFIX)) if is_file else name

    def write(
        self,
        model: nn.Module,
        output: str | Path,
        overwrite: bool = False,
        types: Types | torch.dtype | None = None,
        texts: Mapping[str, str | bytes | None] | None = None,
        shard_bytes: int | None = None,
    ) -> None:
        """Write a model of the same class as an ordinary checkpoint of the same format.

        Args:
            model: the model to write, in any floating dtype; it is not changed.
            output: the folder to write; of a Lightning file a ``.ckpt``, of a state dict a ``.safetensors`` too.
            overwrite: whether an output that exists may be replaced.
            types: to write in, by parameter or one for all; those that this checkpoint is stored in if None.
            texts: files to write beside it, by name, such as a model card; None for one that is not copied from this
                checkpoint. A Lightning file has no place for any.
            shard_bytes: the most in one weight file of a transformers folder; as this checkpoint is sharded if None.

        Raises:
            InputError: `output` exists and may not be replaced, or is not named as a Lightning file is; or the model
                holds a number that the type cannot hold; or shards are asked for in a format that has none.
            TypeError: `model` is of another class.
        """
        output = expanded(output)
        if type(model) is not type(self.model):
            raise TypeError(f"{self.source} holds a {type(self.model).__name__}, not a {type(model).__name__}")
        if self.format == "lightning" and output.suffix != ".ckpt":
            raise InputError(f"{output}: {self.source} is a Lightning file; expected an output that ends in .ckpt")
        if self.format == "torch" and output.suffix in own_module.PICKLES:
            raise InputError(f"{output}: expected a folder, or a name that ends in {own_module.SUFFIX}")
        if shard_bytes is not None and self.format != "transformers":
            raise InputError(f"{self.source} is a {self.format} checkpoint; expected a transformers folder to shard")
        refuse_existing(output, overwrite)
        _write(
            in_types(model, self.dtypes if types is None else types),
            output,
            self.format,
            self.location,
            overwrite,
            texts,
            shard_bytes,
            self.adapter,
        )


def read(path_or_hub_id: str | Path, module: nn.Module | None = None, base: str | Path | None = None) -> Checkpoint:
    """Read a checkpoint of any supported kind; no code that comes with it is ever run.

    Args:
        path_or_hub_id: a transformers folder, a timm folder, a PEFT folder with a LoRA adapter, a Lightning ``.ckpt``
            file or a hub id.
        module: one of the reader's own, of which `path_or_hub_id` is a state dict then: a ``.safetensors`` or ``.pt``
            file, or a folder that holds one. It is not modified.
        base: the model that an adapter changes, where it is not the one that it names; others have none.

    Returns:
        The model and how it is stored; of an adapter the changed base model, stored as that is.

    Raises:
        InputError: one sentence that names the file, the parameter and what was expected: nothing there, damaged or
            unsafe files, an unknown class, missing or extra parameters, wrong shapes, NaN or infinite values.
    """
    if module is not None:
        location = expanded(path_or_hub_id)
        if not location.exists():
            raise InputError(f"{path_or_hub_id}: there is no such file or folder; expected a state dict")
        model = own_module.read_into(module, location)
        refuse_not_finite(path_or_hub_id, model)
        return Checkpoint(model, str(path_or_hub_id), "torch", location, types_of(model))
    location = locate(path_or_hub_id)
    if is_adapter(location):
        return _adapted(str(path_or_hub_id), location, base)
    kind = stored_as(location)
    outside: tuple[str, ...] = ()
    if kind == "lightning":
        model, outside = lightning_file.read_file(location)
    elif kind == "timm":
        model = timm_folder.read_folder(location)
    else:
        model = huggingface.read_folder(location)
    refuse_not_finite(path_or_hub_id, model)
    return Checkpoint(model, str(path_or_hub_id), kind, location, types_of(model), outside=outside)


def _adapted(source: str, location: Path, base: str | Path | None) -> Checkpoint:
    adapter = read_adapter(location)
    named, place = base_of(adapter, base)
    model = read_adapted(adapter, place)
    refuse_not_finite(source, model)
    return Checkpoint(model, source, "transformers", place, types_of(model), named, location)


def load(path: str | Path) -> nn.Module:
    """The model of a checkpoint of any supported kind.

    Args:
        path: a transformers folder, a timm folder, a Lightning ``.ckpt`` file or a hub id.

    Returns:
        The model, in eval mode, each parameter in the dtype it is stored in. Of several dtypes not every class runs by
        itself: ``model.float()`` brings them to one.

    Raises:
        InputError: as `read`.
    """
    return read(path).model


def save(
    model: nn.Module,
    path: str | Path,
    like: str | Path | None = None,
    overwrite: bool = False,
    dtype: str | torch.dtype | None = None,
) -> None:
    """Write a model as an ordinary checkpoint of its library.

    Args:
        model: a transformers model (written by ``save_pretrained``) or a timm model (written so that
            ``timm.create_model("local-dir:PATH")`` reads it), compiled and parallel ones too.
        path: the folder to write.
        like: a checkpoint whose format (for a Lightning file: a file is written) and side files are kept; of an
            adapter those of its base model, its own side files first.
        overwrite: whether an output that exists may be replaced.
        dtype: to write all its floating-point numbers in, such as ``bfloat16``; the model's own if None.

    Raises:
        InputError: `path` exists and may not be replaced; the model is none, or of neither library; `like` is of
            another, or an adapter whose base model is not here; there is no such dtype, or it cannot hold the model's
            numbers.
    """
    path, chosen = expanded(path), find_dtype(dtype)
    if not isinstance(model, nn.Module):
        given = f"the path {model}" if isinstance(model, str | Path) else f"of type {type(model).__name__}"
        raise InputError(f"{path}: the model to save is {given}; expected a module, as fusionlab.load reads one")
    refuse_existing(path, overwrite)
    model = unwrapped(model)
    own: Format
    if huggingface.is_transformers(model):
        own = "transformers"
    elif timm_folder.is_timm(model):
        own = "timm"
    else:
        raise InputError(
            f"{path}: {type(model).__name__} is neither a transformers nor a timm model, so it has no format"
        )
    location, adapter = None if like is None else locate(like), None
    if location is not None and is_adapter(location):
        # Written as a merge of it is: like its base model, with its own tokenizer.
        location, adapter = base_of(read_adapter(location))[1], location
    kind = own if location is None else stored_as(location)
    if kind not in (own, "lightning"):
        raise InputError(f"{like} is a {kind} checkpoint, but {type(model).__name__} is a {own} model")
    _write(model if chosen is None else in_types(model, chosen), path, kind, location, overwrite, adapter=adapter)


def stored_as(location: Path) -> Format:
    """The format of a local checkpoint, judged by its name and config alone.

    Args:
        location: a file or folder.

    Returns:
        The format.

    Raises:
        InputError: a file that is not a Lightning checkpoint, or a folder without a config.
    """
    if location.is_file():
        if location.suffix == ".gguf":
            raise gguf_refused(location)
        if location.suffix != ".ckpt":
            raise InputError(
                f"{location} is a file; a checkpoint folder or a Lightning .ckpt file was expected (a state dict does "
                f"not say of which model it is: name a folder with that model's {CONFIG} by --architecture, or the "
                f"module by --example FILE.py:FUNCTION)"
            )
        return "lightning"
    return "timm" if timm_folder.ARCHITECTURE in read_config(location) else "transformers"


def _write(
    model: nn.Module,
    output: Path,
    kind: Format,
    like: Path | None,
    overwrite: bool,
    texts: Mapping[str, str | bytes | None] | None = None,
    shard_bytes: int | None = None,
    adapter: Path | None = None,
) -> None:
    if kind == "lightning":
        assert like is not None
        with atomic_file(output, overwrite) as temporary:
            lightning_file.write_file(model, temporary, like)
        return
    if kind == "torch" and output.suffix == own_module.SUFFIX:
        with atomic_file(output, overwrite) as temporary:
            own_module.write_file(model, temporary)
        return
    with atomic_folder(output, overwrite) as temporary:
        if kind == "torch":
            own_module.write_folder(model, temporary)
        elif huggingface.is_transformers(model):
            huggingface.write_folder(model, temporary, like, shard_bytes)
        else:
            timm_folder.write_folder(model, temporary, like)
        given = texts or {}
        if like is not None and like.is_dir():
            copy_side_files(like, temporary, given, adapter)
        write_beside(temporary, given)
