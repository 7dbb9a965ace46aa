"""Heads of different tasks: each task keeps its own on a merged body, or heads of one kind are merged by label name."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.matching.align import align_states, gauged
from fusionlab.matching.options import BIASES, FOLDED, MatchOptions
from fusionlab.merging import merge_weights
from fusionlab.models import aliases, with_state
from fusionlab.symmetry import Alignment, Blueprint, blueprint

Model = TypeVar("Model", bound=nn.Module)
State = Mapping[str, Tensor]


def head_parameters(model: nn.Module) -> tuple[str, ...]:
    """The names of a model's head: what transformers keeps outside the base model, or what timm calls the classifier.

    Poolers inside the base model (BERT's) belong to the body, those outside (DeBERTa's) to the head. A weight that the
    body shares (a tied output embedding) belongs to the body.

    Args:
        model: of transformers or timm.

    Returns:
        Parameters and buffers by their names in the state, in its order; empty for a bare encoder.
    """
    state = model.state_dict()
    base = _base(model)
    if base is None:
        within = tuple(f"{name}." for name in _classifiers(model))
        return tuple(name for name in state if name.startswith(within))
    if base is model:
        return ()
    prefix = next(f"{name}." for name, module in model.named_modules() if module is base)
    first = aliases(state)
    shared = {first.get(name, name) for name in state if name.startswith(prefix)}
    return tuple(name for name in state if not name.startswith(prefix) and first.get(name, name) not in shared)


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
class UnionHeads(Generic[Model]):
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


def with_union_heads(models: Sequence[Model]) -> UnionHeads[Model]:
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
    return UnionHeads([with_labels(model, labels) for model in models], labels, known, layers)


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
    merged: Model, models: Sequence[nn.Module], union: UnionHeads, weights: Sequence[float] | None = None
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


def body_states(models: Sequence[nn.Module]) -> list[dict[str, Tensor]]:
    """The parameters of each model's body, for the engine and the merge methods.

    Raises:
        InputError: bodies that differ in a name or a shape.
    """
    states = []
    for model in models:
        head = set(head_parameters(model))
        states.append({name: tensor for name, tensor in model.state_dict().items() if name not in head})
    for index, state in enumerate(states[1:], start=1):
        if odd := [name for name in {**states[0], **state} if _shape(states[0], name) != _shape(state, name)]:
            raise InputError(
                f"the bodies of model 0 and model {index} differ in {odd[0]!r}; expected one architecture under their "
                f"heads"
            )
    return states


def align_bodies(models: Sequence[nn.Module], options: MatchOptions, anchor: int = 0) -> list[Alignment]:
    """Alignments of models that are matched by their bodies alone, whatever their heads are.

    Args:
        models: of one architecture under the heads (other numbers of classes, other kinds of task); not modified.
        options: what to match and how.
        anchor: index of the model that the others are matched to.

    Returns:
        For each model an alignment of its own blueprint: it preserves the whole model's function, head included.

    Raises:
        InputError: bodies that differ, or spaces that admit other groups under one head than under another.
    """
    return _by_bodies(models, options, lambda states, shared: align_states(states, shared, options, anchor))


def gauge_bodies(models: Sequence[nn.Module], options: MatchOptions) -> list[Alignment]:
    """Alignments that bring every model into the gauge of `options`, and no model nearer to another.

    Args:
        models: see `align_bodies`.
        options: whose gauge it is.

    Raises:
        InputError: see `align_bodies`.
    """
    return _by_bodies(models, options, lambda states, shared: gauged(states, shared, options)[1])


def under_head_of(alignment: Alignment, model: nn.Module) -> Alignment:
    """The alignment of another model with the same body: its own head moves with the basis of the body.

    Args:
        alignment: of a model whose head may be another one.
        model: with a body of the same shapes.

    Raises:
        InputError: the body admits other groups under this head.
    """
    source = alignment.blueprint
    own = blueprint(model).in_gauge(source.folded, source.unbiased)
    for name in alignment.elements:
        # A space of the other head alone has no part in this model.
        shared = not own.parameters.keys().isdisjoint(source.touching([name]))
        if shared and own.spaces.get(name) != source.spaces[name]:
            raise InputError(
                f"the space {name!r} of a {type(model).__name__} has another symmetry under its head than under that "
                f"of the end models; expected heads that leave the same ones"
            )
    return Alignment(own, {name: element for name, element in alignment.elements.items() if name in own.spaces})


def _by_bodies(
    models: Sequence[nn.Module],
    options: MatchOptions,
    find: Callable[[Sequence[State], Blueprint], Sequence[Alignment]],
) -> list[Alignment]:
    """Alignments of whole models from what is found for their bodies' states and the blueprint that those share."""
    described = [blueprint(model) for model in models]
    states: Sequence[State] = body_states(models)
    if not options.spaces:
        return [Alignment.identity(one) for one in described]
    # Folding looks at what reads the last norm, which is the head; so it is done on whole models.
    described = [one.in_gauge(FOLDED in options.gauge, BIASES in options.gauge) for one in described]
    if options.gauge:
        folded = [Alignment.identity(one).apply(m.state_dict()) for one, m in zip(described, models, strict=True)]
        states = [{name: whole[name] for name in state} for whole, state in zip(folded, states, strict=True)]
    shared = _restricted(described[0], states[0])
    for index, one in enumerate(described[1:], start=1):
        other = _restricted(one, states[0])
        if (other.spaces, other.parameters) != (shared.spaces, shared.parameters):
            raise InputError(
                f"the body of model {index} has other symmetries under its head than that of model 0; expected heads "
                f"that leave the same ones"
            )
    found = find(states, shared)
    return [Alignment(one, alignment.elements) for one, alignment in zip(described, found, strict=True)]


