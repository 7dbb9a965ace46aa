"""Statistics of a matched twin from those of the end model, where that is exact: no second pass over the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import overload

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.statistics.statistics import Activations, Grams, LinearMap, Statistics, basis_of
from fusionlab.symmetry import Alignment, SymmetryError
from fusionlab.symmetry.axes import Fixed, spaces_of
from fusionlab.types import State

# How much rounding may grow when a norm's bias is subtracted again, relative to what is left.
NOTICEABLE = 1e-4


@overload
def move(statistics: Grams, alignment: Alignment, twin_state: State, source_state: State | None = None) -> Grams: ...
@overload
def move(
    statistics: Activations, alignment: Alignment, twin_state: State, source_state: State | None = None
) -> Activations: ...
def move(
    statistics: Statistics, alignment: Alignment, twin_state: State, source_state: State | None = None
) -> Statistics:
    """The statistics of a matched twin.

    What a linear map reads becomes ``R x`` by the axis that its weight reads along, so its Gram matrix becomes
    ``R G R^T``; what a twin's linear map writes follows from what it reads. An alignment of a folded blueprint folds
    first: where a norm with gain g and bias c was folded into its readers, they read ``(x - c) / g`` then, which the
    column of ones makes exact for Gram matrices too.

    Args:
        statistics: of the end model.
        alignment: what turned the end model into its twin.
        twin_state: of the twin, the basis of what is returned.
        source_state: of the end model; needed where the alignment folds norms.

    Returns:
        Statistics of the same kind. Gram matrices are in float64, activations in their own dtype.

    Raises:
        InputError: the diagonal of a Fisher matrix, which rotations mix with what is beside it; or a model that the
            statistics do not describe.
        SymmetryError: a fold that cannot be followed, or only at a loss of too many digits, or an alignment that fills
            a grown model; gather on the twin then.
    """
    if not isinstance(statistics, Grams | Activations):
        raise InputError(
            f"{statistics.kind} statistics cannot be moved to another basis; expected them to be gathered on the twin"
        )
    if alignment.filling:
        raise SymmetryError("an alignment that fills a grown model changes what its units compute; gather on the twin")
    if alignment.blueprint.folded and source_state is None:
        raise SymmetryError("an alignment that folds norms moves statistics only with the end model's state")
    if source_state is not None:
        statistics.check(source_state, "the end model")
    state = alignment.blueprint.stacked(source_state) if source_state and alignment.blueprint.folded else None
    if isinstance(statistics, Grams):
        return _move_grams(statistics, alignment, twin_state, state)
    return _move_activations(statistics, alignment, twin_state, state)


def _move_grams(grams: Grams, alignment: Alignment, twin: State, source: State | None) -> Grams:
    matrices: dict[str, Tensor] = {}
    rows = dict(grams.rows)
    for name, weights in _by_parameter(grams.maps, alignment):
        read = [grams.maps[weight].inputs for weight in weights]
        if all(inputs in matrices for inputs in read):
            continue
        found = [grams.matrices[inputs] for inputs in read]
        folding = _fold_of(name, alignment, source, found[0].dtype)
        matrix = torch.stack([_fold_gram(one.double(), folding) for one in found])
        counts = torch.tensor([grams.rows[inputs] for inputs in read])
        matrix, counts = (_exchanged(each, name, alignment) for each in (matrix, counts))
        for _ in range(2):
            # R acts on one side of the matrix, then on the other; the column of ones stays.
            moved = _transform(matrix[:, :-1], name, grams.maps[weights[0]], alignment, twin[weights[0]].shape)
            matrix = torch.cat([moved, matrix[:, -1:]], 1).mT
        matrices.update(zip(read, matrix.contiguous(), strict=True))
        rows.update(zip(read, counts.tolist(), strict=True))
    return replace(grams, basis=basis_of(twin), matrices=matrices, rows=rows)


def _move_activations(found: Activations, alignment: Alignment, twin: State, source: State | None) -> Activations:
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}
    shared: dict[str, Tensor] = {}
    for name, weights in _by_parameter(found.maps, alignment):
        read = [found.maps[weight].inputs for weight in weights]
        if not all(inputs in shared for inputs in read):
            inputs_of = [found.inputs[weight].double() for weight in weights]
            if len({one.shape for one in inputs_of}) > 1:
                raise SymmetryError(f"{weights[0]!r} and its like read other samples; gather on the twin instead")
            rows = torch.stack(inputs_of)
            if (folding := _fold_of(name, alignment, source, found.inputs[weights[0]].dtype)) is not None:
                rows = (rows - folding.shift[:, None]) / folding.gain[:, None]
            rows = _exchanged(rows, name, alignment)
            moved = _transform(rows, name, found.maps[weights[0]], alignment, twin[weights[0]].shape)
            shared.update(zip(read, moved, strict=True))
    for weight, linear in found.maps.items():
        inputs[weight] = shared[linear.inputs].to(found.inputs[weight].dtype)
        matrix = twin[weight].double()
        matrix = matrix.T if linear.dim == 0 else matrix.flatten(1)
        written = matrix @ shared[linear.inputs]
        if linear.bias is not None:
            written += twin[linear.bias].double()[:, None]
        outputs[weight] = written.to(found.outputs[weight].dtype)
    return replace(found, basis=basis_of(twin), inputs=inputs, outputs=outputs)


@dataclass(frozen=True)
class _Fold:
    """The effect of folding on a vector that a map reads: it becomes ``(x - shift) / gain``."""

    gain: Tensor
    shift: Tensor


def _fold_of(weight: str, alignment: Alignment, source: State | None, dtype: torch.dtype) -> _Fold | None:
    """The effect of folding on the vectors that a weight reads; None where there is none.

    Args:
        dtype: that the statistics were gathered in.

    Raises:
        SymmetryError: a weight only some of whose outputs read the norm, or a gain that is so small beside the bias
            that rounding would show.
    """
    found = [(norm, r) for norm in alignment.blueprint.norms for r in norm.readers if r.weight == weight]
    if source is None or not found:
        return None
    norm, reader = found[0]
    gain = source[norm.weight].double()
    # A norm that cannot hand its bias on keeps it, divided by the gain: then only the gain is folded.
    biases = alignment.blueprint.biases
    kept = norm.bias is None or norm.padded or any(other.weight not in biases for other in norm.readers)
    shift = torch.zeros_like(gain) if kept or norm.bias is None else source[norm.bias].double()
    grows = float((1 + (shift / gain).square()).nan_to_num(nan=torch.inf).max()) * torch.finfo(dtype).eps
    if len(found) > 1 or reader.rows is not None or bool((gain == 0).any()) or grows > NOTICEABLE:
        raise SymmetryError(f"what {weight!r} reads cannot be followed through folding; gather on the twin instead")
    # Several tokens' vectors may be read side by side.
    copies = source[weight].shape[reader.dim] // len(gain)
    return _Fold(gain.repeat(copies), shift.repeat(copies))


def _fold_gram(matrix: Tensor, folding: _Fold | None) -> Tensor:
    """``M G M^T`` with M the affine map ``(x, 1) -> ((x - c) / g, 1)``."""
    if folding is None:
        return matrix
    change = torch.diag(torch.cat([1 / folding.gain, torch.ones_like(folding.gain[:1])]))
    change[:-1, -1] = -folding.shift / folding.gain
    return change @ matrix @ change.T


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


def _exchanged(tensor: Tensor, name: str, alignment: Alignment) -> Tensor:
    """All that is known of each expert, shape ``(experts, ...)``, in their new places; of other parameters as it is."""
    if name not in alignment.blueprint.stacks:
        return tensor
    outer = alignment.blueprint.parameters[name][0]
    return alignment.transform(tensor, (outer, *(Fixed() for _ in tensor.shape[1:])))


def _transform(rows: Tensor, name: str, linear: LinearMap, alignment: Alignment, shape: torch.Size) -> Tensor:
    """Move vectors that weights read, shape ``(weights, features, any)``, as the reading axis says.

    Experts are in their new places already.

    Args:
        name: of the parameter that the weights are: of one, or of those of all experts.
        shape: of one weight.
    """
    axes = alignment.blueprint.parameters[name]
    outer, own = axes[: len(axes) - len(shape)], axes[len(axes) - len(shape) :]
    last = linear.dim + 1 if linear.dim == 0 else len(shape)
    reading = tuple(axis.dual() for axis in own[linear.dim : last])
    vectors = rows.reshape(*(len(rows) for _ in outer), *shape[linear.dim : last], rows.shape[-1])
    moved = {space for axis in outer for space in spaces_of(axis)}
    inside = Alignment(alignment.blueprint, {n: e for n, e in alignment.elements.items() if n not in moved})
    return inside.transform(vectors, (*outer, *reading, Fixed())).reshape(rows.shape)
