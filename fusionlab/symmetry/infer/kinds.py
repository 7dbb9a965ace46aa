"""Kinds of layers: which layer of a small model stands for which layer of the real one.

Two layers are of one kind if their modules are the same but for sizes, and the config's lists with an entry for each
layer (``layer_types``) say the same of both.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import FunctionType
from typing import Any

from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

from fusionlab.symmetry.blueprint import SymmetryError

# Attributes that count layers, and those that matter in training alone.
_UNSEEN = re.compile(r"(^|_)(idx|index|id|ids|number|num)$|drop|gradient_checkpointing|^training$|^config$")
_DEEPEST = 40


def per_layer(config: Any, count: int) -> dict[str, list[Hashable]]:
    """The lists of a config, and of its sub-configs, that have `count` entries: by dotted name, sizes left out."""
    return {
        name: [abstract(entry) for entry in value]
        for name, value in every_field(config)
        if isinstance(value, (list, tuple)) and len(value) == count and not is_increasing(value)
    }


def is_increasing(value: Any) -> bool:
    """A list of indices in order, so that its entries say nothing of the layer at their place."""
    return all(type(n) is int for n in value) and all(a < b for a, b in pairwise(value))


def every_field(config: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """The public fields of a config and of its sub-configs, by dotted name."""
    for name, value in sorted(vars(config).items()):
        if hasattr(value, "model_type"):
            yield from every_field(value, f"{at}{name}.")
        elif not name.startswith("_"):
            yield f"{at}{name}", value


def abstract(value: Any) -> Hashable:
    """A value without its size: numbers become their sign, functions their name."""
    match value:
        case bool() | str() | None:
            return value
        case int():
            return (value > 0) - (value < 0)
        case FunctionType():
            return value.__qualname__
        case tuple():
            return "list"
    return type(value).__name__


def signature(module: nn.Module, depth: int = 0) -> Hashable:
    """The structure of a module, sizes and lengths of lists left out: equal for two layers of one kind."""
    if depth > _DEEPEST:
        raise SymmetryError(f"modules are nested deeper than {_DEEPEST} in a {type(module).__name__}")
    attributes = tuple(
        (name, abstract(value))
        for name, value in sorted(vars(module).items())
        if not name.startswith("_") and not isinstance(value, float) and not _UNSEEN.search(name)
    )
    tensors = tuple(
        (name, None if tensor is None else tensor.ndim)
        for held in (module._parameters, module._buffers)
        for name, tensor in held.items()
    )
    if is_list(module):
        children: tuple[Hashable, ...] = tuple(
            dict.fromkeys(signature(child, depth + 1) for child in module.children())
        )
    else:
        children = tuple(
            (name, None if child is None else signature(child, depth + 1)) for name, child in module._modules.items()
        )
    return type(module).__name__, attributes, tensors, children


def is_list(module: nn.Module) -> bool:
    """Children are numbered."""
    return len(module._modules) > 0 and all(name.isdigit() for name in module._modules)


def kinds_of(parent: nn.Module, count: int, said: Iterable[Sequence[Hashable]]) -> list[Hashable]:
    """The kind of every layer of the lists with `count` entries that one module holds; such lists go together.

    Args:
        parent: holds the lists.
        count: their length.
        said: what a config's lists say of each layer.
    """
    lists = [child for child in parent._modules.values() if child is not None and is_list(child)]
    together = [list(child._modules.values()) for child in lists if len(child._modules) == count]
    columns = list(said)
    return [
        (
            tuple(column[layer] for column in columns),
            tuple(None if (one := entry[layer]) is None else signature(one) for entry in together),
        )
        for layer in range(count)
    ]


def stand_ins(real: Sequence[Hashable], small: Sequence[Hashable], what: str) -> list[int]:
    """For every real layer, the small one that stands for it: the first for the first of its kind, and so on.

    Raises:
        SymmetryError: a kind that the small model lacks.
    """
    of_kind: dict[Hashable, list[int]] = {}
    for index, kind in enumerate(small):
        of_kind.setdefault(kind, []).append(index)
    seen: dict[Hashable, int] = {}
    chosen = []
    for index, kind in enumerate(real):
        if kind not in of_kind:
            raise SymmetryError(f"no layer of the small model is of the kind of {what}.{index}")
        rank = seen.get(kind, 0)
        seen[kind] = rank + 1
        chosen.append(of_kind[kind][min(rank, len(of_kind[kind]) - 1)])
    return chosen


class NoStandInError(SymmetryError):
    """A module or parameter of the real model has no counterpart, which other sizes may mend."""


@dataclass(frozen=True)
class Matched:
    """A small model and the real one that it stands for.

    Attributes:
        names: for every parameter and buffer of the real model the name of the small one's that stands for it.
        alike: of the small model, parameters that must have the same axes but for the layer: of each kind of layer that
            stands for several, those of the others with those of the first.
        thin: lists in the real model of whose layers several of one kind have a single stand-in.
    """

    names: dict[str, str]
    alike: dict[str, str]
    thin: list[str]


def matched(real: nn.Module, small: nn.Module, configs: tuple[Any, Any]) -> Matched:
    """Find a stand-in for every part of a model.

    Args:
        real: on the meta device.
        small: of the same class, smaller.
        configs: of both.

    Raises:
        SymmetryError: a part that the small model lacks, or that it has and the real one does not.
    """
    found = Matched({}, {}, [])
    _match(real, small, ("", ""), configs, found)
    kept = small.state_dict()
    return Matched(
        {name: found.names[name] for name in real.state_dict()},
        {name: other for name, other in found.alike.items() if name in kept},
        found.thin,
    )


def _match(real: nn.Module, small: nn.Module, at: tuple[str, str], configs: tuple[Any, Any], found: Matched) -> None:
    for held, small_held in ((real._parameters, small._parameters), (real._buffers, small._buffers)):
        for name in held | small_held:
            tensor, other = held.get(name), small_held.get(name)
            if tensor is None and other is None:
                continue
            if tensor is None or other is None or tensor.ndim != other.ndim:
                raise NoStandInError(f"nothing in the small model can stand for {at[0]}{name}")
            found.names[at[0] + name] = at[1] + name
    for name in real._modules if is_list(real) else real._modules | small._modules:
        child, stand_in = real._modules.get(name), small._modules.get(name)
        if child is None and stand_in is None:
            continue
        if child is None or stand_in is None or is_list(child) != is_list(stand_in):
            raise NoStandInError(f"nothing in the small model can stand for {at[0]}{name}")
        # Of a class made from another one, as wrappers make theirs, what is computed is the same.
        own, expected = (type_before_parametrizations(part) for part in (child, stand_in))
        if not issubclass(own, expected) and not issubclass(expected, own):
            raise NoStandInError(f"{at[0]}{name} is a {own.__name__}, and by the config a {expected.__name__}")
        inside = f"{at[0]}{name}.", f"{at[1]}{name}."
        if not is_list(child) or len(child._modules) == len(stand_in._modules):
            _match(child, stand_in, inside, configs, found)
            continue
        counts = len(child._modules), len(stand_in._modules)
        said = [per_layer(config, count) for config, count in zip(configs, counts, strict=True)]
        # A list that has as many entries by chance has another number of them in the other config.
        columns = [[of[name] for name in said[0] if name in said[1]] for of in said]
        kinds, small_kinds = (kinds_of(p, n, c) for p, n, c in zip((real, small), counts, columns, strict=True))
        for index, chosen in enumerate(stand_ins(kinds, small_kinds, inside[0])):
            entry, standing = child._modules[str(index)], stand_in._modules[str(chosen)]
            if entry is not None and standing is not None:
                _match(entry, standing, (f"{inside[0]}{index}.", f"{inside[1]}{chosen}."), configs, found)
        _note_alike(stand_in, small_kinds, inside[1], found)
        if any(kinds.count(kind) > 1 and small_kinds.count(kind) == 1 for kind in set(kinds)):
            found.thin.append(inside[0])


def _note_alike(layers: nn.Module, kinds: Sequence[Hashable], at: str, found: Matched) -> None:
    first: dict[Hashable, int] = {}
    for index, kind in enumerate(kinds):
        other, layer = first.setdefault(kind, index), layers._modules[str(index)]
        if other != index and layer is not None:
            found.alike.update({f"{at}{index}.{name}": f"{at}{other}.{name}" for name in layer.state_dict()})
