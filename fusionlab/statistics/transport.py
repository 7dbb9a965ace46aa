"""Statistics of a matched twin from those of the end model, where that is exact: no second pass over the data."""

from __future__ import annotations

from dataclasses import replace
from typing import overload

from fusionlab.errors import InputError
from fusionlab.statistics.movement import Movement
from fusionlab.statistics.statistics import Activations, Grams, Statistics, basis_of
from fusionlab.symmetry import Alignment
from fusionlab.types import State


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
    column of ones makes exact for Gram matrices too. So it is where value biases were cleared, whose sum by attention
    weights is a constant in what the output reads.

    Args:
        statistics: of the end model.
        alignment: what turned the end model into its twin.
        twin_state: of the twin, the basis of what is returned.
        source_state: of the end model; needed where the alignment folds norms or clears biases.

    Returns:
        Statistics of the same kind. Gram matrices are in float64, activations in their own dtype, without gradients.

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
    if source_state is not None:
        statistics.check(source_state, "the end model")
    shapes = {name: tensor.shape for name, tensor in twin_state.items()}
    moved = Movement(alignment, shapes, twin_state, source_state).of(statistics, basis_of(twin_state))
    if isinstance(moved, Grams):
        return replace(moved, matrices=dict(moved.matrices))
    both = {weight: (moved.inputs[weight], moved.outputs[weight]) for weight in moved.inputs}
    inputs, outputs = ({weight: found[place] for weight, found in both.items()} for place in range(2))
    return replace(moved, inputs=inputs, outputs=outputs, gradients={})
