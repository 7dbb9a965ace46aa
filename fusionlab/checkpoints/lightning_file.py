"""Lightning checkpoints: one ``.ckpt`` file whose state dict holds the model under a prefix."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fusionlab.checkpoints import huggingface, timm_folder
from fusionlab.checkpoints.files import CONFIG, read_json, read_pickle
from fusionlab.checkpoints.huggingface_config import model_class, parse_config, plain_config
from fusionlab.checkpoints.sizes import Stored
from fusionlab.checkpoints.weights import refuse_no_state
from fusionlab.errors import InputError

ENTRY = "fusionlab"
STATE = "state_dict"
# They belong to the weights that are replaced; resuming with them would be wrong.
_OF_THE_OLD_WEIGHTS = ("optimizer_states", "lr_schedulers")


def describe(model: nn.Module) -> dict[str, Any]:
    """The description that is needed to build `model` again; tasks store it in their checkpoints under ``"fusionlab"``.

    Args:
        model: a transformers or timm model.

    Returns:
        ``{"library": "transformers" or "timm", "class": name, "config": plain mapping}``.

    Raises:
        InputError: the model is of neither library.
    """
    if huggingface.is_transformers(model):
        config = plain_config(model)
        return {"library": "transformers", "class": type(model).__name__, "config": config}
    if timm_folder.is_timm(model):
        config = timm_folder.describe(model)
        return {"library": "timm", "class": config[timm_folder.ARCHITECTURE], "config": config}
    raise InputError(f"{type(model).__name__} is neither a transformers nor a timm model")


def read_file(path: Path) -> tuple[nn.Module, tuple[str, ...]]:
    """Load the model inside a Lightning checkpoint.

    Args:
        path: a ``.ckpt`` file, either written by a fusionlab task or with a ``config.json`` beside it.

    Returns:
        The model, in eval mode and in the dtype it is stored in; and the names of all other floating-point tensors.

    Raises:
        InputError: the file is damaged, could run code, says nothing about its model, or does not fit it.
    """
    archive = read_archive(path)
    library, class_name, config = _description(archive, path)
    state = archive[STATE]
    stored = Stored.of(state.values())
    if library == "timm":
        names = set(timm_folder.build(config, path, stored).state_dict())
    else:
        names = huggingface.parameter_names(class_name, config, path, stored)
    prefix = find_prefix(state, names, path)
    inner = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
    others = {name: tensor for name, tensor in state.items() if not name.startswith(prefix)}
    outside = tuple(name for name, tensor in others.items() if tensor.is_floating_point())
    if library == "timm":
        return timm_folder.rebuild(config, inner, path), outside
    if not class_name and not config.get("architectures"):
        _refuse_other_class(config, prefix, outside, path)
    return huggingface.rebuild(class_name, config, inner, path), outside


def read_archive(path: Path) -> dict[str, Any]:
    """The whole content of a Lightning checkpoint, read without running any code in it.

    Args:
        path: the ``.ckpt`` file.

    Returns:
        Its entries; ``"state_dict"`` is a mapping of tensors.

    Raises:
        InputError: the file is damaged, could run code, or has no state dict of tensors.
    """
    archive = read_pickle(path)
    state = archive.get(STATE)
    if not isinstance(state, Mapping):
        raise InputError(f"{path} has no {STATE!r} of tensors, so it is not a Lightning checkpoint")
    refuse_no_state(path, state)
    return archive


def find_prefix(state: Iterable[str], names: Iterable[str], source: Path) -> str:
    """The prefix under which a model's parameters stand in the state dict of a larger module.

    The prefix that explains most of the model's names is taken, because an older checkpoint may carry names that
    transformers still has to translate. Of several that explain equally many (a model and its moving average),
    ``model.`` is preferred, then the one that comes first.

    Args:
        state: names in the state dict.
        names: parameter names of the model.
        source: the file, for messages.

    Returns:
        The prefix, such as ``"model."``; empty when there is none.

    Raises:
        InputError: no prefix explains any name.
    """
    wanted = set(names)
    found: dict[str, int] = {}
    for key in state:
        parts = key.split(".")
        for depth in range(len(parts)):
            if ".".join(parts[depth:]) in wanted:
                prefix = "".join(f"{part}." for part in parts[:depth])
                found[prefix] = found.get(prefix, 0) + 1
    if not found:
        raise InputError(f"{source}: none of its parameters belongs to the model that its config describes")
    most = max(found.values())
    best = [prefix for prefix, count in found.items() if count == most]
    return "model." if "model." in best else best[0]


def _refuse_other_class(config: Mapping[str, Any], prefix: str, outside: Iterable[str], path: Path) -> None:
    """Refuse a model that is read as the bare one of its type, since no class is named, where it stands in another.

    Models with a head hold the bare one under a name of their own, as ``bert``, beside the head. At the top level that
    may be the user's own module as well.
    """
    bare = model_class(parse_config(config, path), path)
    around, _, own = prefix.removesuffix(".").rpartition(".")
    beside = [name for name in outside if name.startswith(f"{around}.")]
    if around and own == bare.base_model_prefix and beside:
        raise InputError(
            f"{path}: the {CONFIG} beside it names no architectures, and {beside[0]} beside {prefix.removesuffix('.')} "
            f"is of a model with more than a {bare.__name__}; expected the name of its class in architectures"
        )


def write_file(model: nn.Module, output: Path, like: Path) -> None:
    """Write a model into a copy of a Lightning checkpoint.

    Args:
        model: the model; its parameters replace those in the state dict, under the same prefix.
        output: the file to be written.
        like: the ``.ckpt`` file whose other entries are kept. States of optimisers and learning-rate schedules are
            dropped: they belong to the old weights.

    Raises:
        InputError: `like` is damaged or holds no model of these parameters.
    """
    archive = read_archive(like)
    state = model.state_dict()
    prefix = find_prefix(archive[STATE], state, like)
    kept = {name: tensor for name, tensor in archive[STATE].items() if not name.startswith(prefix)}
    replaced = {f"{prefix}{name}": tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    for name in _OF_THE_OLD_WEIGHTS:
        archive.pop(name, None)
    # A new description, because the model's configuration may have changed with its weights.
    torch.save({**archive, STATE: {**kept, **replaced}, ENTRY: describe(model)}, output)


def _description(archive: Mapping[str, Any], path: Path) -> tuple[str, str, dict[str, Any]]:
    """Library, class name (or nothing, then the config names it) and config of the model in a checkpoint."""
    entry = archive.get(ENTRY)
    if isinstance(entry, Mapping) and isinstance(entry.get("config"), Mapping):
        return str(entry.get("library")), str(entry.get("class", "")), dict(entry["config"])
    beside = path.parent / CONFIG
    if not beside.is_file():
        raise InputError(
            f"{path} does not say which model it holds; put the {CONFIG} of a transformers or timm model beside it"
        )
    config = read_json(beside)
    return ("timm" if timm_folder.ARCHITECTURE in config else "transformers"), "", config
