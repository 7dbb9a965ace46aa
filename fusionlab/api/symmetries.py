"""The symmetry of a model in one call."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from fusionlab.api.given import Source, module_of
from fusionlab.symmetry import Blueprint
from fusionlab.symmetry import blueprint as blueprint_of


def blueprint(
    model: nn.Module | Source, example_inputs: Mapping[str, Tensor] | None = None, *, folded: bool = False
) -> Blueprint:
    """The blueprint of a model: its spaces, the axes of its parameters, and what they do not cover.

    The model is traced and its symmetry inferred, which takes seconds the first time; see `fusionlab.symmetry.infer`,
    and `fusionlab.symmetry.infer.kept` for where later processes find it. A few architectures are described in
    `fusionlab.symmetry.architectures` instead.

    Args:
        model: any module, or the path or hub id of a checkpoint; not modified.
        example_inputs: a batch of at least two by the names of the forward's arguments; infers the symmetry from the
            model itself, whatever is described, for this and all later calls. A module of one's own needs them once in
            a process.
        folded: describe the model as `fusionlab.symmetry.folding.fold` leaves it.

    Raises:
        InputError: something that is no model, or a checkpoint that cannot be read.
        SymmetryError: the model's parameters are not those that its config promises, its inputs are unknown, or it
            cannot be traced.
    """
    module: nn.Module = module_of(model, "model")
    return blueprint_of(module, example_inputs, folded=folded)
