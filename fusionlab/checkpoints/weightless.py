"""Models of transformers whose parameters take no memory, and what of the files becomes each of them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from transformers import PretrainedConfig, PreTrainedModel

from fusionlab.checkpoints.conversions import Group, groups_of
from fusionlab.checkpoints.files import CONFIG
from fusionlab.checkpoints.huggingface import parameter_names
from fusionlab.checkpoints.huggingface_config import load_config, model_class, parse_config
from fusionlab.checkpoints.quiet import quiet
from fusionlab.checkpoints.sizes import Stored
from fusionlab.checkpoints.timm_folder import build

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Weightless:
    """A model whose parameters are on the meta device and whose buffers are as its class makes them.

    Attributes:
        model: in eval mode, of transformers or timm.
        names: for every name in its state dict, the one of the tied ones that is made of the files.
        groups: of what files hold, by each parameter that is made of it.
    """

    model: nn.Module
    names: Mapping[str, str]
    groups: Mapping[str, Group]


@dataclass(frozen=True)
class WeightlessOfTransformers(Weightless):
    """The same of a class of transformers, which has a config."""

    model: PreTrainedModel


def weightless(
    config: Mapping[str, object], folder: Path, shapes: Mapping[str, Shape]
) -> WeightlessOfTransformers | None:
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
    with quiet(), torch.random.fork_rng(devices=[]), without_memory():
        model = model_class(parsed, folder / CONFIG)(copy.deepcopy(parsed)).eval()
    return _of_groups(model, shapes)


def described_by(folder: Path, with_model: bool) -> PretrainedConfig | PreTrainedModel:
    """The config of a folder of transformers, or the model that it describes, whose parameters take no memory.

    Args:
        folder: that holds the config.
        with_model: whether there is a model, and that is wanted.

    Raises:
        InputError: a configuration that cannot be read, or one of an unknown class.
    """
    config = load_config(folder)
    if not with_model:
        return config
    with quiet(), torch.random.fork_rng(devices=[]), without_memory():
        return model_class(config, folder / CONFIG)(config)


def weightless_timm(config: Mapping[str, object], folder: Path, shapes: Mapping[str, Shape]) -> Weightless | None:
    """The model of timm that a folder's config describes, where its files hold just the parameters of the class.

    Args:
        config: of the folder.
        folder: where it lies.
        shapes: of its tensors, by name.

    Returns:
        None where they hold others.

    Raises:
        InputError: an unknown architecture, or a description that it refuses.
    """
    stored = Stored(sum(torch.Size(shape).numel() for shape in shapes.values()), len(shapes))
    with quiet(), torch.random.fork_rng(devices=[]), without_memory():
        model = build(dict(config), folder / CONFIG, stored).eval()
    if {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()} != dict(shapes):
        return None
    named = _named(model, {name: Group((name,), (name,)) for name in shapes})
    return None if named is None else Weightless(model, *named)


def as_written(model: PreTrainedModel) -> WeightlessOfTransformers | None:
    """A model without weights and without files, and what transformers would write it in.

    Args:
        model: made without memory.

    Returns:
        None where that is not known to come back as it was.
    """
    tied: Mapping[str, str] = getattr(model, "all_tied_weights_keys", {})
    state, kept = model.state_dict(keep_vars=True), dict[int, tuple[str, torch.Tensor]]()
    for name in sorted(state, key=lambda name: name in tied):
        kept.setdefault(id(state[name]), (name, state[name].detach().to("meta")))
    held = dict(kept.values())
    try:
        # Another part of transformers that it changes; what it fails at is done in memory.
        from transformers.core_model_loading import revert_weight_conversion  # noqa: PLC0415

        with quiet(), torch.device("meta"):
            written = revert_weight_conversion(model, {name: held[name] for name in state if name in held})
    except Exception:
        return None
    return _of_groups(model, {name: tuple(tensor.shape) for name, tensor in written.items()})


def _of_groups(model: PreTrainedModel, shapes: Mapping[str, Shape]) -> WeightlessOfTransformers | None:
    if (found := groups_of(model, shapes)) is None:
        return None
    named = _named(model, {name: group for group in found for name in group.made})
    return None if named is None else WeightlessOfTransformers(model, *named)


def _named(model: nn.Module, groups: Mapping[str, Group]) -> tuple[dict[str, str], Mapping[str, Group]] | None:
    """Names of parameters, and groups; None where two that are tied are both in the files, or neither."""
    names: dict[str, str] = {}
    alike: dict[int, list[str]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        alike.setdefault(id(tensor), []).append(name)
    for tied in alike.values():
        held = [name for name in tied if name in groups]
        if len(held) != 1:
            return None
        names |= dict.fromkeys(tied, held[0])
    return names, groups


@contextmanager
def without_memory(vectors: bool = False) -> Iterator[None]:
    """Make modules whose parameters take no memory; what is tied stays one.

    Args:
        vectors: whether parameters of one dimension have numbers all the same, those that their class begins with.
    """

    def emptied(module: nn.Module, name: str, parameter: nn.Parameter | None) -> nn.Parameter | None:
        if parameter is None or parameter.is_meta or (vectors and parameter.numel() == max(parameter.shape, default=1)):
            return None
        return nn.Parameter(parameter.detach().to("meta"), parameter.requires_grad)

    hook = register_module_parameter_registration_hook(emptied)  # type: ignore[arg-type]  # may return one
    try:
        yield
    finally:
        hook.remove()
