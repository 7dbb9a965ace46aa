"""End models as they lie on the disk: checkpoint folders, and LoRA adapters on checkpoint folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fusionlab.checkpoints.adapters import PICKLE, SAFETENSORS, Adapter, base_of, placed, read_adapter
from fusionlab.checkpoints.changes import Change, Stack
from fusionlab.checkpoints.files import ADAPTER_CONFIG, is_adapter
from fusionlab.checkpoints.hub import locate
from fusionlab.checkpoints.names import short_names
from fusionlab.streaming.adapted import ChangedStack, ChangedTensor, ReplacedTensor, ShiftedTensor
from fusionlab.streaming.stored import StoredModel, StoredTensor, open_folder

TYPE_CHECKING = False  # what knows a class's parameters imports transformers
if TYPE_CHECKING:
    from fusionlab.checkpoints.weightless import Weightless


def open_models(
    paths: Sequence[str], names: Sequence[str] | None = None, base: str | None = None
) -> dict[str, StoredModel | None]:
    """End models as they lie on the disk, by the names that they are called by; see `open_model`.

    Args:
        paths: of folders, or hub ids.
        names: of the models, one for each; else what tells their paths apart.
        base: of the adapters among them; the one that each names if None.

    Raises:
        InputError: as `open_model`, or a path named twice.
    """
    called = short_names(paths, names)
    return {name: open_model(path, base) for name, path in zip(called, paths, strict=True)}


def open_model(source: str, base: str | None = None) -> StoredModel | None:
    """An end model as it lies on the disk.

    Args:
        source: path or hub id of a checkpoint folder, or of an adapter.
        base: of an adapter; the one that it names if None.

    Returns:
        The model; None where it is stored in another way, or an adapter changes more than it can be read with: a tied
        parameter, one that is stored otherwise than its class has it, or a head that its base model lacks.

    Raises:
        InputError: a folder that is no checkpoint, or whose files are missing or damaged; an adapter that cannot be
            read, or whose base model is not here.
    """
    location = locate(source)
    if not location.is_dir() or not is_adapter(location):
        return open_folder(source, location)
    adapter = read_adapter(location)
    named, place = base_of(adapter, base)
    stored = open_folder(named, place)
    if stored is None or stored.format != "transformers":
        return None
    from fusionlab.checkpoints.adapted import changes_own_class  # noqa: PLC0415 - imports transformers
    from fusionlab.streaming.classes import class_of  # noqa: PLC0415

    if adapter.is_tied or not changes_own_class(adapter, place):
        return None
    made = class_of(stored)
    tensors = None if made is None else _tensors(adapter, stored, made)
    if tensors is None:
        return None
    weights = next(location / name for name in (SAFETENSORS, PICKLE) if (location / name).is_file())
    beside = (location / ADAPTER_CONFIG, weights)
    return replace(stored, source=source, tensors=tensors, base=named, beside=beside, adapter=location)


def _tensors(adapter: Adapter, base: StoredModel, made: Weightless) -> dict[str, StoredTensor] | None:
    """The tensors of a base model with an adapter's changes; None where one does not fit, or is no tensor of a file."""
    changes, stacks = placed(adapter, made.model, base.source)
    replaced = _replaced(base.tensors, adapter.saved, made)
    if replaced is None or (tensors := _with_stacks(replaced, stacks, made)) is None:
        return None
    for module, change in changes.items():
        if (place := _place(f"{module}.weight", made)) is None:
            return None
        if (changed := _changed(tensors[place], change, _is_turned(module, made))) is None:
            return None
        tensors[place] = changed
        if change.bias is not None:
            place = _place(f"{module}.bias", made)
            if place is None or (old := tensors[place]).shape != tuple(change.bias.shape):
                return None
            added = change.scale * change.bias.double()
            tensors[place] = ShiftedTensor(old.dtype, old.shape, old.file, old.offset, old, added)
    return tensors


