"""Names in files that differ from those in modules, by the tables of transformers: renamed, stacked, split, turned.

transformers keeps, for each class, what becomes of the tensors of its files as they are loaded (a model of experts has
one tensor for each expert in its files, and one for all in its modules). A group is what becomes of some tensors
together; it is read and written by itself, by the operations of those tables.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from fusionlab.checkpoints.quiet import quiet

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Group:
    """Tensors of files that become parameters of a class together.

    Attributes:
        stored: their names in the files, in the order in which they are joined.
        made: the names of the parameters in the class.
        conversion: how one becomes the other; None where a tensor has another name at most.
    """

    stored: tuple[str, ...]
    made: tuple[str, ...]
    conversion: Conversion | None = None

    def read(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The parameters of the class.

        Args:
            tensors: those of the files.
        """
        if self.conversion is None:
            return {self.made[0]: tensors[self.stored[0]]}
        return self.conversion.forth(self.made[0], {name: tensors[name] for name in self.stored})

    def written(self, made: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of the files.

        Args:
            made: the parameters of the class.
        """
        if self.conversion is None:
            return {self.stored[0]: made[self.made[0]]}
        return self.conversion.back({name: made[name] for name in self.made})


@dataclass(frozen=True)
class Conversion:
    """The operations of transformers on one group.

    Attributes:
        table: of transformers, with nothing collected.
        patterns: by stored name, the pattern of the table that it has.
        model: without weights, whose config the operations look at.
        named: stored names by those that the operations backwards give.
    """

    table: Any = field(repr=False)
    patterns: Mapping[str, str] = field(repr=False)
    model: PreTrainedModel = field(repr=False)
    named: Mapping[str, str] = field(default_factory=dict, repr=False)

    def forth(self, first: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Parameters of the class from tensors of the files.

        Args:
            first: parameter that the table names them by.
            tensors: in their order.
        """
        table = copy.deepcopy(self.table)
        for name, tensor in tensors.items():
            table.add_tensor(first, name, self.patterns[name], tensor)
        return _single(table.convert(first, model=self.model, config=self.model.config))

    def back(self, made: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors of the files, or where their names are not known what the table calls them, from parameters."""
        reverse = copy.deepcopy(self.table).reverse_transform()
        first = None
        for name, tensor in made.items():
            renamed, pattern = reverse.rename_source_key(name)
            first = first or renamed
            reverse.add_tensor(renamed, name, pattern, tensor)
        found = _single(reverse.convert(first, model=self.model, config=self.model.config))
        return {self.named.get(name, name): tensor for name, tensor in found.items()}


def _single(found: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: one[0] if isinstance(one, list) else one for name, one in found.items()}


def groups_of(model: PreTrainedModel, shapes: Mapping[str, Shape]) -> list[Group] | None:
    """The groups of tensors of files, with what becomes of each in a class.

    Args:
        model: of the class, without weights.
        shapes: of the tensors, by the names in the files.

    Returns:
        Groups, in which every tensor is once; None where some have no place in the class, or would not come back from
        it as they were.
    """
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if shapes.keys() <= expected.keys():
        found = [Group((name,), (name,)) for name in shapes]
        return found if all(tuple(shapes[name]) == expected[name] for name in shapes) else None
    try:
        # Tables and operations are parts of transformers that it changes; what they fail at is done in memory.
        with quiet(), torch.device("meta"):
            found = _groups(model, shapes, expected)
            made = {name: shape for group in found for name, shape in _made_shapes(group, shapes).items()}
    except Exception:
        return None
    count = sum(len(group.made) for group in found)
    fits = len(made) == count and all(expected.get(name) == shape for name, shape in made.items())
    return found if fits else None


def placed_groups(model: PreTrainedModel, shapes: Mapping[str, Shape]) -> list[Group]:
    """The groups of those tensors of files that have a place in a class; others are left out.

    Args:
        model: of the class, with or without weights.
        shapes: of the tensors, by the names in the files.
    """
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    try:
        # As in `groups_of`: what fails is taken by its name alone.
        with quiet(), torch.device("meta"):
            found, _ = _placed(model, shapes, expected)
            # Of two that are one parameter either has its numbers.
            found = [group if group.conversion else Group(group.stored[:1], group.made) for group in found]
            made = [_made_shapes(group, shapes) for group in found]
    except Exception:
        found = [Group((name,), (name,)) for name in shapes if name in expected]
        made = [{name: tuple(shapes[name])} for (name,) in (group.made for group in found)]
    return [
        Group(group.stored, tuple(own), group.conversion)
        for group, own in zip(found, made, strict=True)
        if all(expected.get(name) == shape for name, shape in own.items())
    ]


def _groups(model: PreTrainedModel, shapes: Mapping[str, Shape], expected: Mapping[str, Shape]) -> list[Group]:
    """The groups of all tensors.

    Raises:
        LookupError: a tensor has no place in the class, or would not come back from it.
    """
    placed, before = _placed(model, shapes, expected)
    if lost := shapes.keys() - {name for group in placed for name in group.stored}:
        raise LookupError(min(lost))
    found = []
    for group in placed:
        if group.conversion is None and len(group.stored) > 1:
            raise LookupError(group.made[0])  # two that are one parameter are no group
        names = {before[name]: name for name in group.stored}
        found.append(group if group.conversion is None else _checked(group, names, shapes))
    return found


def _placed(
    model: PreTrainedModel, shapes: Mapping[str, Shape], expected: Mapping[str, Shape]
) -> tuple[list[Group], dict[str, str]]:
    """The groups of the tensors that have a place in a class, and the names that all have behind the renamings."""
    from transformers.conversion_mapping import get_model_conversion_mapping  # noqa: PLC0415 - none in some versions
    from transformers.core_model_loading import (  # noqa: PLC0415
        WeightConverter,
        WeightRenaming,
        dot_natural_key,
        rename_source_key,
    )

    tables = get_model_conversion_mapping(model)
    renamings = [table for table in tables if isinstance(table, WeightRenaming)]
    converters = [table for table in tables if isinstance(table, WeightConverter)]
    by_pattern = {pattern: table for table in converters for pattern in table.source_patterns}
    state = model.state_dict()
    together: dict[str, list[str]] = {}
    patterns: dict[str, str | None] = {}
    for name in sorted(shapes, key=dot_natural_key):
        prefix = model.base_model_prefix
        made, patterns[name] = rename_source_key(name, renamings, converters, prefix, state)
        if made not in expected and name in expected:
            made, patterns[name] = name, None
        if made in expected:
            together.setdefault(made, []).append(name)
    found = []
    for made, names in together.items():
        used = {name: pattern for name in names if (pattern := patterns[name]) is not None}
        conversion = Conversion(by_pattern[used[names[0]]], used, model) if used else None
        found.append(Group(tuple(names), (made,), conversion))
    return found, {name: rename_source_key(name, renamings, [])[0] for name in shapes}


def _checked(group: Group, before: Mapping[str, str], shapes: Mapping[str, Shape]) -> Group:
    """The group with all that it makes, whose tensors come back with their names and shapes.

    Args:
        group: that names the first parameter that it makes.
        before: stored names by those that the operations begin with.
        shapes: of the tensors.

    Raises:
        LookupError: they do not.
    """
    assert group.conversion is not None
    made = group.conversion.forth(group.made[0], _empty(group.stored, shapes))
    back = group.conversion.back(made)
    named = {}
    for name, tensor in back.items():
        ends = [stored for start, stored in before.items() if name == start or name.endswith(f".{start}")]
        ends = ends or [stored for start, stored in before.items() if start.endswith(f".{name}")]
        if len(ends) != 1 or tuple(tensor.shape) != tuple(shapes[ends[0]]):
            raise LookupError(name)
        named[name] = ends[0]
    if sorted(named.values()) != sorted(group.stored):
        raise LookupError(group.made[0])
    table, patterns, model = group.conversion.table, group.conversion.patterns, group.conversion.model
    return Group(group.stored, tuple(made), Conversion(table, patterns, model, named))


def _made_shapes(group: Group, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    return {name: tuple(tensor.shape) for name, tensor in group.read(_empty(group.stored, shapes)).items()}


def _empty(names: Sequence[str], shapes: Mapping[str, Shape]) -> dict[str, Tensor]:
    return {name: torch.empty(shapes[name], device="meta") for name in names}
