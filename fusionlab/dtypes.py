"""The types that models are stored in: the widest of several, and what is written in another one."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.finite import all_finite
from fusionlab.types import Model

Key = TypeVar("Key")
Types = Mapping[str, torch.dtype]
DTYPES = {
    "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64,
}  # fmt: skip


def find_dtype(name: str | torch.dtype | None) -> torch.dtype | None:
    """A floating type by its name.

    Args:
        name: one of `DTYPES`, or the type itself; None stays None.

    Raises:
        InputError: there is no such type, or models are not stored in it.
    """
    if name is None or name in DTYPES.values():
        return name  # type: ignore[return-value]
    if name not in DTYPES:
        raise InputError(f"dtype is {str(name)!r}; expected one of {', '.join(DTYPES)}")
    return DTYPES[str(name)]


def types_of(model: nn.Module) -> dict[str, torch.dtype]:
    """The type of every parameter and buffer, by name."""
    return {name: tensor.dtype for name, tensor in model.state_dict().items()}


def widest(types: Iterable[torch.dtype]) -> torch.dtype:
    """The narrowest type that holds every number of all these; float32 for bfloat16 with float16."""
    first, *others = types
    for other in others:
        first = torch.promote_types(first, other)
    return first


def common_types(models: Iterable[nn.Module], least: torch.dtype | None = None) -> dict[str, torch.dtype]:
    """The widest type that any of several models has each parameter and buffer in, by name.

    Args:
        models: the models.
        least: a type that all floating ones are at least as wide as, or None.
    """
    found: dict[str, list[torch.dtype]] = {}
    for model in models:
        for name, dtype in types_of(model).items():
            found.setdefault(name, [] if least is None or not dtype.is_floating_point else [least]).append(dtype)
    return {name: widest(several) for name, several in found.items()}


def widened(models: Mapping[Key, Model], least: torch.dtype | None = None) -> dict[Key, Model]:
    """Models with every floating parameter in the widest type that any of them has it in; no number changes.

    Args:
        models: by name; not modified. One that has these types already is the same module.
        least: a type that all are at least as wide as, or None.
    """
    types = common_types(models.values(), least)
    return {name: in_types(model, types) for name, model in models.items()}


def as_wide_as(model: Model, others: Iterable[nn.Module]) -> Model:
    """A model with every floating parameter in a type at least as wide as the one that others mostly have.

    Args:
        model: not modified. One that is as wide already is the same module.
        others: at least one.
    """
    return widened({"": model}, widest(main_dtype(other.state_dict()) for other in others))[""]


def in_types(model: Model, types: Types | torch.dtype) -> Model:
    """A model in other types.

    Args:
        model: not modified.
        types: by parameter and buffer, where those that are not named stay as they are; or one for all floating ones.

    Returns:
        `model` itself if it is in these types, else a copy.

    Raises:
        InputError: a number that the new type cannot hold.
    """
    if isinstance(types, torch.dtype):
        types = {name: types for name, dtype in types_of(model).items() if dtype.is_floating_point}
    if all(types.get(name, dtype) == dtype for name, dtype in types_of(model).items()):
        return model
    converted = copy.deepcopy(model)
    with torch.no_grad():
        for name, tensor in [*converted.named_parameters(), *converted.named_buffers()]:
            tensor.data = in_type(name, tensor.data, types.get(name, tensor.dtype))
    return converted


def in_type(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A parameter in another type.

    Args:
        name: of it.
        tensor: not modified.
        dtype: to write it in.

    Raises:
        InputError: a number that the type cannot hold.
    """
    data = tensor.to(dtype)
    if dtype.is_floating_point and tensor.is_floating_point() and (lost := _lost(tensor, data)):
        raise InputError(
            f"parameter {name} holds {lost:.3g}, which is more than {name_of(dtype)} can hold; expected a wider dtype"
        )
    return data


def rounded(model: Model, dtype: torch.dtype | None) -> Model:
    """A model with the numbers that it will have once it is written, in the type that it is in.

    Args:
        model: not modified.
        dtype: that it will be written in; None for its own.

    Raises:
        InputError: as `in_types`.
    """
    return model if dtype is None else in_types(in_types(model, dtype), types_of(model))


