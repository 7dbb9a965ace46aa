"""Merging the circuits of attention heads: Q^T K and O V are averaged, which do not depend on bases inside the head.

The circuits are those of Elhage et al., "A mathematical framework for transformer circuits" (2021).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from fusionlab.decompositions import svd
from fusionlab.errors import InputError
from fusionlab.merging.ingredients import Ingredients, WholeSurvey
from fusionlab.merging.registry import merge_method
from fusionlab.statistics import Grams
from fusionlab.symmetry import Blueprint
from fusionlab.symmetry.axes import Across, Along, Axis, Concat, Fixed, Per, Scaled, spaces_of
from fusionlab.symmetry.blueprint import Space
from fusionlab.symmetry.leaves import leaves
from fusionlab.symmetry.roles import Role
from fusionlab.symmetry.stacks import apart, entries_of, stacked
from fusionlab.types import State

Metric = Literal["frobenius", "gram"]
INSIDE_HEADS = (Role.QUERY_KEY, Role.VALUE_OUTPUT)


def _needs(metric: Metric, **_: object) -> tuple[str, ...]:
    return ("blueprint", "gram") if metric == "gram" else ("blueprint",)


def _refuse(_: Sequence[float], ridge: float, **__: object) -> None:
    if not ridge > 0:
        raise InputError(f"ridge is {ridge}; expected a number above 0")


def _circuits(survey: WholeSurvey, **_: Any) -> Mapping[str, list["Circuit"]]:
    """The circuits by the first of the parameters that lie along each."""
    blueprint = survey.ingredients.blueprint
    assert blueprint is not None
    found: dict[str, list[Circuit]] = {}
    for one in circuits(blueprint):
        found.setdefault(entries_of(one.names, blueprint.stacks)[0], []).append(one)
    return found


def _of_circuits(ingredients: Ingredients) -> list[list[str]]:
    """The parameters that lie along each circuit."""
    assert ingredients.blueprint is not None
    stacks = ingredients.blueprint.stacks
    return [entries_of(one.names, stacks) for found in ingredients.surveyed.values() for one in found]


# A part in float64, its factors and what is written; of each model its numbers, and in float64 with a factor.
@merge_method("circuit", needs=_needs, refuse=_refuse, survey=_circuits, together=_of_circuits, holds=(7, 6))
def circuit(ingredients: Ingredients, metric: Metric = "frobenius", ridge: float = 1e-3) -> dict[str, Tensor]:
    """Average each head's products over the models and project them back to the head's width; average all else.

    For one head with query Q, key K and their biases, ``[Q b_Q]^T [K b_K]`` says all about its scores; with value V and
    output O, ``O [V b_V]`` all about what it writes. The mean of a product over the models has a higher rank than the
    head is wide; its truncated singular value decomposition ``U S V^T`` is the nearest product of that rank (Eckart
    and Young, 1936), stored as the balanced factors ``S^1/2 U^T`` and ``S^1/2 V^T``. The mean product is
    ``sum_i w_i P_i^T D_i``, so a QR decomposition of the stacked P and D gives it without ever being formed.

    Which spaces are merged so: see `circuits`. Heads are merged index by index, so match them first. The result
    does not depend on the bases inside the heads; it has a basis of its own there.

    Args:
        ingredients: models, weights and blueprint; for ``metric="gram"`` Gram matrices.
        metric: in which sense the truncated product is nearest: ``frobenius``, of its entries; or ``gram``, of what it
            gives on the models' inputs (on the side that reads them; the other side of O V writes to the stream).
        ridge: added to every Gram matrix, relative to its mean diagonal entry, so that directions without data count
            a little; above 0.

    Returns:
        The merged state, each tensor in the first model's dtype; all arithmetic on heads is done in float64.

    Raises:
        InputError: an unknown metric, a ridge out of range, or integer buffers that differ.
    """
    assert ingredients.blueprint is not None
    grams = _InputMetric(ingredients.gathered(Grams) if metric == "gram" else [], ingredients.weights, ridge)
    blueprint = ingredients.blueprint
    by_name: Mapping[str, list[Circuit]] = ingredients.surveyed or _circuits(WholeSurvey(ingredients))
    own = [one for name in ingredients.states[0] for one in by_name.get(name, ())]
    stacks = {name: blueprint.stacks[name] for one in own for name in one.names if name in blueprint.stacks}
    merged = dict(stacked(ingredients.averaged(), stacks))
    ingredients = replace(ingredients, states=[stacked(state, stacks) for state in ingredients.states])
    for found in own:
        _merge(ingredients, found, grams, merged)
    return apart(merged, stacks)


@dataclass(frozen=True)
class Part:
    """Stretches of parameters that lie along a space in the same way: a weight's, or a weight's and its bias's.

    Attributes:
        names: the parameters.
        dims: of each the dimension along the space.
        position: of the stretch among all stretches of that dimension.
    """

    names: tuple[str, ...]
    dims: tuple[int, ...]
    position: int


@dataclass(frozen=True)
class Circuit:
    """A space inside heads, and what lies along it.

    Attributes:
        space: the space.
        primal: what transforms as G: query, or value.
        dual: what transforms as G^-T: key, or output.
    """

    space: Space
    primal: tuple[Part, ...]
    dual: tuple[Part, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that lie along it, each once."""
        return tuple(dict.fromkeys(name for part in (*self.primal, *self.dual) for name in part.names))