def body_blueprint(model: nn.Module) -> Blueprint:
    """The blueprint of a model's body alone: what its parameters' axes are, its head left out."""
    return _restricted(blueprint(model), body_states([model])[0])


def split_heads(body: State, twins: Sequence[Model]) -> list[Model]:
    """One model for each task: the merged body under the task's own head.

    Args:
        body: merged parameters of the body, from `body_states` of the twins.
        twins: matched twins with their heads; not modified.

    Returns:
        New models, in order, each of its twin's class.
    """
    return [with_state(twin, {**twin.state_dict(), **body}) for twin in twins]


def _base(model: nn.Module) -> nn.Module | None:
    """transformers' base model, the model itself where there is none around it; None for other libraries."""
    base = getattr(model, "base_model", None)
    return base if isinstance(base, nn.Module) else None


def _classifiers(model: nn.Module) -> list[str]:
    """The names of timm's classifiers."""
    found: Any = getattr(model, "get_classifier", lambda: None)()
    heads = found if isinstance(found, tuple | list) else [found]
    return [
        name for name, module in model.named_modules() if any(module is h for h in heads if isinstance(h, nn.Linear))
    ]


def _output_layers(model: nn.Module) -> tuple[str, ...]:
    """The linear layers whose rows are labels: one, or two where a distilled model has a second classifier."""
    if _base(model) is None:
        names = _classifiers(model)
    else:
        head = {name.rpartition(".")[0] for name in head_parameters(model)}
        count = getattr(getattr(model, "config", None), "num_labels", None)
        linear = [name for name, m in model.named_modules() if name in head and isinstance(m, nn.Linear)]
        names = [name for name in linear if _linear(model, name).out_features == count]
        # A layer before the last may happen to be as wide; a second classifier stands beside the first.
        names = [name for name in names if name == names[-1] or "." not in name]
    if not names:
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


def _restricted(described: Blueprint, names: State) -> Blueprint:
    """A blueprint of some of the parameters, with the spaces that act on them; it folds nothing."""
    part = replace(described, parameters={name: described.parameters[name] for name in names})
    touching = {name for name in described.spaces if part.touching([name])}
    indexed = {outer for name in touching for outer in described.spaces[name].index}
    spaces = {name: space for name, space in described.spaces.items() if name in touching | indexed}
    return replace(part, spaces=spaces, norms=(), layer_scales=(), centred=(), after_folding=None)


def _shape(state: State, name: str) -> tuple[int, ...] | None:
    return tuple(state[name].shape) if name in state else None
