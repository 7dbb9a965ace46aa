"""Modules as the engine sees them: one blueprint for several, and a new module from parameters."""

import copy
from collections.abc import Mapping
from typing import TypeVar

from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.symmetry import Blueprint, blueprint

Model = TypeVar("Model", bound=nn.Module)


def common_blueprint(models: Mapping[str, nn.Module]) -> Blueprint:
    """The blueprint that all models share.

    Args:
        models: by the name to use in errors (a path, for example).

    Raises:
        InputError: fewer than two models, different classes, or sizes that differ; the sentence names the first.
        SymmetryError: an architecture that is not described.
    """
    if len(models) < 2:
        raise InputError(f"{len(models)} end model was given; expected at least two")
    (first_name, first), *others = models.items()
    shared = blueprint(first)
    for name, model in others:
        if type(model) is not type(first):
            raise InputError(
                f"{name} is a {type(model).__name__} and {first_name} a {type(first).__name__}; "
                f"expected end models of one architecture"
            )
        state, reference = model.state_dict(), first.state_dict()
        if extra := [parameter for parameter in state if parameter not in reference]:
            raise InputError(
                f"{name} has the parameter {extra[0]!r}, which {first_name} lacks; expected one architecture"
            )
        for parameter in reference:
            if parameter not in state or state[parameter].shape != reference[parameter].shape:
                found = "is missing" if parameter not in state else f"has shape {_shape(state[parameter])}"
                raise InputError(
                    f"the parameter {parameter!r} {found} in {name}; expected shape {_shape(reference[parameter])} "
                    f"as in {first_name}"
                )
        if blueprint(model).fingerprint != shared.fingerprint:
            raise InputError(
                f"{name} and {first_name} have parameters of the same shapes but different configs "
                f"(the number of attention heads, for example); expected one architecture"
            )
    return shared


def with_state(model: Model, state: Mapping[str, Tensor]) -> Model:
    """A new module like `model`, with other parameters, in eval mode."""
    twin = copy.deepcopy(model)
    twin.load_state_dict(dict(state))
    return twin.eval()


def _shape(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "of a scalar"
