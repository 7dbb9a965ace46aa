"""The movement of an end model's statistics into the basis of its twin, a tensor at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import overload

import torch
from torch import Tensor

from fusionlab.asked import Asked
from fusionlab.statistics.regauged import Change, Regauged
from fusionlab.statistics.statistics import Activations, Grams, LinearMap
from fusionlab.symmetry import Alignment, SymmetryError
from fusionlab.symmetry.axes import Fixed, spaces_of
from fusionlab.types import State

# Matrices in float64 that moving a Gram matrix takes, the moved one among them.
MATRICES = 5


@dataclass(frozen=True)
class Movement:
    """The way of statistics from an end model to its twin (`fusionlab.statistics.transport.move`), tensor by tensor.

    Attributes:
        alignment: what turned the end model into its twin.
        shapes: of all parameters.
        twin: the twin's parameters, which outputs of linear maps are computed with; each may be read when it is asked
            for, as those of the end model.
        source: the end model's parameters, of which what the gauge changes is looked at; None for none.
    """

    alignment: Alignment
    shapes: Mapping[str, Sequence[int]]
    twin: State
    source: State | None

    @overload
    def of(self, statistics: Grams, basis: str) -> Grams: ...
    @overload
    def of(self, statistics: Activations, basis: str) -> Activations: ...
    def of(self, statistics: Grams | Activations, basis: str) -> Grams | Activations:
        """The twin's statistics, whose tensors are moved when they are asked for; the last one is held.

        Args:
            statistics: of the end model.
            basis: of the twin.

        Raises:
            SymmetryError: see there; whatever cannot be moved is refused here.
        """
        if self.alignment.filling:
            raise SymmetryError(
                "an alignment that fills a grown model changes what its units compute; gather on the twin"
            )
        if self.alignment.blueprint.gauge and self.source is None:
            raise SymmetryError(
                "an alignment that folds norms or clears biases moves statistics only with the end model's state"
            )
        groups = list(self._groups(statistics))
        if isinstance(statistics, Grams):
            return self._grams(statistics, groups, basis)
        return self._activations(statistics, groups, basis)

    def _grams(self, grams: Grams, groups: Sequence[_Group], basis: str) -> Grams:
        rows = dict(grams.rows)
        for group in groups:
            counts = self._exchanged(torch.tensor([grams.rows[inputs] for inputs in group.inputs]), group)
            rows.update(zip(group.inputs, counts.tolist(), strict=True))

        def moved(group: _Group) -> Tensor:
            found = [grams.matrices[inputs] for inputs in group.inputs]
            change = self._changed(group, found[0].dtype)
            doubled = (one.double() for one in found)
            changed = [one if change is None else change.of_gram(one) for one in doubled]
            matrix = self._exchanged(torch.stack(changed), group)
            del changed
            for _ in range(2):
                # R acts on one side of the matrix, then on the other; the column of ones stays.
                matrix = torch.cat([self._transform(matrix[:, :-1], group), matrix[:, -1:]], 1).mT
            return matrix.contiguous()

        read = _Read(groups, moved)
        return replace(grams, basis=basis, matrices=Asked(list(read.groups), read.__getitem__), rows=rows)

    def _activations(self, found: Activations, groups: Sequence[_Group], basis: str) -> Activations:
        def moved(group: _Group) -> Tensor:
            rows = torch.stack([found.inputs[weight].double() for weight in group.weights])
            if (change := self._changed(group, found.inputs[group.weights[0]].dtype)) is not None:
                rows = change.of_vectors(rows)
            return self._transform(self._exchanged(rows, group), group)

        read = _Read(groups, moved)

        def inputs(weight: str) -> Tensor:
            return read[found.maps[weight].inputs].to(found.inputs[weight].dtype)

        def outputs(weight: str) -> Tensor:
            linear, matrix = found.maps[weight], self.twin[weight].double()
            written = (matrix.T if linear.dim == 0 else matrix.flatten(1)) @ read[linear.inputs]
            if linear.bias is not None:
                written += self.twin[linear.bias].double()[:, None]
            return written.to(found.outputs[weight].dtype)

        # In the order of groups, so that all of one are made from what is held.
        groups_of = {inputs: place for place, inputs in enumerate(read.groups)}
        names = sorted(found.maps, key=lambda weight: groups_of[found.maps[weight].inputs])
        return replace(found, basis=basis, inputs=Asked(names, inputs), outputs=Asked(names, outputs))

    def _groups(self, statistics: Grams | Activations) -> Iterator[_Group]:
        """The inputs that are moved together, each in one group.

        Raises:
            SymmetryError: some that cannot be moved.
        """
        seen: set[str] = set()
        for name, weights in _by_parameter(statistics.maps, self.alignment):
            inputs = [statistics.maps[weight].inputs for weight in weights]
            if seen.issuperset(inputs):
                continue
            seen.update(inputs)
            if isinstance(statistics, Grams):
                dtype = statistics.matrices[inputs[0]].dtype
            else:
                found = [statistics.inputs[weight] for weight in weights]
                if len({one.shape for one in found}) > 1:
                    raise SymmetryError(f"{weights[0]!r} and its like read other samples; gather on the twin instead")
                dtype = found[0].dtype
            group = _Group(name, weights, inputs, statistics.maps[weights[0]].dim)
            if self._regauged is not None:
                self._regauged.check(name, self._whole_shape(group), dtype)
            yield group

    def _changed(self, group: _Group, dtype: torch.dtype) -> Change | None:
        """The effect of the gauge on the vectors that weights read; None where there is none."""
        return None if self._regauged is None else self._regauged.change(group.name, self._whole_shape(group), dtype)

    @cached_property
    def _regauged(self) -> Regauged | None:
        blueprint = self.alignment.blueprint
        return Regauged(blueprint, self.source) if self.source is not None and blueprint.gauge else None

    def _whole_shape(self, group: _Group) -> tuple[int, ...]:
        """The shape of the blueprint's parameter."""
        shape = self._shape(group)
        return shape if group.name not in self.alignment.blueprint.stacks else (len(group.weights), *shape)

    def _shape(self, group: _Group) -> tuple[int, ...]:
        """The shape of one weight."""
        return tuple(self.shapes[group.weights[0]])

    def _exchanged(self, tensor: Tensor, group: _Group) -> Tensor:
        """Facts about each expert, shape ``(experts, ...)``, in their new places; about other weights as they are."""
        if group.name not in self.alignment.blueprint.stacks:
            return tensor
        outer = self.alignment.blueprint.parameters[group.name][0]
        return self.alignment.transform(tensor, (outer, *(Fixed() for _ in tensor.shape[1:])))

    def _transform(self, rows: Tensor, group: _Group) -> Tensor:
        """Move vectors that weights read, shape ``(weights, features, any)``, as the reading axis says.

        Experts are in their new places already.
        """
        alignment, shape = self.alignment, self._shape(group)
        axes = alignment.blueprint.parameters[group.name]
        outer, own = axes[: len(axes) - len(shape)], axes[len(axes) - len(shape) :]
        last = group.dim + 1 if group.dim == 0 else len(shape)
        reading = tuple(axis.dual() for axis in own[group.dim : last])
        vectors = rows.reshape(*(len(rows) for _ in outer), *shape[group.dim : last], rows.shape[-1])
        moved = {space for axis in outer for space in spaces_of(axis)}
        inside = Alignment(alignment.blueprint, {n: e for n, e in alignment.elements.items() if n not in moved})
        return inside.transform(vectors, (*outer, *reading, Fixed())).reshape(rows.shape)


