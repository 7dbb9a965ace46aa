"""Classifiers whose labels differ, joined by label name."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic

import torch
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.forward import answers_questions
from fusionlab.fusion.heads.parameters import base_module, classifiers, head_parameters
from fusionlab.merge_weights import merge_weights
from fusionlab.models import with_state
from fusionlab.types import Model


def labels_of(model: nn.Module) -> tuple[str, ...]:
    """The label names of a classifier, in order: the config's, or their positions where it gives none.

    Raises:
        InputError: the model has no classifier.
    """
    count = _linear(model, _output_layers(model)[0]).out_features
    config = getattr(model, "config", None)
    names: Any = getattr(config, "id2label", None)
    if names is None:
        described = getattr(model, "pretrained_cfg", None) or {}
        names = dict(enumerate(described.get("label_names") or ()))
    return tuple(str(names.get(index, index)) for index in range(count))


@dataclass(frozen=True)
class LabelUnion(Generic[Model]):
    """Classifiers with one set of labels, that of all of them.

    Attributes:
        models: with heads of equal shapes, so that they can be matched and merged; a label that a model does not know
            has a row of zeros there, which no result may use.
        labels: the label names, in the order of first mention.
        known: for each model which labels it knows, bool of shape ``(labels,)``.
        layers: names of the linear layers whose rows are labels.
    """

    models: list[Model]
    labels: tuple[str, ...]
    known: tuple[Tensor, ...]
    layers: tuple[str, ...]


def with_union_heads(models: Sequence[Model]) -> LabelUnion[Model]:
    """Give every model a head with the labels of all, by name.

    Args:
        models: classifiers of one class whose bodies have equal shapes; not modified.

    Returns:
        New models of the same class, whose config names all labels. On the labels that a model knows its logits are
        what they were.

    Raises:
        InputError: models of different classes, without a classifier, or with a label name that is there twice.
    """
    if any(type(model) is not type(models[0]) for model in models):
        classes = " and ".join(dict.fromkeys(type(model).__name__ for model in models))
        raise InputError(
            f"heads are to be joined by label, but the models are of classes {classes}; expected one class"
        )
    own = [labels_of(model) for model in models]
    for names in own:
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"the label {twice!r} is there twice in one model; expected different names")
    labels = tuple(dict.fromkeys(name for names in own for name in names))
    places = [torch.tensor([labels.index(name) for name in names]) for names in own]
    layers = _output_layers(models[0])
    known = tuple(torch.zeros(len(labels), dtype=torch.bool).index_fill(0, rows, True) for rows in places)
    return LabelUnion([with_labels(model, labels) for model in models], labels, known, layers)


def with_labels(model: Model, labels: Sequence[str]) -> Model:
    """A new model whose classifiers have a row for each label: its own where it knows the label, zeros elsewhere.

    Args:
        model: a classifier; not modified.
        labels: label names, in the order of the new rows.

    Raises:
        InputError: the model has no classifier.
    """
    own = labels_of(model)
    rows = torch.tensor([row for row, name in enumerate(own) if name in labels], dtype=torch.long)
    places = torch.tensor([labels.index(name) for name in own if name in labels], dtype=torch.long)
    wide = copy.deepcopy(model)
    for name in _output_layers(model):
        old = _linear(model, name)
        new = nn.Linear(old.in_features, len(labels), bias=old.bias is not None).to(old.weight)
        with torch.no_grad():
            for fresh, given in ((new.weight, old.weight), (new.bias, old.bias)):
                if given is not None:
                    fresh.zero_().index_copy_(0, places.to(fresh.device), given[rows.to(given.device)])
        parent, _, last = name.rpartition(".")
        setattr(wide.get_submodule(parent), last, new)
    _name_labels(wide, labels)
    return wide.eval()


def merge_heads(
    merged: Model, models: Sequence[nn.Module], union: LabelUnion[Model], weights: Sequence[float] | None = None
) -> Model:
    """Set the rows of a merged classifier: each label's is the mean over the models that know it.

    An unknown label is not a negative one: a model that does not know it has no part in its row or bias. A label that
    one model knows keeps that model's row. (Jin et al., "Dataless knowledge fusion", 2023, merge emotion heads so.)

    Args:
        merged: a merge of `models`, with the union's labels; not modified.
        models: the models of the union, or their matched twins.
        union: from `with_union_heads`.
        weights: one for each model; equal if None.

    Returns:
        A new model.

    Raises:
        InputError: another number of weights than of models, or weights that are zero for all that know some label.
    """
    shares = torch.tensor(merge_weights(weights, len(models)), dtype=torch.float64)
    parts = torch.stack(list(union.known)).double() * shares[:, None]
    if bool((parts.sum(0) == 0).any()):
        label = union.labels[int((parts.sum(0) == 0).int().argmax())]
        raise InputError(f"all models that know the label {label!r} have weight 0; expected one above 0")
    parts = parts / parts.sum(0)
    state = dict(merged.state_dict())
    states = [model.state_dict() for model in models]
    for layer in union.layers:
        for name in (f"{layer}.weight", f"{layer}.bias"):
            if name in state:
                rows = torch.stack([found[name].double() for found in states])
                mean = (parts.to(rows).reshape(*parts.shape, *[1] * (rows.ndim - 2)) * rows).sum(0)
                state[name] = mean.to(state[name].dtype)
    return with_state(merged, state)


def _output_layers(model: nn.Module) -> tuple[str, ...]:
    """The linear layers whose rows are labels: one, or two where a distilled model has a second classifier."""
    if base_module(model) is None:
        names = classifiers(model)
    else:
        head = {name.rpartition(".")[0] for name in head_parameters(model)}
        count = getattr(getattr(model, "config", None), "num_labels", None)
        linear = [name for name, m in model.named_modules() if name in head and isinstance(m, nn.Linear)]
        names = [name for name in linear if _linear(model, name).out_features == count]
        # A layer before the last may happen to be as wide; a second classifier stands beside the first.
        names = [name for name in names if name == names[-1] or "." not in name]
    if not names or answers_questions(model):
        raise InputError(f"a {type(model).__name__} has no classifier with one row for each label; expected one")
    return tuple(names)


def _linear(model: nn.Module, name: str) -> nn.Linear:
    module = model.get_submodule(name)
    assert isinstance(module, nn.Linear)
    return module


def _name_labels(model: nn.Module, labels: Sequence[str]) -> None:
    """Write the labels where the libraries keep them."""
    config: Any = getattr(model, "config", None)
    loose: Any = model
    if config is not None:
        config.id2label = dict(enumerate(labels))
        config.label2id = {name: index for index, name in enumerate(labels)}
    if hasattr(model, "num_labels"):
        loose.num_labels = len(labels)
    if hasattr(model, "num_classes"):
        loose.num_classes = len(labels)
    if isinstance(getattr(model, "pretrained_cfg", None), dict):
        loose.pretrained_cfg = {**loose.pretrained_cfg, "num_classes": len(labels), "label_names": list(labels)}
