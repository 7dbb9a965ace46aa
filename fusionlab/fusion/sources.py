"""Models as they are given to a fusion: modules, wrapped or not, paths and hub ids, under names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path

from torch import nn

from fusionlab.checkpoints.names import short_names
from fusionlab.errors import InputError
from fusionlab.symmetry.wrappers import unwrapped

ModelSource = str | Path | nn.Module


def source_of(given: object, what: str) -> ModelSource:
    """A module without what wraps it, or a path or hub id as it is.

    Args:
        given: any of these.
        what: it is, for messages.

    Raises:
        InputError: something else.
    """
    if isinstance(given, nn.Module):
        return unwrapped(given)
    if isinstance(given, str | PathLike):
        return given if isinstance(given, str) else Path(given)
    raise InputError(
        f"{what} is of type {type(given).__name__}; expected a module, or the path or hub id of a checkpoint"
    )


def named(models: Sequence[ModelSource] | Mapping[str, ModelSource]) -> dict[str, ModelSource]:
    """Models by name; paths by the last part of theirs, modules by their place.

    Args:
        models: several, or a mapping from names to them.

    Raises:
        InputError: one model in place of several, or something else among them.
    """
    if isinstance(models, Mapping):
        return {name: source_of(model, f"the model {name!r}") for name, model in models.items()}
    if isinstance(models, nn.Module | str | PathLike) or not isinstance(models, Iterable):
        given = f"the path {models}" if isinstance(models, str | PathLike) else f"one {type(models).__name__}"
        raise InputError(f"a fusion was given {given}; expected the models in one list: FusionModule([a, b], ...)")
    sources = [source_of(model, f"model {index} of the fusion") for index, model in enumerate(models)]
    given_paths = [str(model) for model in sources if not isinstance(model, nn.Module)]
    paths = iter(short_names(given_paths) if given_paths else [])
    return {
        f"model {index}" if isinstance(model, nn.Module) else next(paths): model for index, model in enumerate(sources)
    }
