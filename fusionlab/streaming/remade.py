"""A model of files that becomes one of another architecture: read, made and written a part at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fusionlab.checkpoints.conversions import Group
from fusionlab.checkpoints.weightless import Weightless
from fusionlab.dtypes import in_type, main_of, widest
from fusionlab.growing.layers import lists_of
from fusionlab.streaming.coupled import Readable
from fusionlab.streaming.pipeline import in_order, workers
from fusionlab.streaming.running import Provide
from fusionlab.streaming.shards import Writer
from fusionlab.streaming.stored import TensorSpec
from fusionlab.streaming.twins import MOST
from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.symmetry.parts import parts
from fusionlab.symmetry.stacks import Stacks


@dataclass(frozen=True)
class Unit:
    """Parameters that are made and written together.

    Attributes:
        part: those of the model that they are made of; None for those that are new.
        groups: what of the other model's files becomes which of its parameters.
    """

    part: Blueprint | None
    groups: Sequence[Group]


class RemadeParts:
    """A model's parameters in another architecture, in parts that are read and written one after the other.

    Parameters that the model's gauge moves numbers between, that are tied or that are one tensor of a file of either
    model are one part, which is read at once.

    Args:
        described: the model's blueprint, in the gauge that it is read in.
        spaces: of it, whose parameters are one part.
        state: the model's parameters without numbers, as its blueprint has them.
        models: it and the other one, as that will be written.
        dtypes: of the tensors in the model's files, with their numbers counted.
        sources: by parameter of the other one, as its blueprint has it, the parameter of the model that becomes it.
        stacks: of the other one's blueprint.

    Attributes:
        parts: of the model, in order.
        part_of: by its parameters, as its blueprint has them.
        stack_of: by parameter of the other one, the stack that it is an entry of.
        units: that are written one after the other.
    """

    def __init__(
        self,
        described: Blueprint,
        spaces: Iterable[str],
        state: Mapping[str, Tensor],
        models: tuple[Weightless, Weightless],
        dtypes: Mapping[str, tuple[torch.dtype, int]],
        sources: Mapping[str, str],
        stacks: Stacks,
    ) -> None:
        self.state, self.sources, (self.model, self.target) = state, sources, models
        self.dtypes, self.stacks = dtypes, described.stacks
        self.stack_of = {entry: stack for stack, entries in stacks.items() for entry in entries}
        alike = [list(names) for names in (*together(self.model), *self._pulled_back(), *_of_experts(described.stacks))]
        self.parts = parts(described, list(spaces), [names for names in alike if names])
        self.part_of = {name: part for part in self.parts for name in part.parameters}
        self.units = self._units()

    def source(self, name: str) -> str | None:
        """The parameter of the model that one of the other's is made of, as its blueprint has it; None for a new one.

        Args:
            name: in the other model's state dict.
        """
        return self.sources.get(self.stack_of.get(name, name))

    def part_for(self, name: str) -> Blueprint | None:
        """The part of the model's parameters that one of the other's is made of; None for a new one.

        Args:
            name: in the other model's state dict.
        """
        source = self.source(name)
        return None if source is None else self.part_of[source]

    @cached_property
    def types(self) -> dict[str, torch.dtype]:
        """The types that the other model's parameters are written in, by name: those of the model's parameters that
        they are made of, and the commonest where there is none."""
        main, found = main_of(self.dtypes.values()), {}
        for name, one in self.target.model.state_dict().items():
            source = self.source(name)
            if not one.is_floating_point() or source is None:
                found[name] = main if one.is_floating_point() else one.dtype
                continue
            first = self.stacks.get(source, (source,))[0]
            group = self.model.groups[self.model.names[first]]
            found[name] = widest(self.dtypes[stored][0] for stored in group.stored)
        return found

    def planned(self) -> dict[str, TensorSpec]:
        """The type and shape of every tensor that is written, in the order of the other model's parameters."""
        state, types = self.target.model.state_dict(), self.types
        found: dict[str, TensorSpec] = {}
        for group in _groups(self.target):
            empty = {name: torch.empty(state[name].shape, dtype=types[name], device="meta") for name in group.made}
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
        """Write the other model's weights.

        Args:
            make: gives what makes parameters when they are asked for, for one thread at a time.
            writer: of the files.
            advance: is told how many bytes have been written since it was called last.
            held: about how many numbers of 4 bytes are held for a parameter beside what is read and made.

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
        """About how many bytes making and writing hold at most, beside torch itself."""
        planned = self.planned()
        return 4 * max(MOST, *(self._size(unit, planned) for unit in self.units))

    def _pulled_back(self) -> Iterator[list[str]]:
        """The model's parameters that become one group of the other's, or tied ones."""
        for names in together(self.target):
            yield list(dict.fromkeys(source for name in names if (source := self.source(name)) is not None))

    def _units(self) -> list[Unit]:
        groups: dict[int, list[Group]] = {id(part): [] for part in self.parts}
        new: list[Unit] = []
        for group in _groups(self.target):
            owner = next((part for name in group.made if (part := self.part_for(name)) is not None), None)
            if owner is None:
                new.append(Unit(None, [group]))
            else:
                groups[id(owner)].append(group)
        return [*(Unit(part, groups[id(part)]) for part in self.parts if groups[id(part)]), *new]

    def _size(self, unit: Unit, planned: Mapping[str, TensorSpec]) -> int:
        """About how many numbers of 4 bytes are held in memory for a unit.

        The model's are there as they are stored and in float64, before and after they are brought into the gauge; those
        of a group are made in float64 twice.
        """
        read = [] if unit.part is None else [self.state[name] for name in unit.part.parameters]
        largest = max((max(self._counts(group, planned)) for group in unit.groups), default=0)
        return 5 * sum(tensor.numel() for tensor in read) + 6 * largest

    def _counts(self, group: Group, planned: Mapping[str, TensorSpec]) -> tuple[int, int]:
        """The numbers of a group, and of what it is made of."""
        sources = dict.fromkeys(source for name in group.made if (source := self.source(name)) is not None)
        return sum(planned[name].count for name in group.stored), sum(self.state[name].numel() for name in sources)


class InGauge(Mapping[str, Tensor]):
    """A model's parameters in a gauge, in float64, as its blueprint has them; those of one part are held.

    Args:
        reader: of the model.
        found: its parts, described in the gauge.
    """

    def __init__(self, reader: Readable, found: Sequence[Blueprint]) -> None:
        self.reader, self.part_of = reader, {name: part for part in found for name in part.parameters}
        self.part: Blueprint | None = None
        self.held: Mapping[str, Tensor] = {}

    @torch.no_grad()
    def __getitem__(self, name: str) -> Tensor:
        part = self.part_of[name]
        if part is not self.part:
            self.held = {}
            state = self.reader.read(part.names)
            state = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
            self.part, self.held = part, Alignment.identity(part).apply(part.stacked(state))
        return self.held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.part_of)

    def __len__(self) -> int:
        return len(self.part_of)


def together(model: Weightless) -> list[list[str]]:
    """Names of a state dict by what of the files they are made of.

    Args:
        model: whose.
    """
    found: dict[str, list[str]] = {}
    for name, held in model.names.items():
        found.setdefault(model.groups[held].made[0], []).append(name)
    return list(found.values())


def _of_experts(stacks: Stacks) -> Iterator[list[str]]:
    """The stacks that are made of one list of experts, which run one after the other."""
    for path in sorted(lists_of(stacks)):
        yield [name for name in stacks if name.startswith(f"{path}.")]


def _groups(model: Weightless) -> list[Group]:
    """The groups of a model's files, each once, in the order of its parameters."""
    found = {group.made[0]: group for group in (model.groups[held] for held in model.names.values())}
    return list(found.values())
