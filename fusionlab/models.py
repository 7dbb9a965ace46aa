"""Modules as the engine sees them: one blueprint for several, and a new module from parameters."""

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from fusionlab import misfits
from fusionlab.dtypes import in_types, main_dtype, types_of
from fusionlab.errors import InputError
from fusionlab.forward import logits
from fusionlab.modes import in_eval_mode
from fusionlab.symmetry import Blueprint, SymmetryError, blueprint
from fusionlab.symmetry.infer.keys import key_of
from fusionlab.symmetry.leftovers import forget
from fusionlab.types import Model


def common_blueprint(models: Mapping[str, nn.Module]) -> Blueprint:
    """The blueprint that all models share.

    Args:
        models: by the name to use in errors (a path, for example).

    Raises:
        InputError: as `refuse_unlike`.
        SymmetryError: an architecture that is not described, of models that are alike.
    """
    refuse_unlike(models)
    # Of each, as one whose config promises other parameters has none.
    found = [blueprint(model) for model in models.values()]
    return found[0]


def refuse_unlike(models: Mapping[str, nn.Module]) -> None:
    """Refuse models of several classes or sizes, or of other numbers of heads and the like.

    Args:
        models: by the name to use in errors; also of an architecture that is not described.

    Raises:
        InputError: fewer than two models, different classes, or sizes that differ; the sentence names the first.
    """
    if len(models) < 2:
        raise InputError(f"{len(models)} end model was given; expected at least two")
    (first_name, first), *others = models.items()
    reference = first.state_dict()
    for name, model in others:
        if (sentence := misfits.of_labels([name, first_name], _configs(model, first))) is not None:
            raise InputError(sentence)
        if type(model) is not type(first):
            raise InputError(
                f"{name} is a {type(model).__name__} and {first_name} a {type(first).__name__}; "
                f"expected end models of one architecture ({misfits.OTHER_HEADS})"
            )
        state = model.state_dict()
        if extra := [parameter for parameter in state if parameter not in reference]:
            raise InputError(
                f"{name} has the parameter {extra[0]!r}, which {first_name} lacks; expected one architecture"
                f"{misfits.of_sizes(_configs(model, first))}"
            )
        for parameter in reference:
            if parameter not in state or state[parameter].shape != reference[parameter].shape:
                own, wanted = state.get(parameter), misfits.words_of(reference[parameter].shape)
                found = "is missing" if own is None else f"has shape {misfits.words_of(own.shape)}"
                raise InputError(
                    f"the parameter {parameter!r} {found} in {name}; expected shape {wanted} "
                    f"as in {first_name}{_way_on(parameter, model, first)}"
                )
        # Of one class, config and shapes they have one blueprint, which is not to be inferred for this.
        if key_of(model) == key_of(first):
            continue
        with suppress(SymmetryError):
            if blueprint(model).fingerprint != blueprint(first).fingerprint:
                raise InputError(
                    f"{name} and {first_name} have parameters of the same shapes, but {_other(model, first)}; "
                    f"expected one architecture"
                )


def refuse_misfit(models: Sequence[nn.Module]) -> None:
    """Refuse models of one class whose parameters have different shapes or ties, or whose labels another order.

    Args:
        models: of one class.

    Raises:
        InputError: names the first parameter that differs, and what helps.
    """
    first, *others = models
    reference = first.state_dict()
    for index, model in enumerate(others, start=1):
        if (sentence := misfits.of_labels([f"model {index}", "model 0"], _configs(model, first))) is not None:
            raise InputError(sentence)
        for parameter, tensor in model.state_dict().items():
            if parameter in reference and tensor.shape != reference[parameter].shape:
                raise InputError(
                    f"the parameter {parameter!r} has shape {misfits.words_of(tensor.shape)} in model {index}; "
                    f"expected shape {misfits.words_of(reference[parameter].shape)} as in model 0"
                    f"{_way_on(parameter, model, first)}"
                )
        refuse_other_ties({f"model {index}": model, "model 0": first})