def differing(models: Mapping[str, nn.Module]) -> str:
    """The type that each model is stored in, such as ``a in bfloat16, b in float32``; empty where all agree.

    A model's type is the one that most of its numbers have.
    """
    return differing_of({name: main_dtype(model.state_dict()) for name, model in models.items()})


def differing_of(main: Mapping[str, torch.dtype]) -> str:
    """The same of the types that end models are stored in, by name."""
    if len(set(main.values())) < 2:
        return ""
    return ", ".join(f"{name} in {name_of(dtype)}" for name, dtype in main.items())


def merge_note(models: Mapping[str, nn.Module], dtype: torch.dtype | None = None) -> str:
    """A sentence on the type that a merge is written in; empty where that is the end models' own.

    Args:
        models: end models by name, as they are stored.
        dtype: that was asked for, or None.
    """
    return merge_note_of({name: main_dtype(model.state_dict()) for name, model in models.items()}, dtype)


def merge_note_of(main: Mapping[str, torch.dtype], dtype: torch.dtype | None = None) -> str:
    """The same of the types that end models are stored in, by name.

    Args:
        main: the type of most numbers of each.
        dtype: that was asked for, or None.
    """
    words, types = differing_of(main), list(main.values())
    if words and dtype is None:
        return (
            f"The end models are stored in different types ({words}). The merge is made and written in "
            f"{name_of(widest(types))}, the narrowest that holds all their numbers; dtype chooses another."
        )
    if dtype is None or (not words and dtype == types[0]):
        return ""
    stored = f"in different types ({words})" if words else f"in {name_of(types[0])}"
    return f"The merge is written in {name_of(dtype)}, as asked for; the end models are stored {stored}."


def measured_note(models: Mapping[str, nn.Module]) -> str:
    """A sentence on the type that a merge is measured in where none is written; empty where the end models agree.

    Args:
        models: end models by name, as they are stored.
    """
    if not (words := differing(models)):
        return ""
    wide = name_of(widest(main_dtype(model.state_dict()) for model in models.values()))
    return (
        f"End models are stored in different types ({words}). Their merges are made and measured in {wide}, the "
        f"narrowest that holds all their numbers."
    )


def name_of(dtype: torch.dtype) -> str:
    """A type's name, without the library's."""
    return str(dtype).removeprefix("torch.")


def main_dtype(state: Mapping[str, Tensor]) -> torch.dtype:
    """The floating dtype that most of a state dict is in; float32 where there is none."""
    return main_of((tensor.dtype, tensor.numel()) for tensor in state.values())


def main_of(counts: Iterable[tuple[torch.dtype, int]]) -> torch.dtype:
    """The floating type that most numbers have; float32 where there is none.

    Args:
        counts: types, and how many numbers have each.
    """
    elements: dict[torch.dtype, int] = {}
    for dtype, count in counts:
        if dtype.is_floating_point:
            elements[dtype] = elements.get(dtype, 0) + count
    return max(elements, key=lambda dtype: elements[dtype]) if elements else torch.float32


def stored_size(model: nn.Module, types: Types | torch.dtype | None = None) -> int:
    """The number of bytes that a model's parameters take once they are written.

    Args:
        model: the model.
        types: that it is written in, as for `in_types`; its own if None.
    """
    size = 0
    for name, tensor in model.state_dict().items():
        dtype = tensor.dtype
        if isinstance(types, torch.dtype):
            dtype = types if dtype.is_floating_point else dtype
        elif types is not None:
            dtype = types.get(name, dtype)
        size += tensor.numel() * dtype.itemsize
    return size


def _lost(before: Tensor, after: Tensor) -> float:
    """The largest finite number that became infinite, or 0."""
    if torch.finfo(after.dtype).max >= torch.finfo(before.dtype).max or all_finite(after):
        return 0.0
    gone = torch.isfinite(before) & ~torch.isfinite(after)
    return float(before[gone].abs().max()) if gone.any() else 0.0
