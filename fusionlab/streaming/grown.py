"""A model of files grown into a larger architecture, a part of its parameters at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fusionlab.checkpoints.conversions import Group
from fusionlab.checkpoints.weightless import Weightless
from fusionlab.dtypes import in_type, main_of, widest
from fusionlab.growing.axes import Widening
from fusionlab.growing.embedding import Embedding
from fusionlab.growing.layers import lists_of
from fusionlab.streaming.pipeline import in_order, workers
from fusionlab.streaming.running import Provide
from fusionlab.streaming.shards import Writer
from fusionlab.streaming.stored import TensorSpec
from fusionlab.streaming.twins import MOST, PartReader
from fusionlab.symmetry import Blueprint
from fusionlab.symmetry.folding import fold
from fusionlab.symmetry.parts import parts


@dataclass(frozen=True)
class Unit:
    """Parameters that are made and written together.

    Attributes:
        part: those of the small model that they are made of; None for those that are new.
        groups: what of the larger model's files becomes which of its parameters.
    """

    part: Blueprint | None
    groups: Sequence[Group]


class GrowingParts:
    """A small model's parameters in a larger architecture, made when they are asked for.

    Folding moves numbers between some of the small model's parameters; those that it does, that are tied or that are
    one tensor of a file are one part, which is read at once.

    Args:
        embedding: both models side by side, without numbers.
        small: the small model.
        large: the larger one, as it will be written.
        dtypes: of the tensors in the small model's files, with their numbers counted.
    """

    def __init__(
        self,
        embedding: Embedding,
        small: Weightless,
        large: Weightless,
        dtypes: Mapping[str, tuple[torch.dtype, int]],
    ) -> None:
        self.embedding, self.large = embedding, large
        self.stack_of = {entry: stack for stack, entries in embedding.large.stacks.items() for entry in entries}
        alike = [list(names) for names in (*together(small), *self._pulled_back(), *self._of_experts())]
        found = parts(embedding.small, (), [names for names in alike if names])
        self.part_of = {name: part for part in found for name in part.parameters}
        self.units = self._units(found)
        self.types = self._types(small, dtypes)

    def planned(self) -> dict[str, TensorSpec]:
        """The type and shape of every tensor that is written, in the order of the larger model's parameters."""
        state = self.large.model.state_dict()
        found: dict[str, TensorSpec] = {}
        for group in _groups(self.large):
            empty = {name: torch.empty(state[name].shape, dtype=self.types[name], device="meta") for name in group.made}
            with torch.device("meta"):
                written = group.written(empty)
            found |= {name: TensorSpec(tensor.dtype, tuple(tensor.shape)) for name, tensor in written.items()}
        return found

    @torch.no_grad()
    def write(
        self,
        make: Callable[[], Provide],
        writer: Writer,
        advance: Callable[[int], object] = lambda _: None,
        held: Callable[[str], int] = lambda _: 0,
    ) -> None:
        """Write the grown model's weights.

        Args:
            make: gives what makes parameters when they are asked for, for one thread at a time.
            writer: of the files.
            advance: is told how many bytes have been written since it was called last.
            held: about how many numbers of 4 bytes that holds for a parameter, beside what growing takes.

        Raises:
            InputError: numbers that are NaN or infinite, or that the type to write in cannot hold.
        """

        def work(unit: Unit) -> int:
            size, provide = 0, make()
            for group in unit.groups:
                made = {name: provide(name) for name in group.made}
                for name, tensor in group.written(made).items():
                    writer.write(name, 0, in_type(name, tensor, writer.tensors[name].dtype).flatten())
                    size += writer.tensors[name].size
            return size

        def numbers(unit: Unit) -> int:
            beside = max((held(name) for group in unit.groups for name in group.made), default=0)
            return self._size(unit, writer.tensors) + beside

        with workers() as pool:
            for size in in_order(pool, work, self.units, numbers, MOST):
                advance(size)

    def memory(self) -> int:
        """About how many bytes growing holds at most, beside torch itself."""
        planned = self.planned()
        return 4 * max(MOST, *(self._size(unit, planned) for unit in self.units))

    def _pulled_back(self) -> Iterator[list[str]]:
        """The small model's parameters that become one group of the larger model's, or tied ones."""
        sources = self.embedding.sources
        for names in together(self.large):
            targets = (self.stack_of.get(name, name) for name in names)
            yield list(dict.fromkeys(sources[target] for target in targets if target in sources))

    def _of_experts(self) -> Iterator[list[str]]:
        """The stacks that are made of one list of experts, which run one after the other."""
        for path in sorted(lists_of(self.embedding.small.stacks)):
            yield [name for name in self.embedding.small.stacks if name.startswith(f"{path}.")]

    def _units(self, found: Sequence[Blueprint]) -> list[Unit]:
        groups: dict[int, list[Group]] = {id(part): [] for part in found}
        new: list[Unit] = []
        for group in _groups(self.large):
            owner = next((part for name in group.made if (part := self.part_for(name)) is not None), None)
            if owner is None:
                new.append(Unit(None, [group]))
            else:
                groups[id(owner)].append(group)
        return [*(Unit(part, groups[id(part)]) for part in found if groups[id(part)]), *new]

    def part_for(self, name: str) -> Blueprint | None:
        """The part of the small model's parameters that one of the larger model's is made of; None for a new one.

        Args:
            name: in the larger model's state dict.
        """
        source = self.embedding.sources.get(self.stack_of.get(name, name))
        return None if source is None else self.part_of[source]

    def _types(self, small: Weightless, dtypes: Mapping[str, tuple[torch.dtype, int]]) -> dict[str, torch.dtype]:
        """The type of each of the larger model's parameters: the small one's, or the commonest where it has none."""
        main, sources = main_of(dtypes.values()), self.embedding.sources
        found = {}
        for name, fresh in self.large.model.state_dict().items():
            source = sources.get(self.stack_of.get(name, name))
            if not fresh.is_floating_point() or source is None:
                found[name] = main if fresh.is_floating_point() else fresh.dtype
                continue
            first = self.embedding.small.stacks.get(source, (source,))[0]
            found[name] = widest(dtypes[stored][0] for stored in small.groups[small.names[first]].stored)
        return found

    def _size(self, unit: Unit, planned: Mapping[str, TensorSpec]) -> int:
        """About how many numbers of 4 bytes are held in memory for a unit.

        The small model's are there as they are stored and in float64, before and after folding; those of a group are
        made in float64 twice.
        """
        parameters = [] if unit.part is None else [self.embedding.state[name] for name in unit.part.parameters]
        largest = max((sum(planned[name].count for name in group.stored) for group in unit.groups), default=0)
        return 5 * sum(tensor.numel() for tensor in parameters) + 6 * largest


