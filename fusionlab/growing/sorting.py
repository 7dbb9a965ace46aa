"""An alignment that brings what says most in each space to the front, so that a smaller space can hold it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor

from fusionlab.asked import Asked
from fusionlab.decompositions import svd
from fusionlab.errors import InputError
from fusionlab.growing.axes import STREAMS
from fusionlab.matching.gauge import balance, grams
from fusionlab.matching.groups import geometry
from fusionlab.symmetry import Alignment, Blueprint, Space
from fusionlab.symmetry.axes import Across, Along, Axis, Concat, Fixed, Per, Scaled, sides_of
from fusionlab.symmetry.groups import Invertible, OrthogonalFixingOnes, Permutation
from fusionlab.symmetry.groups.rotations import complement_of_ones
from fusionlab.symmetry.leaves import leaves
from fusionlab.symmetry.parts import parts


def smaller_sizes(small: Blueprint, large: Blueprint, names: Mapping[str, str]) -> dict[str, int]:
    """The spaces of a large model that are smaller in a small one, and their sizes there.

    Args:
        small: the small model's blueprint.
        large: the large one's, in the same gauge.
        names: by parameter of the small model, its name in the large one.

    Raises:
        InputError: heads, queries or experts that are laid out in another way.
    """
    found: dict[str, int] = {}
    for name, target in names.items():
        for ours, theirs in zip(small.parameters[name], large.parameters[target], strict=True):
            found.update(_pairs(ours, theirs, name))
    return {space: size for space, size in found.items() if size < large.spaces[space].group.size}


def to_the_front(state: Mapping[str, Tensor], blueprint: Blueprint, sizes: Mapping[str, int]) -> Alignment:
    """The alignment that brings a model into a basis whose first coordinates say most, space by space.

    Spaces that may be rotated: the principal directions of what is written to them, by weights (of heads in their
    balanced form, so that what is left out of a product of query and key, or value and output, is its smallest
    singular values: Eckart and Young, 1936). Units, heads and experts: those for which the lengths of what they read
    and of what they write have the largest product. What stays is as near to where it was as it can be.

    Args:
        state: the parameters, in float64 and in the gauge of the blueprint. Each is asked for by itself, and not kept,
            so that they may lie on the disk.
        blueprint: of the model.
        sizes: by space that will be cut, how many coordinates are kept.

    Raises:
        InputError: a space whose coordinates can be neither rotated nor ordered.
    """
    spaces = [blueprint.spaces[name] for name in sizes]
    for space in spaces:
        may_order = isinstance(space.group, Permutation) and space.role not in STREAMS
        if not may_order and not isinstance(space.group, Invertible):
            raise InputError(
                f"{space.name} is {space.group.size} wide and would be {sizes[space.name]}, and its coordinates cannot "
                f"be mixed ({space.group.meaning} alone change no function); expected a smaller model that is "
                f"{space.group.size} wide there, or untied embeddings (--untie) where tied ones are the reason"
            )
    streams = {space.name: _of_stream(state, blueprint, space, sizes[space.name]) for space in _streams(spaces)}
    # What heads read of coordinates that will be cut says nothing about them. Orthogonal groups act by a matrix and its
    # inverse's transpose alike, so that a projection acts as an element would.
    kept = {name: _projection(blueprint.spaces[name], sizes[name]) @ turn for name, turn in streams.items()}
    inner = _inside(_moved(state, Alignment(blueprint, kept)), blueprint, sizes)
    # Rotations of streams change none of the lengths that units and heads are ordered by.
    current = _moved(state, Alignment(blueprint, inner))
    ordered = [space for space in spaces if isinstance(space.group, Permutation)]
    orders = {space.name: _order(current, blueprint, space, sizes[space.name]) for space in ordered}
    found = Alignment(blueprint, streams | {name: turn for name, turn in inner.items() if name in sizes})
    # Those inside of others first, which are then moved with what they belong to.
    for space in reversed(ordered):
        found = Alignment(blueprint, {space.name: orders[space.name]}).compose(found)
    return found


def _streams(spaces: Iterable[Space]) -> list[Space]:
    return [space for space in spaces if space.role in STREAMS]


def _moved(state: Mapping[str, Tensor], alignment: Alignment) -> Mapping[str, Tensor]:
    """The parameters as an alignment moves them, each when it is asked for."""
    return Asked(list(state), lambda name: alignment.apply_to(name, state[name]))


def _of_stream(state: Mapping[str, Tensor], blueprint: Blueprint, space: Space, size: int) -> Tensor:
    """The rotation of a stream that brings the principal directions of what is written to it to the front."""
    writers = [
        name
        for name, axes in blueprint.touching([space.name]).items()
        if any((space.name, False) in sides_of(axis) for axis in axes)
    ]
    written, _ = grams(Asked(writers, state.__getitem__), blueprint, space)
    return _rotation(written, space, size)


def _inside(state: Mapping[str, Tensor], blueprint: Blueprint, sizes: Mapping[str, int]) -> dict[str, Tensor]:
    """The elements that balance what lies inside heads and bring its principal directions to the front.

    Args:
        state: the parameters, streams projected onto what is kept of them.
        blueprint: of the model.
        sizes: by space that will be cut, how many coordinates are kept.

    Returns:
        By space: those that are cut, and those of what is balanced with them or belongs to a head that may be cut.
    """
    balanced = {space.name for space in blueprint.spaces.values() if geometry(space.group).has_balance}
    turned = {
        name for name in sizes if not isinstance((space := blueprint.spaces[name]).group, Permutation)
        and space.role not in STREAMS
    }  # fmt: skip
    # The lengths that heads are ordered by depend on the basis inside of each; those of units on no factor.
    looked_at = turned | {
        name for name in balanced
        if not (space := blueprint.spaces[name]).group.is_factor and any(outer in sizes for outer in space.index)
    }  # fmt: skip
    found: dict[str, Tensor] = {}
    for part in parts(blueprint, turned | balanced) if looked_at else ():
        inside = [name for name in part.spaces if name in looked_at]
        if not inside:
            continue
        own = {name: state[name] for name in part.touching([n for n in part.spaces if n in turned | balanced])}
        alignment = balance(own, part)
        own |= {name: alignment.apply_to(name, tensor) for name, tensor in own.items()}
        turns = {}
        for space in (part.spaces[name] for name in inside if name in turned):
            written, read = grams(own, part, space)
            # What is written and never read says nothing, nor what is read and never written; a norm sees all of a
            # stream.
            values, vectors = torch.linalg.eigh(read)
            root = vectors * values.clamp(min=0).sqrt().unsqueeze(-2) @ vectors.mT
            turns[space.name] = _rotation(root @ written @ root, space, sizes[space.name])
        found |= Alignment(part, turns).compose(alignment).elements
    return found


def _rotation(written: Tensor, space: Space, size: int) -> Tensor:
    """Orthogonal matrices that bring the principal directions of a space to the front.

    Args:
        written: Gram matrices of what says something, shape ``(*copies, n, n)``.
        space: the space.
        size: how many coordinates are kept.

    Returns:
        Shape ``(*copies, n, n)``.
    """
    if not isinstance(space.group, OrthogonalFixingOnes):
        return _to_front(written, torch.eye(space.group.size, dtype=torch.float64), size)
    # Of the vectors with mean zero, those that end behind the first entries are the small model's.
    many = space.group.size
    inside = torch.zeros(many, size - 1, dtype=torch.float64)
    inside[:size] = complement_of_ones(size)
    ones = torch.full((many, 1), many**-0.5, dtype=torch.float64)
    whole, _ = torch.linalg.qr(torch.cat([ones, inside, torch.eye(many, dtype=torch.float64)[:, size:]], 1))
    target = whole[:, 1:] if many - size else complement_of_ones(many)
    return _to_front(written, torch.cat([inside, target[:, size - 1 :]], 1), size - 1) + 1 / many


def _projection(space: Space, size: int) -> Tensor:
    """The projection of a stream onto what is kept of it: its first entries, with mean zero where the group says so."""
    matrix = torch.zeros(space.group.size, space.group.size, dtype=torch.float64)
    matrix[:size, :size] = torch.eye(size, dtype=torch.float64)
    if isinstance(space.group, OrthogonalFixingOnes):
        matrix[:size, :size] -= 1 / size
    return matrix


def _to_front(written: Tensor, target: Tensor, size: int) -> Tensor:
    """The rotation that takes the principal directions within the span of `target` to its first columns.

    Args:
        written: Gram matrices, shape ``(*copies, n, n)``.
        target: orthonormal columns, shape ``(n, m)``.
        size: how many of them are kept.
    """
    _, vectors = torch.linalg.eigh(target.mT @ written @ target)
    # Within what is kept, and within the rest, the basis nearest to where it was.
    first, rest = (_nearest(part, rows) for part, rows in (
        (vectors[..., -size:], slice(None, size)), (vectors[..., :-size], slice(size, None)),
    ))  # fmt: skip
    return target @ torch.cat([first, rest], -1).mT @ target.mT


def _nearest(basis: Tensor, rows: slice) -> Tensor:
    """The basis of the same subspace that is nearest to some of the unit vectors (Schönemann, 1966)."""
    left, _, right = svd(basis[..., rows, :].mT)
    return basis @ left @ right


def _order(state: Mapping[str, Tensor], blueprint: Blueprint, space: Space, size: int) -> Tensor:
    """The order in which the `size` elements that say most come first, as they came; shape ``(*copies, n)``."""
    lengths: dict[tuple[str, bool], Tensor] = {}
    for name, axes in blueprint.touching([space.name]).items():
        for dim, axis in enumerate(axes):
            for leaf in leaves(axis, state[name].double(), dim):
                spaces = [*leaf.path, *(() if leaf.space is None else (leaf.space,))]
                if space.name in spaces:
                    kept = [spaces.index(one) for one in (*space.index, space.name)]
                    others = [d for d in range(leaf.view.ndim) if d not in kept]
                    square = leaf.view.square().permute(*kept, *others).flatten(len(kept)).sum(-1)
                    # Blocks in which nothing acts, as of a gate beside what it opens, run along their own space.
                    key = spaces[-1], leaf.is_dual
                    lengths[key] = lengths[key] + square if key in lengths else square
    score = torch.ones(*space.copies, space.group.size, dtype=torch.float64)
    for (inner, is_dual), length in lengths.items():
        # A number for each of them, as a router's for an expert, says nothing by itself.
        if inner != space.name or (inner, not is_dual) in lengths:
            score = score * length / length.mean().clamp(min=1e-300)
    kept_places = score.sort(dim=-1, descending=True, stable=True).indices[..., :size].sort(-1).values
    is_kept = torch.zeros_like(score).scatter(-1, kept_places, 1.0)
    return is_kept.sort(dim=-1, descending=True, stable=True).indices


def _pairs(ours: Axis, theirs: Axis, name: str) -> Iterator[tuple[str, int]]:
    """The spaces of a large model's axis, each with its size in the small model."""
    match ours, theirs:
        case Across() | Scaled(), Across() | Scaled() if type(ours) is type(theirs):
            yield from _pairs(ours.inner, theirs.inner, name)
        case Concat(), Concat():
            for one, other in zip(ours.parts, theirs.parts, strict=True):
                yield from _pairs(one, other, name)
        case Along(), Along():
            yield theirs.space, ours.size
        case Per(), Per():
            yield theirs.space, ours.count
            yield from _pairs(ours.inner, theirs.inner, name)
        case Fixed(), Fixed():
            return
        case _:
            raise InputError(
                f"{name!r} is divided into heads or experts in another way in the smaller model; expected as many "
                f"queries for each key-value head, and more than one of what there are several of"
            )
