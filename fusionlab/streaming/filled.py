"""New entries of a model grown from files, taken from the larger model's files where that changes nothing.

The larger model is brought into the grown one's basis as in memory (`fusionlab.growing.filling`), by the matching of
models on the disk; what of it may be taken lies in a scratch folder then, in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from torch import Tensor

from fusionlab.checkpoints.weightless import Weightless
from fusionlab.growing.axes import Widening
from fusionlab.growing.filling import Filling, Kind, kinds_of
from fusionlab.matching.parts import Part, of_the_gauge
from fusionlab.matching.presets import preset
from fusionlab.streaming.coupled import coupled_bytes, coupled_memory, find_coupled, of_part
from fusionlab.streaming.grown import GrowingParts, Grown
from fusionlab.streaming.remade import InGauge, together
from fusionlab.streaming.running import Provide
from fusionlab.streaming.scratch import Scratch
from fusionlab.streaming.twins import PartReader
from fusionlab.symmetry import Blueprint
from fusionlab.symmetry.blueprint import FOLDED
from fusionlab.symmetry.parts import parts

Parameter = Callable[[str], Tensor]


class FillingParts:
    """A grown model with the larger one's numbers in entries that are new, made when they are asked for.

    Args:
        growing: the small model and the larger architecture.
        widening: what grows the one into the other.
        other: the larger model's class, without weights.
    """

    def __init__(self, growing: GrowingParts, widening: Widening, other: Weightless) -> None:
        self.growing, self.other = growing, other
        embedding = growing.embedding
        self.described = embedding.large.in_gauge((FOLDED,))
        self.new = {name: embedding.new(name, widening) for name in embedding.fresh}
        self.kinds: Mapping[Kind, list[str]] = kinds_of(growing.target.model, self.new, self.described)
        self.alike = [*together(growing.target), *together(other)]
        self.parts = parts(self.described, (), self.alike)
        self.part_of = {name: part for part in self.parts for name in part.parameters}
        own = other.model.state_dict()
        # A head of other labels stays as it is.
        self.fitting = {
            name
            for name, tensor in growing.target.model.state_dict().items()
            if name in own and own[name].shape == tensor.shape
        }

    @property
    def beside(self) -> int:
        """The bytes that filling takes on the disk at most, while models are matched and then while it is decided."""
        counts = {name: tensor.numel() for name, tensor in self.growing.target.model.state_dict().items()}
        options = preset("weights")
        matching = coupled_bytes(counts, self.described.in_gauge(options.gauge), options, torch.float64)
        taken = {name for names in self.kinds.values() for name in names}
        stacks = self.described.stacks
        return max(matching, 8 * sum(counts[entry] for name in taken for entry in stacks.get(name, (name,))))

    @property
    def memory(self) -> int:
        """About how many bytes growing and filling hold at most, beside torch itself."""
        counts = {name: tensor.numel() for name, tensor in self.growing.target.model.state_dict().items()}
        # Of matching in float32.
        return max(self.growing.memory(), 2 * coupled_memory(counts, *self._steps()))

    def _steps(self) -> tuple[Blueprint, list[Part]]:
        """The blueprint in the gauge that models are matched in, and the parts that they are brought into it by."""
        return of_the_gauge(self.described, preset("weights"), self.alike)

    def held(self, name: str) -> int:
        """About how many numbers of 4 bytes are held in memory for a parameter: its part, before folding and after."""
        part = self.part_of[self.growing.stack_of.get(name, name)]
        return 5 * sum(self.growing.embedding.fresh[other].numel() for other in part.parameters)

    @torch.no_grad()
    def brought(self, grown: Grown, other: PartReader, scratch: Scratch) -> dict[str, Tensor]:
        """The larger model's parameters in the grown one's basis, those of which something may be taken.

        Args:
            grown: the grown model's parameters.
            other: the larger model's files; read in float64.
            scratch: that these numbers lie in; those of the matching lay there before.

        Returns:
            By name in the blueprint, mapped from the disk, in float64.

        Raises:
            InputError: numbers that are NaN or infinite, or models that nothing is known of to match.
            OSError: the disk is full.
        """
        options = preset("weights")
        blueprint, steps = self._steps()
        options.select(blueprint)
        # Folded before it is matched, as in memory: where nothing is written to, the last bits decide how it is turned.
        folded = _Read(self.growing.target.names, self.entries(self._folded(grown)))
        sides = (_Other(other, grown, self.fitting), folded)
        with Scratch(scratch.folder / "matching") as matching:
            (into_one, gauge), _ = find_coupled((blueprint, steps), options, sides, matching)
        wanted = {name for names in self.kinds.values() for name in names}
        found: dict[str, Tensor] = {}
        for part in (step.blueprint for step in steps):
            if wanted.isdisjoint(part.parameters):
                continue
            moved = of_part(into_one, part).apply(sides[0].read(part.names))
            back = part.stacked(of_part(gauge, part).inverse().apply(moved))
            found.update({name: scratch.kept(back[name].double()) for name in part.parameters if name in wanted})
        return found

    def filling(self, grown: Grown, theirs: Parameter) -> Filling:
        """The parameters by the names of the blueprint; nothing is taken yet.

        Args:
            grown: the grown model's.
            theirs: gives the larger model's in the same basis.
        """
        return Filling(self._folded(grown), theirs, self.new)

    def entries(self, parameter: Parameter) -> Provide:
        """The parameters of a model by the names in its state dict.

        Args:
            parameter: gives them by the names of the blueprint, where experts of a list are one.
        """
        return _Entries(parameter, self.growing)

    def _folded(self, grown: Grown) -> Parameter:
        return InGauge(_Read(self.growing.target.names, grown), self.parts).__getitem__


class _Entries:
    """Parameters by the names in a state dict; a stack is held until another is asked for."""

    def __init__(self, parameter: Parameter, growing: GrowingParts) -> None:
        self.parameter, self.growing = parameter, growing
        self.held: tuple[str, Tensor] | None = None

    def __call__(self, name: str) -> Tensor:
        stack = self.growing.stack_of.get(name)
        if stack is None:
            return self.parameter(name)
        if self.held is None or self.held[0] != stack:
            self.held = None
            self.held = stack, self.parameter(stack)
        return self.held[1][self.growing.embedding.large.stacks[stack].index(name)]


class _Read:
    """A model whose parameters are made when they are asked for."""

    def __init__(self, names: Mapping[str, str], provide: Provide) -> None:
        self.names, self.provide = names, provide

    def read(self, names: Sequence[str]) -> dict[str, Tensor]:
        return {name: self.provide(name) for name in names}


class _Other:
    """The larger model's parameters; the grown one's where it has none of the shape."""

    def __init__(self, reader: PartReader, grown: Grown, fitting: Collection[str]) -> None:
        self.reader, self.grown, self.fitting, self.names = reader, grown, fitting, grown.growing.target.names

    def read(self, names: Sequence[str]) -> dict[str, Tensor]:
        own = self.reader.read([name for name in names if name in self.fitting])
        return {name: own[name] if name in own else self.grown(name) for name in names}