def circuits(blueprint: Blueprint) -> tuple[Circuit, ...]:
    """The spaces inside attention heads that a product describes in full; all others are left to the average.

    Where the whole group GL(d) acts, the function depends on what lies along the space through the products of primal
    and dual vectors alone (the first fundamental theorem of invariant theory), however many parameters there are:
    projections of relative positions, a value shared by several query heads. So the group is the condition: rotary
    positions leave a smaller one (then only the coordinates they do not turn are a circuit), and norms of queries and
    keys leave none. Left out as well is a space one of whose sides is empty, and one that meets itself or another
    circuit on another dimension of a parameter.
    """
    inside = [s for s in blueprint.spaces.values() if s.group.is_general_linear and s.role in INSIDE_HEADS]
    names = {space.name for space in inside}
    found = []
    for space in inside:
        sides: tuple[list[Part], list[Part]] = ([], [])
        alone = True
        for name, axes in blueprint.touching([space.name]).items():
            dims = [dim for dim, axis in enumerate(axes) if not names.isdisjoint(spaces_of(axis))]
            alone = alone and len(dims) == 1 and not isinstance(axes[dims[0]], Across)
            for position, stretch in enumerate(_stretches(axes[dims[0]])):
                if isinstance(stretch, Along) and stretch.space == space.name:
                    sides[stretch.is_dual].append(Part((name,), (dims[0],), position))
        if alone and sides[False] and sides[True]:
            found.append(Circuit(space, tuple(sides[False]), tuple(sides[True])))
    return tuple(found)


def _stretches(axis: Axis) -> Iterator[Along | Fixed]:
    """The innermost stretches of an axis, in the order in which `leaves` cuts them."""
    match axis:
        case Per() | Across() | Scaled():
            yield from _stretches(axis.inner)
        case Concat():
            for part in axis.parts:
                yield from _stretches(part)
        case _:
            yield axis


@dataclass(frozen=True)
class _InputMetric:
    """The metric of what a part reads; none without Gram matrices.

    Attributes:
        grams: of each model, or empty.
        weights: of each model.
        ridge: relative to the mean diagonal entry.
    """

    grams: Sequence[Grams]
    weights: Sequence[float]
    ridge: float

    def joined(self, parts: Sequence[Part]) -> list[Part]:
        """The parts, each bias joined to the weight with which it shares a Gram matrix."""
        found = list(parts)
        for part in parts if self.grams else ():
            linear = self.grams[0].maps.get(part.names[0])
            if linear is not None and linear.dim != part.dims[0] and linear.bias is not None:
                bias = next(p for p in parts if p.names == (linear.bias,) and p.position == part.position)
                found.remove(bias)
                found[found.index(part)] = Part((*part.names, *bias.names), (*part.dims, *bias.dims), part.position)
        return found

    def factor(self, part: Part) -> Tensor | None:
        """A lower triangular L with ``L L^T`` the mean Gram matrix of what a part reads; None where that is unknown."""
        linear = self.grams[0].maps.get(part.names[0]) if self.grams else None
        if linear is None or linear.dim == part.dims[0]:
            return None
        gram = sum(share * grams.mean(part.names[0]) for share, grams in zip(self.weights, self.grams, strict=True))
        assert isinstance(gram, Tensor)
        gram = gram if linear.bias is not None else gram[:-1, :-1]
        scale = float(gram.diagonal().mean())
        return torch.linalg.cholesky(gram + self.ridge * (scale or 1.0) * torch.eye(len(gram)).to(gram))


