"""State dicts of a module of one's own: read into the module that somebody hands over, written as safetensors."""

import copy
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from fusionlab.checkpoints.files import SAFETENSORS, read_safetensors, weight_files
from fusionlab.checkpoints.parameters import differences, refuse_differences
from fusionlab.checkpoints.weights import read_pickled_state
from fusionlab.dtypes import in_types, name_of
from fusionlab.errors import InputError
from fusionlab.models import aliases

PICKLES = (".pt", ".pth", ".bin")
SUFFIX = ".safetensors"


def read_into(module: nn.Module, path: Path) -> nn.Module:
    """A copy of a module with the parameters of a state dict.

    Args:
        module: of the class that the state dict was saved from; not modified.
        path: a file that ends in ``.safetensors``, ``.pt``, ``.pth`` or ``.bin``, or a folder that holds one.

    Returns:
        The copy, in eval mode and in the dtypes that are stored.

    Raises:
        InputError: no such file, one that is damaged or could run code, or a state dict of another module.
    """
    state, name = _with_tied_names(_state(path), module), type(module).__name__
    refuse_differences(path, name, *differences(module, state), described="its example")
    expected = module.state_dict()
    for parameter, tensor in state.items():
        if tensor.is_floating_point() != expected[parameter].is_floating_point():
            raise InputError(
                f"{path}: parameter {parameter} holds {name_of(tensor.dtype)}, where {name} has "
                f"{name_of(expected[parameter].dtype)}"
            )
    for further, first in aliases(expected).items():
        if not torch.equal(state[further], state[first]):
            raise InputError(
                f"{path}: {further} and {first} hold different numbers, but {name} has one parameter for both"
            )
    model = in_types(module, {parameter: tensor.dtype for parameter, tensor in state.items()})
    model = copy.deepcopy(model) if model is module else model
    model.load_state_dict(state)
    return model.eval()


def write_file(module: nn.Module, output: Path) -> None:
    """Write the state dict of a module as one safetensors file, tied parameters under each of their names.

    Args:
        module: any.
        output: the file.
    """
    save_file(
        {name: tensor.detach().cpu().clone().contiguous() for name, tensor in module.state_dict().items()}, output
    )


def write_folder(module: nn.Module, output: Path) -> None:
    """Write the state dict of a module into an empty folder."""
    write_file(module, output / SAFETENSORS)


def _state(path: Path) -> dict[str, Tensor]:
    """The tensors in a file, or in the one file of a folder."""
    if path.is_dir():
        path = _weights_in(path)
    if path.suffix == SUFFIX:
        return read_safetensors(path)
    if path.suffix in PICKLES:
        return read_pickled_state([path])
    raise InputError(f"{path} is no state dict; expected a file that ends in {', '.join((SUFFIX, *PICKLES))}")


def _weights_in(folder: Path) -> Path:
    """The file of weights in a folder: of the usual name, or else the only one."""
    try:
        found = weight_files(folder)
    except InputError:
        found = sorted(file for file in folder.iterdir() if file.suffix in (SUFFIX, *PICKLES))
    if len(found) != 1:
        raise InputError(f"{folder} holds {len(found)} files of weights; expected {SAFETENSORS}, or one state dict")
    return found[0]


def _with_tied_names(state: Mapping[str, Tensor], module: nn.Module) -> dict[str, Tensor]:
    """The state with tied parameters under all of their names, of which some formats keep one."""
    complete = dict(state)
    for further, first in aliases(module.state_dict()).items():
        for missing, there in ((further, first), (first, further)):
            if missing not in complete and there in complete:
                complete[missing] = complete[there]
    return complete
