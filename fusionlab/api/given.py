"""Models as they are given to the Python calls: modules, wrapped or not, or paths of checkpoints."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.finite import refuse_not_finite
from fusionlab.merging.registry import find_method
from fusionlab.paths import expanded
from fusionlab.symmetry.wrappers import register_reader, unwrapped
from fusionlab.types import Model

Source = str | PathLike[str]


def module_of(given: Model | Source, what: str) -> Model:
    """A module: the one that was given, unwrapped, or that of a checkpoint.

    Args:
        given: a module, or the path or hub id of a checkpoint.
        what: it is, for messages.

    Raises:
        InputError: something else, a checkpoint that cannot be read, or a module with adapters or no tensors inside.
    """
    if isinstance(given, nn.Module):
        model: Model = unwrapped(given)
        if any(type(part).__module__.startswith("peft.") for part in model.modules()):
            raise InputError(
                f"{what} has adapters of PEFT inside, whose mean is not that of the models; expected the paths of "
                f"adapters, or modules with theirs merged in (model.merge_and_unload())"
            )
        held = model.state_dict()
        if complex_ones := [name for name, x in held.items() if isinstance(x, Tensor) and x.is_complex()]:
            raise InputError(
                f"{what} holds complex numbers ({complex_ones[0]!r}), which nothing here matches or merges; expected "
                f"real ones, such as both parts in one tensor"
            )
        odd = [name for name, value in held.items() if not isinstance(value, Tensor)]
        if odd:
            raise InputError(
                f"{what} holds {odd[0]!r}, which is no tensor, as in quantised models; expected one whose weights are "
                f"floating-point numbers"
            )
        return model
    if isinstance(given, str | PathLike):
        return cast("Model", _read(given))
    raise InputError(f"{what} is {_kind(given)}; expected a module, or the path or hub id of a checkpoint")


def modules_of(given: Sequence[Model | Source], call: str, second: Any = None) -> list[Model]:
    """Several modules.

    Args:
        given: modules or paths.
        call: that they were given to, for messages.
        second: the argument behind them, which is a model where somebody forgot the list.

    Raises:
        InputError: one model in place of several, something else among them, or a model without numbers or with NaN or
            infinities among them.
    """
    if isinstance(given, nn.Module | str | PathLike) or not isinstance(given, Iterable):
        both = " and another behind it" if isinstance(second, nn.Module | PathLike) else ""
        raise InputError(f"{call} was given {_kind(given)}{both}; expected the models in one list: {call}([a, b], ...)")
    found: list[Model] = [module_of(one, f"model {index} of {call}") for index, one in enumerate(given)]
    for index, model in enumerate(found):
        if any(parameter.is_meta for parameter in model.parameters()):
            raise InputError(f"model {index} of {call} has no numbers (device meta); expected a loaded one")
        refuse_not_finite(f"model {index} of {call}", model)
    return found


def warn_other_modules(given: Sequence[nn.Module | Source], call: str) -> None:
    """Warn of models that come from sentence-transformers folders whose modules beside the transformers differ.

    Args:
        given: modules, of which transformers' own know where they come from, or paths.
        call: that makes one of them, of transformers alone.
    """
    places = [folder for one in given if (folder := _folder_of(one)) is not None]
    if len(places) < 2:
        return
    # A model without such modules needs nothing that reads them.
    from fusionlab.checkpoints.sentence_modules import other_modules  # noqa: PLC0415

    first, *others = places
    for other in others:
        names: list[str] = []
        with suppress(InputError):  # damage there is nothing that this call reads
            names = other_modules(first, other)
        if names:
            warnings.warn(
                f"{first} and {other} differ in modules beside their transformers ({', '.join(names)}), which "
                f"fusionlab.{call} leaves alone: fusionlab.save(..., like={str(first)!r}) copies those of {first}. The "
                f"command fusionlab {call} merges them too.",
                stacklevel=3,
            )


def _folder_of(given: nn.Module | Source) -> Path | None:
    """The local sentence-transformers folder that a model comes from; None where it comes from elsewhere."""
    named = getattr(unwrapped(given), "name_or_path", "") if isinstance(given, nn.Module) else given
    if not isinstance(named, str | PathLike) or not (place := str(named)):
        return None
    return expanded(place) if (expanded(place) / "modules.json").is_file() else None


def _read(path: Source) -> nn.Module:
    """The model of a checkpoint."""
    # Only what is read from files needs the libraries that read them.
    from fusionlab.checkpoints import load  # noqa: PLC0415

    return load(Path(path) if isinstance(path, PathLike) else path)


# So that an alignment, too, takes the path of what it is applied to.
register_reader(_read)


def _kind(given: object) -> str:
    """A path, or the name of a class, in words."""
    if isinstance(given, str | PathLike):
        return f"a path ({given})"
    name = type(given).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def named_base(given: Sequence[nn.Module | Source], method: str, hyperparameters: Mapping[str, Any]) -> str | None:
    """The base model that all of several LoRA adapters name, where a merge method looks at one; else None.

    Args:
        given: modules, or paths, as to `modules_of`.
        method: of merging.
        hyperparameters: of the method.

    Raises:
        InputError: no such method or hyperparameter, or an adapter's config that cannot be read.
    """
    if "base" not in find_method(method).requires(**hyperparameters):
        return None
    named = {_base_of_adapter(one) for one in given}
    return named.pop() if len(named) == 1 else None


def _base_of_adapter(given: nn.Module | Source) -> str | None:
    if isinstance(given, nn.Module):
        return None
    # Only what is read from files needs the libraries that read them.
    from fusionlab.checkpoints.files import base_named_in, is_adapter  # noqa: PLC0415
    from fusionlab.checkpoints.hub import locate  # noqa: PLC0415

    location = locate(str(given))
    return base_named_in(location) if is_adapter(location) else None