@dataclass(frozen=True)
class _Group:
    """Inputs of linear maps that are moved together.

    Attributes:
        name: of a blueprint's parameter, one weight or those of all experts.
        weights: that it is.
        inputs: what each of them reads.
        dim: their dimension that reads.
    """

    name: str
    weights: tuple[str, ...]
    inputs: Sequence[str]
    dim: int


class _Read:
    """Facts about what linear maps read, moved: those of one group are held.

    Args:
        groups: with every input in one of them.
        move: gives them for the inputs of a group, shape ``(inputs, ...)``.
    """

    def __init__(self, groups: Iterable[_Group], move: Callable[[_Group], Tensor]) -> None:
        self.groups, self.move = {inputs: group for group in groups for inputs in group.inputs}, move
        self.held: dict[str, Tensor] = {}

    def __getitem__(self, inputs: str) -> Tensor:
        if inputs not in self.held:
            self.held = {}
            group = self.groups[inputs]
            self.held = dict(zip(group.inputs, self.move(group), strict=True))
        return self.held[inputs]


def _by_parameter(maps: Mapping[str, LinearMap], alignment: Alignment) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The weights by the parameters of a blueprint: each by itself, or those of all experts together, in order.

    Raises:
        SymmetryError: statistics of some of the experts alone.
    """
    stacks = alignment.blueprint.stacks
    stack_of = {entry: name for name, entries in stacks.items() for entry in entries}
    found: dict[str, list[str]] = {}
    for weight in maps:
        found.setdefault(stack_of.get(weight, weight), []).append(weight)
    for name, weights in found.items():
        if missing := [entry for entry in stacks.get(name, ()) if entry not in maps]:
            raise SymmetryError(f"nothing is known of what {missing[0]!r} reads; gather on the twin instead")
        yield name, stacks.get(name, tuple(weights))
