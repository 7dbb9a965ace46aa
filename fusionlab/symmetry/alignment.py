"""Alignments: one element of the symmetry for every space, applied to models, inverted, composed, saved."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TypeVar, overload

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from fusionlab.symmetry.axes import (
    Across,
    Along,
    Axis,
    Concat,
    Fixed,
    Per,
    Scaled,
    refolded,
    spaces_of,
    unfolded,
    within,
)
from fusionlab.symmetry.biases import clear_biases
from fusionlab.symmetry.blueprint import Blueprint, Space, SymmetryError
from fusionlab.symmetry.folding import fold
from fusionlab.symmetry.groups import Permutation
from fusionlab.symmetry.html import html_table
from fusionlab.symmetry.leftovers import forget
from fusionlab.symmetry.stacks import apart, entries_of
from fusionlab.symmetry.unseen import filled_state
from fusionlab.symmetry.wrappers import read_model, unwrapped

Model = TypeVar("Model", bound=nn.Module)
# The entry of a file that says what it belongs to.
_BELONGS = "alignment"
# Before the names of parameters in a file, for what is put into a model first.
_FILLING = "filling: "


@dataclass(frozen=True)
class Alignment:
    """The change of an end model into its matched twin: the same function in another basis.

    An alignment of a folded blueprint (`Blueprint.after_folding`) folds a model before it acts on it; a folded model
    stays as it is. Its inverse brings back the folded model. The same goes for `Blueprint.without_biases`.

    Attributes:
        blueprint: the spaces and axes it acts through.
        elements: by space, one tensor (see `fusionlab.symmetry.groups`); a space left out keeps its basis.
        filling: by parameter, numbers that are put into a grown model before the elements act, where it holds nothing
            that its function depends on (see `fusionlab.symmetry.unseen`); NaN for all that stays.
    """

    blueprint: Blueprint
    elements: Mapping[str, Tensor]
    filling: Mapping[str, Tensor] = field(default_factory=dict)

    def __repr__(self) -> str:
        moved = f"{len(self.elements)} of {len(self.blueprint.spaces)} spaces"
        return f"Alignment({self.blueprint.architecture}, {moved} changed)"

    def _repr_html_(self) -> str:
        rows = []
        for (role, group), spaces in self.blueprint.by_role().items():
            changed = [space for space in spaces if space.name in self.elements]
            rows.append((role, group, len(spaces), len(changed)))
        return html_table(repr(self), ("role", "group", "spaces", "changed"), rows)

    @staticmethod
    def identity(blueprint: Blueprint) -> Alignment:
        """The alignment that changes nothing."""
        return Alignment(blueprint, {})

    @staticmethod
    def random(blueprint: Blueprint, generator: torch.Generator | None = None) -> Alignment:
        """A random element of every space's group: same function, unrecognisable parameters."""
        return Alignment(blueprint, {name: s.group.random(s.copies, generator) for name, s in blueprint.spaces.items()})

    def element(self, name: str) -> Tensor:
        """The element of one space, the identity where none is set."""
        space = self.blueprint.spaces[name]
        return self.elements[name] if name in self.elements else space.group.identity(space.copies)

    def inverse(self) -> Alignment:
        """The alignment that undoes this one; what was filled stays, since nothing depends on it."""
        undone: dict[str, Tensor] = {}
        for name, space in self.blueprint.spaces.items():
            if name in self.elements:
                # A copy was moved to the place its index's permutation gave it; its inverse acts at the old place.
                undone[name] = _move_copies(self.blueprint, space, space.group.inverse(self.elements[name]), undone)
        return Alignment(self.blueprint, undone)

    def compose(self, first: Alignment) -> Alignment:
        """The alignment that acts as `first`, then as this one.

        Raises:
            SymmetryError: the two belong to different blueprints, or this one fills what `first` has moved.
        """
        if first.blueprint is not self.blueprint and first.blueprint.fingerprint != self.blueprint.fingerprint:
            raise SymmetryError("two alignments of different architectures cannot be composed")
        if self.filling:
            raise SymmetryError("an alignment that fills a grown model acts on that model; expected it to act first")
        composed = dict(self.elements)
        for name, element in first.elements.items():
            space = self.blueprint.spaces[name]
            moved = _move_copies(self.blueprint, space, element, self.elements)
            if name in self.elements:
                moved = space.group.compose(self.elements[name], moved.to(self.elements[name].device))
            composed[name] = moved
        return Alignment(self.blueprint, composed, first.filling)

    @overload
    def apply(self, model: Model) -> Model: ...
    @overload
    def apply(self, model: Mapping[str, Tensor]) -> dict[str, Tensor]: ...
    @overload
    def apply(self, model: str | PathLike[str]) -> nn.Module: ...
    @torch.no_grad()
    def apply(self, model: nn.Module | Mapping[str, Tensor] | str | PathLike[str]) -> nn.Module | dict[str, Tensor]:
        """The matched twin of a model.

        Args:
            model: a module, the path or hub id of a checkpoint, or parameters by name (tensors, or anything that gives
                tensors, memory-mapped shards for instance). It is not modified.

        Returns:
            A new module of the same class, or a new dict. Every parameter keeps its dtype; the arithmetic is done
            in float32 or better. A parameter that no element touches is the same tensor in the dict.

        Raises:
            SymmetryError: the model does not fit the blueprint, or is none.
            InputError: a checkpoint that cannot be read.
        """
        if isinstance(model, str | PathLike) and (read := read_model(model)) is not None:
            return self.apply(read)
        if isinstance(model, nn.Module):
            forget(model)
            twin = copy.deepcopy(unwrapped(model))
            twin.load_state_dict(self.apply(unwrapped(model).state_dict()))
            return twin
        if not isinstance(model, Mapping):
            given = f"a path ({model})" if isinstance(model, str | PathLike) else f"of type {type(model).__name__}"
            raise SymmetryError(
                f"the model to apply an alignment to is {given}; expected a module, as fusionlab.load reads one, or "
                f"its parameters by name"
            )
        self.blueprint.check(model)
        state = self.blueprint.stacked(model)
        if self.blueprint.folded:
            state = fold(state, self.blueprint)
        if self.blueprint.unbiased:
            state = clear_biases(state, self.blueprint)
        state = filled_state(state, self.filling)
        touched = self.blueprint.touching(self.elements)
        moved = {name: self.apply_to(name, state[name]) if name in touched else state[name] for name in state}
        if model.keys() == moved.keys():
            return moved
        named = apart(moved, self.blueprint.stacks)
        # What is written must not share memory with what stands beside it.
        inside = set(entries_of(self.blueprint.stacks, self.blueprint.stacks))
        return {name: named[name].clone() if name in inside else named[name] for name in model}

    def apply_to(self, name: str, tensor: Tensor) -> Tensor:
        """The transformed parameter `name`, or stack of parameters."""
        return self.transform(tensor, self.blueprint.parameters[name])

    def transform(self, tensor: Tensor, axes: tuple[Axis, ...]) -> Tensor:
        """Act on a tensor along its axes: a parameter's, or those of an output of the model.

        Differentiable in the tensor and in the elements.

        Returns:
            A tensor of the same shape and dtype; the arithmetic is done in float32 or better.
        """
        exact = all(isinstance(self.blueprint.spaces[s].group, Permutation) for s in self._acting(axes))
        out = tensor if exact else tensor.to(torch.promote_types(tensor.dtype, torch.float32))
        # What is indexed by the blocks of another dimension acts after those have been permuted.
        for dim in sorted(range(len(axes)), key=lambda dim: isinstance(axes[dim], Across)):
            axis = axes[dim]
            if any(space in self.elements for space in spaces_of(axis)):
                rows, path = unfolded(axis, out, dim)
                out = refolded(axis, self._act(within(axis), rows, path), out.shape, dim)
        return out.to(tensor.dtype).contiguous()

    def _acting(self, axes: tuple[Axis, ...]) -> set[str]:
        return {space for axis in axes for space in spaces_of(axis) if space in self.elements}

    def _act(self, axis: Axis, vectors: Tensor, path: tuple[str, ...]) -> Tensor:
        """Act on ``vectors`` of shape ``(*counts of path, size, features)`` along one axis."""
        match axis:
            case Fixed():
                return vectors
            case Along():
                if axis.space not in self.elements:
                    return vectors
                space = self.blueprint.spaces[axis.space]
                element = _broadcast(self.elements[axis.space], space, path)
                return space.group.act(element, vectors, axis.is_dual)
            case Per():
                blocks = vectors.unflatten(-2, (axis.count, -1))
                if axis.space in self.elements:
                    space = self.blueprint.spaces[axis.space]
                    order = _broadcast(self.elements[axis.space], space, path)
                    blocks = space.group.act(order, blocks.flatten(-2)).unflatten(-1, blocks.shape[-2:])
                return self._act(axis.inner, blocks, (*path, axis.space)).flatten(-3, -2)
            case Concat():
                pieces = vectors.split(axis.sizes(vectors.shape[-2]), dim=-2)
                return torch.cat(
                    [self._act(part, piece, path) for part, piece in zip(axis.parts, pieces, strict=True)], -2
                )
            case Scaled():
                if axis.space in self.elements:
                    factor = _broadcast(self.elements[axis.space], self.blueprint.spaces[axis.space], path)
                    vectors = factor.double().pow(axis.power).to(vectors).unsqueeze(-1) * vectors
                return self._act(axis.inner, vectors, path)
            case Across():
                raise TypeError("an axis across dimensions stands inside of another")

    def save(self, path: str | Path) -> None:
        """Write the elements as safetensors, with the fingerprint of the blueprint they belong to."""
        belongs = {"architecture": self.blueprint.architecture, "blueprint": self.blueprint.fingerprint}
        # In one entry, since the library writes several in an order that differs from process to process.
        said = {_BELONGS: json.dumps(belongs)}
        tensors = {**self.elements, **{f"{_FILLING}{name}": tensor for name, tensor in self.filling.items()}}
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, said)

    @staticmethod
    def load(path: str | Path, blueprint: Blueprint) -> Alignment:
        """Read an alignment for models of `blueprint`.

        Raises:
            SymmetryError: the file is unreadable, belongs to another blueprint or holds no group elements.
        """
        try:
            with safe_open(path, framework="pt") as file:
                metadata = _belonging(file.metadata() or {})
                elements = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        except (OSError, SafetensorError) as error:
            raise SymmetryError(f"{path} is not a readable alignment: {error}") from error
        described = [b for b in (blueprint, blueprint.after_folding) if b is not None]
        known = [*described, *(b.without_biases() for b in described)]
        fitting = [b for b in known if b.fingerprint == metadata.get("blueprint")]
        if not fitting:
            raise SymmetryError(
                f"{path} is an alignment of another {metadata.get('architecture', 'kind of')} model, "
                f"not of this {blueprint.architecture} model"
            )
        blueprint = fitting[0]
        filling = {name.removeprefix(_FILLING): elements.pop(name) for name in [*elements] if name.startswith(_FILLING)}
        if unknown := filling.keys() - blueprint.parameters.keys():
            raise SymmetryError(f"{path} fills {min(unknown)!r}, which no {blueprint.architecture} model has")
        for name, element in elements.items():
            if name not in blueprint.spaces:
                raise SymmetryError(f"{path} holds {name!r}, which is no space of a {blueprint.architecture} model")
            space = blueprint.spaces[name]
            if (expected := space.group.check(element, space.copies)) is not None:
                raise SymmetryError(f"{path} holds no element of {space.group} for {name!r}: expected {expected}")
        return Alignment(blueprint, elements, filling)


def _belonging(metadata: Mapping[str, str]) -> Mapping[str, str]:
    """The architecture and the fingerprint in a file; files of earlier versions have them as entries of their own."""
    if _BELONGS not in metadata:
        return metadata
    try:
        found = json.loads(metadata[_BELONGS])
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _broadcast(element: Tensor, space: Space, path: tuple[str, ...]) -> Tensor:
    """Give an element a dimension of length 1 for each block on the path that does not index its space."""
    for position, outer in enumerate(path):
        if outer not in space.index:
            element = element.unsqueeze(position)
    return element


def _move_copies(blueprint: Blueprint, space: Space, element: Tensor, permutations: Mapping[str, Tensor]) -> Tensor:
    """Reorder the copies of one space's element as the permutations of the spaces that index it say."""
    for position, outer in enumerate(space.index):
        if outer in permutations:
            order = _broadcast(permutations[outer], blueprint.spaces[outer], space.index[:position])
            order = order.reshape(*order.shape, *[1] * (element.ndim - position - 1))
            element = element.take_along_dim(order.to(element.device), position)
    return element
