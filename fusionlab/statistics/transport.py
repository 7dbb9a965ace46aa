"""Statistics of a matched twin from those of the end model, where that is exact: no second pass over the data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import overload

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.statistics.statistics import Activations, Grams, LinearMap, Statistics, basis_of
from fusionlab.symmetry import Alignment, SymmetryError
from fusionlab.symmetry.axes import Fixed
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
        SymmetryError: a fold that cannot be followed, or only at a loss of too many digits; gather on the twin then.
    """
    if not isinstance(statistics, Grams | Activations):
        raise InputError(
            f"{statistics.kind} statistics cannot be moved to another basis; expected them to be gathered on the twin"
        )
    if alignment.blueprint.folded and source_state is None:
        raise SymmetryError("an alignment that folds norms moves statistics only with the end model's state")
    if source_state is not None:
        statistics.check(source_state, "the end model")
    state = source_state if alignment.blueprint.folded else None
    if isinstance(statistics, Grams):
        return _move_grams(statistics, alignment, twin_state, state)
    return _move_activations(statistics, alignment, twin_state, state)


def _move_grams(grams: Grams, alignment: Alignment, twin: State, source: State | None) -> Grams:
    matrices: dict[str, Tensor] = {}
    for weight, linear in grams.maps.items():
        if linear.inputs in matrices:
            continue
        found = grams.matrices[linear.inputs]
        matrix = _fold_gram(found.double(), _fold_of(weight, alignment, source, found.dtype))
        for _ in range(2):
            # R acts on one side of the matrix, then on the other; the column of ones stays.
            moved = _transform(matrix[:-1], weight, linear, alignment, twin)
            matrix = torch.cat([moved, matrix[-1:]]).T
        matrices[linear.inputs] = matrix.contiguous()
    return replace(grams, basis=basis_of(twin), matrices=matrices)


def _move_activations(found: Activations, alignment: Alignment, twin: State, source: State | None) -> Activations:
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}
    shared: dict[str, Tensor] = {}
    for weight, linear in found.maps.items():
        if linear.inputs not in shared:
            rows = found.inputs[weight].double()
            if (folding := _fold_of(weight, alignment, source, found.inputs[weight].dtype)) is not None:
                rows = (rows - folding.shift[:, None]) / folding.gain[:, None]
            shared[linear.inputs] = _transform(rows, weight, linear, alignment, twin)
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


def _transform(rows: Tensor, weight: str, linear: LinearMap, alignment: Alignment, twin: State) -> Tensor:
    """Move vectors that a weight reads, shape ``(features, any)``, as its reading axis says."""
    axes, shape = alignment.blueprint.parameters[weight], twin[weight].shape
    last = linear.dim + 1 if linear.dim == 0 else len(shape)
    reading = tuple(axis.dual() for axis in axes[linear.dim : last])
    vectors = rows.reshape(*shape[linear.dim : last], rows.shape[1])
    return alignment.transform(vectors, (*reading, Fixed())).reshape(rows.shape)
