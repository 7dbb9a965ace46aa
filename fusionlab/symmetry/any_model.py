"""The blueprint of a model: written down where its architecture is described, inferred where it is not."""

from collections.abc import Mapping

from torch import Tensor, nn

from fusionlab.symmetry import architectures
from fusionlab.symmetry.blueprint import Blueprint
from fusionlab.symmetry.infer.models import inferred, was_asked_for


def blueprint(
    model: nn.Module, example_inputs: Mapping[str, Tensor] | None = None, *, folded: bool = False
) -> Blueprint:
    """The blueprint of a model: its spaces, the axes of its parameters, and what they do not cover.

    An architecture that nobody described is traced and its symmetry inferred, which takes seconds the first time; see
    `fusionlab.symmetry.infer`, and `fusionlab.symmetry.infer.kept` for where later processes find it.

    Args:
        model: any module.
        example_inputs: a batch of at least two by the names of the forward's arguments; infers the symmetry from the
            model itself, whatever is described, for this and all later calls. A module of one's own needs them once in
            a process.
        folded: describe the model as `fusionlab.symmetry.folding.fold` leaves it.

    Raises:
        SymmetryError: the model's parameters are not those that its config promises, its inputs are unknown, or it
            cannot be traced.
    """
    name = architectures.architecture_name(getattr(model, "config", model), type(model).__name__)
    is_described = name in architectures.known_architectures()
    if example_inputs is None and is_described and not was_asked_for(model):
        return architectures.blueprint(model, folded)
    found = inferred(model, example_inputs)
    found.check(model.state_dict())
    return found.after_folding if folded and found.after_folding is not None else found
