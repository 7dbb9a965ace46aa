"""The blueprint of a model: inferred, or written down where inference cannot see what there is."""

from collections.abc import Mapping

from torch import Tensor, nn

from fusionlab.symmetry.architectures import DESCRIBED
from fusionlab.symmetry.architectures.descriptions import architecture_name
from fusionlab.symmetry.blueprint import Blueprint
from fusionlab.symmetry.infer.models import inferred, was_asked_for
from fusionlab.symmetry.wrappers import unwrapped


def blueprint(
    model: nn.Module, example_inputs: Mapping[str, Tensor] | None = None, *, folded: bool = False
) -> Blueprint:
    """The blueprint of a model: its spaces, the axes of its parameters, and what they do not cover.

    The model is traced and its symmetry inferred, which takes seconds the first time; see `fusionlab.symmetry.infer`,
    and `fusionlab.symmetry.infer.kept` for where later processes find it. A few architectures are described in
    `fusionlab.symmetry.architectures` instead.

    Args:
        model: any module.
        example_inputs: a batch of at least two by the names of the forward's arguments, in their order, or one tensor
            alone; infers the symmetry from the
            model itself, whatever is described, for this and all later calls. A module of one's own needs them once in
            a process.
        folded: describe the model as `fusionlab.symmetry.folding.fold` leaves it.

    Raises:
        SymmetryError: the model's parameters are not those that its config promises, its inputs are unknown, or it
            cannot be traced.
    """
    model = unwrapped(model)
    name = architecture_name(getattr(model, "config", model), type(model).__name__)
    if example_inputs is None and name in DESCRIBED and not was_asked_for(model):
        return DESCRIBED.blueprint(model, folded)
    found = inferred(model, example_inputs)
    found.check(model.state_dict())
    return found.after_folding if folded and found.after_folding is not None else found