class Grown:
    """The parameters of the grown model in float64; the small model's of one part are held.

    Args:
        growing: both models.
        reader: of the small model.
        widening: the maps.
    """

    def __init__(self, growing: GrowingParts, reader: PartReader, widening: Widening) -> None:
        self.growing, self.reader, self.widening = growing, reader, widening
        self.part: Blueprint | None = None
        self.held: Mapping[str, Tensor] = {}
        self.stacks: dict[str, Tensor] = {}

    @torch.no_grad()
    def __call__(self, name: str) -> Tensor:
        """A parameter or buffer of the grown model.

        Args:
            name: in its state dict.
        """
        embedding, stack = self.growing.embedding, self.growing.stack_of.get(name)
        part = self.growing.part_for(name)
        if part is not None and part is not self.part:
            self.part, self.held, self.stacks = part, {}, {}
            self.held = self._read(part)
        source = embedding.sources.get(stack or name)
        tensor = None if source is None else self.held[source]
        if stack is None:
            return embedding.parameter(name, tensor, self.widening)
        if source is None:
            return embedding.parameter(stack, None, self.widening)[0]
        if stack not in self.stacks:
            self.stacks[stack] = embedding.parameter(stack, tensor, self.widening)
        return self.stacks[stack][embedding.large.stacks[stack].index(name)]

    def _read(self, part: Blueprint) -> Mapping[str, Tensor]:
        """Parameters of a part in the gauge, in float64."""
        state = self.reader.read(part.names)
        state = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
        stacked = part.stacked(state)
        return fold(stacked, part) if part.folded else stacked


def together(model: Weightless) -> list[list[str]]:
    """Names of a state dict by what of the files they are made of.

    Args:
        model: whose.
    """
    found: dict[str, list[str]] = {}
    for name, held in model.names.items():
        found.setdefault(model.groups[held].made[0], []).append(name)
    return list(found.values())


def _groups(model: Weightless) -> list[Group]:
    """The groups of a model's files, each once, in the order of its parameters."""
    found = {group.made[0]: group for group in (model.groups[held] for held in model.names.values())}
    return list(found.values())
