"""Units: where the exchangeable features of every space lie in a model's parameters, and how a map moves them.

A unit is one coordinate of a space: a hidden unit of a feed-forward layer, a coordinate of a head (all heads of a layer
together have heads times width of them), a feature of the residual stream.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor

from fusionlab.symmetry import Blueprint, Space
from fusionlab.symmetry.axes import Across, spaces_of, within
from fusionlab.symmetry.leaves import Leaf, leaves
from fusionlab.symmetry.roles import Role

Key = TypeVar("Key", bound=Hashable)


# What is permuted as a whole: what lies inside of it is.
_WHOLE = (Role.HEADS, Role.QUERIES, Role.GROUPS, Role.EXPERTS)


@dataclass(frozen=True)
class Site:
    """One stretch of one dimension of one parameter along which units of a space lie.

    Attributes:
        units: the space's name; with a star for the second side of a space that is written on two sides, and each
            has a map of its own.
        parameter: its name.
        dim: the dimension.
        index: positions on that dimension, shape ``(units, rest)``: `rest` positions belong to each unit.
        written: whether the parameter writes to the units, or is a vector along them; else it reads them.
        second: whether this is the dual one of two written sides (keys beside queries).
    """

    units: str
    parameter: str
    dim: int
    index: Tensor
    written: bool
    second: bool = False

    def rows(self, tensor: Tensor) -> Tensor:
        """The values that belong to each unit, shape ``(units, features)``."""
        return tensor.movedim(self.dim, 0)[self.index].flatten(1)

    def put(self, tensor: Tensor, rows: Tensor) -> Tensor:
        """The tensor with other rows, given as `rows` returns them."""
        moved = tensor.movedim(self.dim, 0).clone()
        moved[self.index] = rows.reshape(*self.index.shape, *moved.shape[1:])
        return moved.movedim(0, self.dim)


@dataclass(frozen=True)
class Sites:
    """The sites of all parameters of a model, found by what is asked of them.

    Attributes:
        of: by parameter, in the blueprint's order; parameters without sites are left out.
        shapes: of the parameters.
    """

    of: Mapping[str, Sequence[Site]]
    shapes: Mapping[str, torch.Size]

    @cached_property
    def written(self) -> Mapping[str, list[Site]]:
        """By units, the sites that are written."""
        return self._by(lambda site: site.units if site.written else None)

    @cached_property
    def read(self) -> Mapping[str, list[Site]]:
        """By units, the sites that read them."""
        return self._by(lambda site: None if site.written else site.units)

    @cached_property
    def in_module(self) -> Mapping[tuple[str, str], list[Site]]:
        """By units and the module that owns their parameters, the sites that are written."""
        return self._by(lambda site: (site.units, module_of(site.parameter)) if site.written else None)

    def is_table(self, name: str) -> bool:
        """True if a parameter is no vector."""
        return len(self.shapes[name]) > 1

    def is_embedding(self, name: str) -> bool:
        """True if a parameter writes without reading from anything that is transported: tokens, positions, patches."""
        return self.is_table(name) and all(site.written for site in self.of[name])

    def _by(self, key: Callable[[Site], Key | None]) -> defaultdict[Key, list[Site]]:
        found: defaultdict[Key, list[Site]] = defaultdict(list)
        for sites in self.of.values():
            for site in sites:
                if (at := key(site)) is not None:
                    found[at].append(site)
        return found


def module_of(parameter: str) -> str:
    """The module that owns a parameter."""
    return parameter.rpartition(".")[0]


def find_sites(blueprint: Blueprint, shapes: Mapping[str, torch.Size], one_map: bool) -> dict[str, list[Site]]:
    """The sites of every parameter, in the blueprint's order, without parameters that have none.

    Spaces whose symmetry holds no permutations of their units (planes of rotary positions) have no sites.

    Args:
        blueprint: of the model.
        shapes: of its parameters.
        one_map: whether both sides of a space that is written on two sides (queries and keys) share a map.
    """
    owner = dict(_owners(blueprint))
    found = {
        name: [site for dim in range(len(axes)) for site in _on_dimension(blueprint, owner, shapes[name], name, dim)]
        for name, axes in blueprint.parameters.items()
    }
    _orient(found)
    # Gains of norms over queries and keys are scaled inversely; what the projections write to says if there are sides.
    tables = [site for name, sites in found.items() for site in sites if site.written and len(shapes[name]) > 1]
    both = [{site.units for site in tables if site.second == second} for second in (False, True)]
    two_sided = both[0] & both[1]

    def named(site: Site) -> Site:
        second = site.second and site.units in two_sided
        return replace(site, second=second, units=f"{site.units}*" if second and not one_map else site.units)

    return {name: [named(site) for site in sites] for name, sites in found.items() if sites}


def _orient(found: dict[str, list[Site]]) -> None:
    """Turn round units that nothing writes to: a space and its dual are one symmetry, so it may lie on either."""
    written = {site.units for sites in found.values() for site in sites if site.written}
    for name, sites in found.items():
        if not any(site.written for site in sites):
            found[name] = [replace(site, written=site.units not in written) for site in sites]


def _owners(blueprint: Blueprint) -> Iterator[tuple[str, str]]:
    """Spaces that units lie along, and whose units these are.

    Whole heads, groups and experts are no units. Units whose copies lie along another dimension have no place of their
    own on theirs, so they are left out.
    """
    scattered = {
        name
        for axes in blueprint.parameters.values()
        for axis in axes
        if isinstance(axis, Across)
        for name in spaces_of(axis)
        if not set(axis.spaces).isdisjoint(blueprint.spaces[name].index)
    }
    inside: dict[str, list[Space]] = {name: [] for name in blueprint.spaces}
    for space in blueprint.spaces.values():
        for outer in space.index:
            inside[outer].append(space)
    for name, space in blueprint.spaces.items():
        alone = scattered.isdisjoint({name, *(inner.name for inner in inside[name])})
        is_unit = space.role not in _WHOLE and space.group.has_permutations
        if alone and is_unit and all(inner.group.is_factor for inner in inside[name]):
            yield name, name
            yield from ((inner.name, name) for inner in inside[name])


def _on_dimension(
    blueprint: Blueprint, owner: Mapping[str, str], shape: torch.Size, name: str, dim: int
) -> Iterator[Site]:
    axes = blueprint.parameters[name]
    positions = [list(leaves(within(axis), torch.arange(length), 0)) for axis, length in zip(axes, shape, strict=True)]
    # A linear map writes along a primal dimension. Keys are dual and written too: nothing but the product reads them.
    primal = [any(leaf.space in owner and not leaf.is_dual for leaf in found) for found in positions]
    writes = len(shape) == 1 or (primal[dim] and dim == primal.index(True))
    for leaf in positions[dim]:
        if leaf.space is not None and leaf.space in owner:
            space = blueprint.spaces[leaf.space]
            written = writes or space.role == Role.QUERY_KEY
            # A layer scale's factor is dual beside what writes through it, and of the same side.
            second = written and leaf.is_dual and space.role not in (Role.RESIDUAL_SCALE, Role.UNIT_SCALE)
            units = blueprint.spaces[owner[space.name]]
            yield Site(units.name, name, dim, _by_unit(leaf, units), written, second)


def _by_unit(leaf: Leaf, units: Space) -> Tensor:
    """A leaf of positions as ``(units, rest)``: blocks that do not index the units are further features."""
    # A factor of each unit runs along the unit's block, and may have more copies than there are units.
    blocks = units.index if leaf.space == units.name else (*units.index, units.name)
    return leaf.by_copies(blocks).flatten(0, len(units.index)).flatten(1)
