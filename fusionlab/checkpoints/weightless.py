"""Models of transformers whose parameters take no memory, and what of the files becomes each of them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from transformers import PreTrainedModel

from fusionlab.checkpoints.conversions import Group, groups_of
from fusionlab.checkpoints.files import CONFIG
from fusionlab.checkpoints.huggingface import parameter_names
from fusionlab.checkpoints.huggingface_config import model_class, parse_config
from fusionlab.checkpoints.quiet import quiet
from fusionlab.checkpoints.sizes import Stored

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Weightless:
    """A model whose parameters are on the meta device and whose buffers are as its class makes them.

    Attributes:
        model: in eval mode.
        names: for every name in its state dict, the one of the tied ones that is made of the files.
        groups: of what files hold, by each parameter that is made of it.
    """

    model: PreTrainedModel
    names: Mapping[str, str]
    groups: Mapping[str, Group]


def weightless(config: Mapping[str, object], folder: Path, shapes: Mapping[str, Shape]) -> Weightless | None:
    """The model that a folder's config describes, where its files hold just the parameters of the class.

    Args:
        config: of the folder.
        folder: where it lies.
        shapes: of its tensors, by the names in its files.

    Returns:
        None where they hold others, or in a way that is not known to come back as it was.

    Raises:
        InputError: an unknown class, a configuration that it refuses, or one that asks for more than is stored.
    """
    stored = Stored(sum(torch.Size(shape).numel() for shape in shapes.values()), len(shapes))
    # Made on the meta device throughout first, since that refuses configs of any size before anything has a size.
    parameter_names("", dict(config), folder, stored)
    parsed = parse_config(config, folder / CONFIG)
    with quiet(), torch.random.fork_rng(devices=[]):
        hook = register_module_parameter_registration_hook(_without_memory)  # type: ignore[arg-type]  # may return one
        try:
            model = model_class(parsed, folder / CONFIG)(copy.deepcopy(parsed)).eval()
        finally:
            hook.remove()
    if (found := groups_of(model, shapes)) is None:
        return None
    groups = {name: group for group in found for name in group.made}
    names: dict[str, str] = {}
    alike: dict[int, list[str]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        alike.setdefault(id(tensor), []).append(name)
    for tied in alike.values():
        held = [name for name in tied if name in groups]
        if len(held) != 1:
            return None
        names |= dict.fromkeys(tied, held[0])
    return Weightless(model, names, groups)


def _without_memory(module: nn.Module, name: str, parameter: nn.Parameter | None) -> nn.Parameter | None:
    """A parameter that takes no memory in place of one that does; what is tied stays one."""
    if parameter is None or parameter.is_meta:
        return None
    return nn.Parameter(parameter.detach().to("meta"), parameter.requires_grad)