def _merge(ingredients: Ingredients, found: Circuit, metric: _InputMetric, merged: dict[str, Tensor]) -> None:
    """Replace what lies along one space in `merged` by factors of the truncated mean product."""
    blueprint, space = ingredients.blueprint, found.space
    assert blueprint is not None
    sides = [[(part, metric.factor(part)) for part in metric.joined(side)] for side in (found.primal, found.dual)]
    bases, cores = [], []
    for side in sides:
        stacked = [
            weight**0.5 * torch.cat([_read(state, blueprint, space, part, factor) for part, factor in side], -1)
            for state, weight in zip(ingredients.states, ingredients.weights, strict=True)
        ]
        basis, core = torch.linalg.qr(torch.cat(stacked, -2).mT)
        bases.append(basis)
        cores.append(core)
    left, values, right = svd(cores[0] @ cores[1].mT, full_matrices=False)
    for side, basis, vectors in zip(sides, bases, (left, right.mT), strict=True):
        kept = min(space.group.size, values.shape[-1])
        rows = (basis @ (vectors * values.sqrt().unsqueeze(-2))[..., :kept]).mT
        # A head that is wider than what it reads has no more to say than that.
        rows = torch.nn.functional.pad(rows, (0, 0, 0, space.group.size - kept))
        _write(merged, blueprint, space, side, rows)


def _read(state: State, blueprint: Blueprint, space: Space, part: Part, factor: Tensor | None) -> Tensor:
    """A part in its metric, float64, shape ``(*copies, size, features)``."""
    named = list(zip(part.names, part.dims, strict=True))
    joined = torch.cat([_view(_rows(state, *one), blueprint, space, *one, part.position) for one in named], -1)
    joined = joined if factor is None else joined @ factor.to(joined)
    return joined.flatten(len(space.copies) + 1)


def _write(
    merged: dict[str, Tensor],
    blueprint: Blueprint,
    space: Space,
    side: Sequence[tuple[Part, Tensor | None]],
    rows: Tensor,
) -> None:
    """Store all parts of a side: the inverse of `_read`, with the parts next to each other."""
    start = 0
    for part, factor in side:
        named = list(zip(part.names, part.dims, strict=True))
        buffers = [_rows(merged, *one) for one in named]
        views = [_view(b, blueprint, space, *one, part.position) for b, one in zip(buffers, named, strict=True)]
        features = [view.shape[-1] for view in views]
        between = views[0].shape[len(space.copies) + 1 : -1]
        length = between.numel() * sum(features)
        values = rows.narrow(-1, start, length).unflatten(-1, (*between, sum(features)))
        start += length
        if factor is not None:
            values = torch.linalg.solve_triangular(factor.to(values), values, upper=False, left=False)
        for (name, dim), buffer, view, value in zip(named, buffers, views, values.split(features, -1), strict=True):
            view.copy_(value)
            old = merged[name]
            moved = buffer.reshape(old.movedim(dim, 0).shape).movedim(0, dim)
            merged[name] = moved.to(old.dtype).contiguous()


def _rows(state: State, name: str, dim: int) -> Tensor:
    """One dimension of a parameter against all others: a copy in float64, whose views may be written to."""
    moved = state[name].movedim(dim, 0)
    return moved.reshape(moved.shape[0], -1).to(torch.float64, copy=True, memory_format=torch.contiguous_format)


def _view(rows: Tensor, blueprint: Blueprint, space: Space, name: str, dim: int, position: int) -> Tensor:
    """The stretch of a part within `_rows`, a view of shape ``(*copies, size, *other blocks, features)``."""
    leaf = list(leaves(blueprint.parameters[name][dim], rows, 0))[position]
    return leaf.by_copies(space.index)