def refuse_other_ties(models: Mapping[str, nn.Module]) -> None:
    """Refuse two models of which one has tied parameters that the other has as two.

    Args:
        models: by the name to use in errors, of one class.

    Raises:
        InputError: names the parameter.
    """
    if (found := _tied_once(*models.values())) is not None:
        raise InputError(
            f"{found[0]!r} is tied to {found[1]!r} in one of {' and '.join(models)} alone; expected both tied or both "
            f"untied (fusionlab.models.untie)"
        )


def untie(model: Model) -> Model:
    """A new model whose output embedding is a parameter of its own, starting as a copy of the input embedding.

    Args:
        model: a transformers model with ``tie_word_embeddings``; not modified. Any other is copied as it is.

    Raises:
        InputError: a model that computes something else when its embeddings are not tied.
    """
    config: Any = copy.deepcopy(getattr(model, "config", None))
    if not getattr(config, "tie_word_embeddings", False):
        return with_state(model, model.state_dict())
    config.tie_word_embeddings = False
    dtype = main_dtype(model.state_dict())
    twin = in_types(type(model)(config), types_of(model)).eval()
    twin.load_state_dict(model.state_dict())
    if (generation := getattr(model, "generation_config", None)) is not None:
        twin.generation_config = copy.deepcopy(generation)
    generator = torch.Generator().manual_seed(0)
    inputs = {i.name: i.random(1, generator) for i in blueprint(model).inputs}
    with torch.no_grad(), in_eval_mode(model):
        before, after = logits(model, inputs).double(), logits(twin, inputs).double()
        # A weight that lies elsewhere in memory may be multiplied in another order.
        if not (after - before).norm() <= 1000 * torch.finfo(dtype).eps * before.norm():
            raise InputError(f"a {type(model).__name__} computes something else when untied; expected another class")
    return twin


def with_state(model: Model, state: Mapping[str, Tensor]) -> Model:
    """A new module like `model`, with other parameters, in eval mode."""
    forget(model)
    twin = copy.deepcopy(model)
    twin.load_state_dict(dict(state))
    return twin.eval()


def borrowed(model: Model) -> Model:
    """A copy of a module whose numbers lie where the model's do, until one of them is moved or given another type.

    Args:
        model: not modified; nothing may change the copy's numbers in place.
    """
    forget(model)
    parameters = {id(p): nn.Parameter(p.data, requires_grad=p.requires_grad) for p in model.parameters()}
    return copy.deepcopy(model, {**parameters, **{id(buffer): buffer for buffer in model.buffers()}})


def aliases(state: Mapping[str, Tensor]) -> dict[str, str]:
    """Further names of tied parameters, and the first name of each: those that share their storage.

    Args:
        state: as a module gives it (``state_dict()``); copies share nothing. Parameters that merely have equal values
            are not tied.
    """
    first: dict[tuple[object, ...], str] = {}
    found = {}
    for name, tensor in state.items():
        place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() > 0 and first.setdefault(place, name) != name:
            found[name] = first[place]
    return found


def _way_on(parameter: str, model: nn.Module, first: nn.Module) -> str:
    """The way on where a parameter has different shapes in two models."""
    found = [one.state_dict().get(parameter) for one in (model, first)]
    shapes = [() if tensor is None else tuple(tensor.shape) for tensor in found]
    return misfits.of_shapes(shapes, _configs(model, first))


def _tied_once(model: nn.Module, first: nn.Module) -> tuple[str, str] | None:
    """A parameter that is tied in one of two models alone, and the one that it is tied to."""
    own, wanted = aliases(model.state_dict()), aliases(first.state_dict())
    tied = sorted(own.keys() ^ wanted.keys())
    return (tied[0], (own | wanted)[tied[0]]) if tied else None


def _other(model: nn.Module, first: nn.Module) -> str:
    """A reason why two models with parameters of the same names and shapes have other symmetries."""
    if (found := _tied_once(model, first)) is not None:
        return f"{found[0]} is tied to {found[1]} in one of them alone"
    parts = dict(model.named_modules())
    for path, part in first.named_modules():
        if path in parts and type(parts[path]) is not type(part):
            return f"{path} is a {type(part).__name__} in one and a {type(parts[path]).__name__} in the other"
    return misfits.of_entries(_configs(model, first))


def _configs(*models: nn.Module) -> list[Any]:
    return [getattr(model, "config", model) for model in models]