def changed_layers(changes: Mapping[str, Change], base: StoredModel, made: Weightless) -> dict[str, ChangedTensor]:
    """The weights of a base model that changes of layers are of, by layer; those that one tensor of its files is.

    Args:
        changes: by layer.
        base: as it lies on the disk.
        made: its class.
    """
    found = {}
    for module, change in changes.items():
        place = _place(f"{module}.weight", made)
        if place is not None and (changed := _changed(base.tensors[place], change, _is_turned(module, made))):
            found[module] = changed
    return found


def _replaced(
    before: Mapping[str, StoredTensor], saved: Mapping[str, Tensor], made: Weightless
) -> dict[str, StoredTensor] | None:
    """Tensors of which some are saved whole; None where one of these has no place, or does not fit."""
    tensors = dict(before)
    for name, tensor in saved.items():
        if (place := _place(name, made)) is None:
            return None
        old = tensors[place]
        if tensor.shape != torch.Size(old.shape) or tensor.is_floating_point() != old.dtype.is_floating_point:
            return None
        tensors[place] = ReplacedTensor(old.dtype, old.shape, old.file, old.offset, tensor)
    return tensors


def _with_stacks(
    before: Mapping[str, StoredTensor], stacks: Mapping[str, Stack], made: Weightless
) -> dict[str, StoredTensor] | None:
    """Tensors with the changes of parameters by name; None where it is not known which tensors these are."""
    tensors = dict(before)
    for name, stack in stacks.items():
        if (found := _of_experts(tensors, stack, name, made)) is None:
            return None
        tensors |= found
    return tensors


def _place(name: str, made: Weightless) -> str | None:
    """The tensor in the files that is one parameter and no other; None where there is none."""
    held = made.names.get(name)
    if held is None or sum(other == held for other in made.names.values()) > 1:
        return None
    group = made.groups[held]
    return group.stored[0] if group.conversion is None else None


def _of_experts(
    tensors: Mapping[str, StoredTensor], stack: Stack, name: str, made: Weightless
) -> dict[str, StoredTensor] | None:
    """The tensors that one changed parameter lies in; None where it is not known which rows of it each of them has."""
    if (place := _place(name, made)) is not None:
        old = tensors[place]
        return {place: ChangedStack(old.dtype, old.shape, old.file, old.offset, old, stack)}
    group = made.groups.get(name)
    if group is None:
        return None
    from fusionlab.checkpoints.listed import places  # noqa: PLC0415 - imports transformers

    found = places(group, tuple(made.model.state_dict()[name].shape))
    if found is None:
        return None
    changed: dict[str, StoredTensor] = {}
    for part, own in found.items():
        old = tensors[part]
        if old.shape != (len(own.rows), stack.columns):
            return None
        whole = stack.expert(own.expert)
        change = Change(whole.down, whole.up[own.rows], stack.scale)
        changed[part] = ChangedTensor(old.dtype, old.shape, old.file, old.offset, old, change, False)
    return changed


def _is_turned(module: str, made: Weightless) -> bool:
    from torch import nn  # noqa: PLC0415
    from transformers.pytorch_utils import Conv1D  # noqa: PLC0415

    return isinstance(made.model.get_submodule(module), nn.Embedding | Conv1D)


def _changed(old: StoredTensor, change: Change, is_turned: bool) -> ChangedTensor | None:
    """One weight with its change; None where shapes do not fit."""
    if len(old.shape) < 2:
        return None
    rows = (old.shape[1], old.shape[0]) if is_turned else (old.shape[0], old.count // max(1, old.shape[0]))
    down, up = change.down.flatten(1), change.up.flatten(1)
    if down.shape[0] != up.shape[1] or rows != (up.shape[0], down.shape[1]):
        return None
    own = Change(change.down, change.up, change.scale, None if is_turned else change.magnitude)
    lengths = change.magnitude if is_turned else None
    return ChangedTensor(old.dtype, old.shape, old.file, old.offset, old, own, is_turned, lengths)
