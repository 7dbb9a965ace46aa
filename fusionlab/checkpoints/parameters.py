"""Checks of the parameters of every checkpoint, whatever its format."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from torch import Tensor, nn

from fusionlab.errors import InputError

Shape = tuple[int, ...]


def refuse_differences(
    source: str | Path,
    model: str,
    missing: Collection[str] = (),
    unexpected: Collection[str] = (),
    mismatched: Iterable[tuple[str, Shape, Shape]] = (),
    described: str = "the config",
) -> None:
    """Refuse weights that are not exactly the model's: a parameter left at random is never acceptable.

    Args:
        source: the file or folder the weights come from.
        model: name of the model class.
        missing: parameters that the model has and the file has not.
        unexpected: parameters that the file has and the model has not.
        mismatched: name, shape in the file and shape in the model.
        described: by what the model is.

    Raises:
        InputError: any of them is not empty; names the first one.
    """
    for name, stored, expected in sorted(mismatched):
        raise InputError(
            f"{source}: parameter {name} has shape {tuple(stored)}, but {model} as described by {described} "
            f"expects {tuple(expected)}"
        )
    for names, verb in ((missing, "lacks"), (unexpected, "has")):
        if names:
            first, *others = sorted(names)
            more = f" and {len(others)} more" if others else ""
            relation = "needs" if verb == "lacks" else "does not know"
            raise InputError(f"{source} {verb} the parameter {first}{more}, which {model} {relation}")


def differences(
    model: nn.Module, state: Mapping[str, Tensor]
) -> tuple[set[str], set[str], list[tuple[str, Shape, Shape]]]:
    """The differences between a state dict and what a model expects.

    Args:
        model: the model.
        state: tensors by parameter name.

    Returns:
        Missing names, unexpected names, and (name, stored shape, expected shape) of those that do not fit.
    """
    expected = model.state_dict()
    mismatched = [
        (name, tuple(state[name].shape), tuple(tensor.shape))
        for name, tensor in expected.items()
        if name in state and state[name].shape != tensor.shape
    ]
    return expected.keys() - state.keys(), state.keys() - expected.keys(), mismatched
