"""The larger architecture: a module of it with the small model's own fields; words for what tells two configs apart."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from fusionlab.errors import InputError, first_line
from fusionlab.special_tokens import number_fields, parts_of
from fusionlab.types import Model

# The small model's own, whatever the larger one was trained for.
LABELS = ("id2label", "label2id", "problem_type")
# What timm says of a model that is the larger one's: its name there, and modules. Labels, and how images are brought
# into shape, are the small model's.
_OF_TIMM = ("architecture", "first_conv", "classifier")
# What no function depends on.
_WITHOUT_EFFECT = ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype", "use_cache")
_LONGEST = 6
# How far attention sees, and which layers see how far: inputs that are shorter tell no two of them apart.
_WINDOWS = ("sliding_window", "attention_window", "local_attention", "global_attn_every_n_layers")
_KINDS = ("layer_types", "attention_types", "attention_layers")


def larger_model(model: Model, like: Any) -> Model:
    """A new model of the larger architecture, with the small one's class, labels, special tokens and ways with images;
    its values are no model's.

    Args:
        model: the small model.
        like: a model of the same class, or a config of transformers.

    Raises:
        InputError: another class, a config that makes no model, or one by which attention reaches elsewhere.
    """
    if isinstance(like, nn.Module) and type(like) is not type(model):
        raise InputError(
            f"the model to grow is a {type(model).__name__} and the larger one a {type(like).__name__}; expected one "
            f"class"
        )
    config = getattr(like, "config", None) if isinstance(like, nn.Module) else like
    ours: Any = getattr(model, "config", None)
    if isinstance(like, nn.Module) and not hasattr(config, "to_dict"):
        made: Any = copy.deepcopy(like)
        if (described := getattr(model, "pretrained_cfg", None)) is not None:
            of_size = {name: made.pretrained_cfg[name] for name in _OF_TIMM if name in made.pretrained_cfg}
            made.pretrained_cfg = made.default_cfg = {**copy.deepcopy(described), **of_size}
        return made
    if type(config) is not type(ours):
        raise InputError(
            f"the larger architecture is given by a {type(like).__name__}, and the model has a {type(ours).__name__}; "
            f"expected a model or a config of the same kind"
        )
    _refuse_other_reach(ours, config)
    config = copy.deepcopy(config)
    for name in LABELS:
        if hasattr(ours, name):
            setattr(config, name, copy.deepcopy(getattr(ours, name)))
    # By the number of the padding a classifier knows where a text ends, and the tokenizer is the small model's.
    for part, own in zip(parts_of(config), parts_of(ours), strict=False):
        for name in {*number_fields(own), *number_fields(part)}:
            setattr(part, name, copy.deepcopy(getattr(own, name, None)))
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            made = type(model)(config)
    except (ValueError, RuntimeError, TypeError, KeyError) as error:
        raise InputError(
            f"the larger config makes no {type(model).__name__} ({first_line(error)}); expected another config"
        ) from error
    if (generation := getattr(model, "generation_config", None)) is not None:
        made.generation_config = copy.deepcopy(generation)
    return made


def _refuse_other_reach(small: Any, large: Any) -> None:
    """Refuse configs by which attention reaches elsewhere in long inputs, which short ones cannot tell.

    Args:
        small: one model, or its config.
        large: the other, of the same class.

    Raises:
        InputError: names the fields.
    """
    found = {
        name: (one, other)
        for name, (one, other) in differences(small, large).items()
        if name.rpartition(".")[2] in _WINDOWS
        or (name.rpartition(".")[2] in _KINDS and len(one or ()) == len(other or ()))
    }
    if found:
        raise InputError(
            f"attention reaches elsewhere in one of both models: the configs differ in {worded(found)}; expected "
            f"sizes only"
        )


def differences(small: Any, large: Any) -> Mapping[str, tuple[Any, Any]]:
    """The fields in which two configs differ, labels aside, with both values; those of parts have a dot."""
    return {name: pair for name, pair in _differences(_plain(small), _plain(large)) if pair[0] != pair[1]}


def fields_of(small: Any, large: Any, sizes: tuple[Any, Any]) -> tuple[str, ...]:
    """The names of the config's fields that have two given values in the two models."""
    return tuple(name for name, pair in differences(small, large).items() if pair == sizes)


def worded(found: Mapping[str, tuple[Any, Any]]) -> str:
    """Differences of configs in words; the first few of many."""
    shown = [f"{name} ({one}, {other})" for name, (one, other) in list(found.items())[:_LONGEST]]
    return ", ".join(shown) + (f" and {len(found) - _LONGEST} more" if len(found) > _LONGEST else "")


def _plain(model: Any) -> dict[str, Any]:
    config = getattr(model, "config", model)
    return config.to_dict() if hasattr(config, "to_dict") else {}


def _differences(small: Mapping[str, Any], large: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for name in dict.fromkeys((*small, *large)):
        one, other = small.get(name), large.get(name)
        if name in (*LABELS, *_WITHOUT_EFFECT):
            continue
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from ((f"{name}.{inner}", pair) for inner, pair in _differences(one, other))
        else:
            yield name, (one, other)
