"""Parameters that transformers makes of several tensors of files, such as experts in a stack, read and written whole.

A method that looks at a parameter as a whole must see what the class has. Here the tensors of a file that become one
parameter are one tensor, under the class's name, and come apart again as they are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from fusionlab.dtypes import in_type, widest
from fusionlab.streaming.known import is_known
from fusionlab.streaming.shards import Writer
from fusionlab.streaming.stored import Raw, StoredModel, StoredTensor

TYPE_CHECKING = False  # what reads the tables of transformers imports it
if TYPE_CHECKING:
    from fusionlab.checkpoints.conversions import Group


@dataclass(frozen=True)
class StackedTensor(StoredTensor):
    """One parameter of a class that several tensors of files become together.

    Attributes:
        group: how they do.
        parts: they, by their names in the files.
    """

    group: Group
    parts: Mapping[str, StoredTensor]

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that it is read from."""
        return tuple(dict.fromkeys(file for part in self.parts.values() for file in part.files))

    @property
    def is_scaled(self) -> bool:
        """True if one of its tensors is stored in 8 bits."""
        return any(part.is_scaled for part in self.parts.values())

    def numbers(self, raw: Raw, start: int, count: int) -> Tensor:
        """A stretch of the parameter, flattened; the whole is read for it."""
        read = {
            name: part.numbers(raw, 0, part.count).reshape(part.shape).to(self.dtype)
            for name, part in self.parts.items()
        }
        return self.group.read(read)[self.group.made[0]].flatten()[start : start + count]


@dataclass(frozen=True)
class Stacks:
    """The way in which tensors of files become parameters of their class.

    Attributes:
        groups: of the tensors, by the parameter that each becomes.
        shapes: of the parameters.
    """

    groups: Mapping[str, Group]
    shapes: Mapping[str, tuple[int, ...]]

    def of_model(self, model: StoredModel) -> StoredModel:
        """A model with the parameters of its class for tensors, under the class's names.

        Args:
            model: as it lies on the disk.
        """
        return replace(model, tensors={name: self._parameter(name, model) for name in self.groups})

    def _parameter(self, name: str, model: StoredModel) -> StoredTensor:
        group = self.groups[name]
        parts = {part: model.tensors[part] for part in group.stored}
        first = next(iter(parts.values()))
        if group.conversion is None:
            return first
        dtype = widest(part.dtype for part in parts.values())
        return StackedTensor(dtype, self.shapes[name], first.file, first.offset, group, parts)


def stacks_of(model: StoredModel) -> Stacks | None:
    """The way in which the tensors of a model become parameters of its class.

    Args:
        model: as it lies on the disk.

    Returns:
        No groups where every tensor is a parameter as it is, or transformers does not have the class; None where it is
        not known what becomes of the tensors, or some become several parameters.
    """
    if model.format == "timm" or not is_known(model):
        return Stacks({}, {})
    from fusionlab.checkpoints.huggingface import parameter_names  # noqa: PLC0415 - imports what most methods do without
    from fusionlab.checkpoints.sizes import Stored  # noqa: PLC0415
    from fusionlab.streaming.classes import class_of  # noqa: PLC0415

    counted = Stored(sum(stored.count for stored in model.tensors.values()), len(model.tensors))
    if model.tensors.keys() <= parameter_names("", dict(model.config), model.location, counted):
        return Stacks({}, {})
    made = class_of(model)
    if made is None or any(len(group.made) > 1 for group in made.groups.values()):
        return None
    if all(group.conversion is None for group in made.groups.values()):
        return Stacks({}, {})
    shapes = {name: tuple(tensor.shape) for name, tensor in made.model.state_dict().items()}
    return Stacks(made.groups, {name: shapes[name] for name in made.groups})


@dataclass(frozen=True)
class StackWriter:
    """Files that are written by parameters of the class.

    Attributes:
        writer: of the files.
        stacks: the way in which these become parameters.
    """

    writer: Writer
    stacks: Stacks

    def write(self, name: str, start: int, numbers: Tensor) -> None:
        """Write a parameter as the tensors that it is made of, from any thread.

        Args:
            name: of the parameter.
            start: 0, as parameters are written whole.
            numbers: all of them, flattened.

        Raises:
            InputError: a number that a tensor's type cannot hold.
        """
        parts = self.stacks.groups[name].written({name: numbers.reshape(self.stacks.shapes[name])})
        for part, tensor in parts.items():
            self.writer.write(part, start, in_type(part, tensor, self.writer.tensors[part].dtype).flatten())

    def sizes(self, name: str, count: int) -> dict[str, int]:
        """The bytes of each tensor that a parameter is written in, by the tensor's name.

        Args:
            name: of the parameter.
            count: of its numbers, which is all.
        """
        return {part: self.writer.tensors[part].size for part in self.stacks.groups[name].stored}
