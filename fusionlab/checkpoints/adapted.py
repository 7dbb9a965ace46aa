"""A base model with the changes of a LoRA adapter in its weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedModel,
)
from transformers.pytorch_utils import Conv1D

from fusionlab.checkpoints import huggingface
from fusionlab.checkpoints.adapters import Adapter, placed
from fusionlab.checkpoints.files import CONFIG, read_json
from fusionlab.checkpoints.huggingface_config import auto_class_of, load_config, model_class
from fusionlab.errors import InputError

# The class that an adapter's task asks for; others are changed as the base model's own class.
_TASKS: dict[str, Any] = {
    "CAUSAL_LM": AutoModelForCausalLM,
    "SEQ_2_SEQ_LM": AutoModelForSeq2SeqLM,
    "SEQ_CLS": AutoModelForSequenceClassification,
    "TOKEN_CLS": AutoModelForTokenClassification,
    "FEATURE_EXTRACTION": AutoModel,
    "QUESTION_ANS": AutoModelForQuestionAnswering,
}


def read_adapted(adapter: Adapter, base: Path) -> PreTrainedModel:
    """The base model with an adapter's changes in its weights, in the type that the base model is stored in.

    Args:
        adapter: what is changed.
        base: the folder of the base model, of transformers.

    Returns:
        The model, of the class that the adapter's task asks for, in eval mode.

    Raises:
        InputError: the base model cannot be read, or is not the one that the adapter was trained on.
    """
    model = _base_model(adapter, base)
    state = model.state_dict(keep_vars=True)
    values: dict[str, Tensor] = {}
    changes, stacks = placed(adapter, model, base)
    for name, stack in stacks.items():
        values[name] = stack.changed(adapter.saved.get(name, state[name].detach()))
    for module, change in changes.items():
        name = f"{module}.weight"
        _require(adapter, base, name, state)
        try:
            turned = isinstance(model.get_submodule(module), nn.Embedding | Conv1D)
            values[name] = change.changed(adapter.saved.get(name, state[name].detach()), turned)
        except ValueError as error:
            raise InputError(
                f"{adapter.folder}: {error}, {name} of {base}; expected the adapter's own base model"
            ) from error
        if change.bias is not None:
            bias = f"{module}.bias"
            _require(adapter, base, bias, state)
            before = adapter.saved.get(bias, state[bias].detach())
            values[bias] = (before.double() + change.scale * change.bias.double()).to(before.dtype)
    for name, tensor in adapter.saved.items():
        _require(adapter, base, name, state)
        if tensor.shape != state[name].shape or tensor.is_floating_point() != state[name].is_floating_point():
            _refuse_other_tokens(adapter, base, model, name, tensor)
            raise InputError(
                f"{adapter.folder}: {name} is {tensor.dtype} {tuple(tensor.shape)}, and in {base} {state[name].dtype} "
                f"{tuple(state[name].shape)}; expected the adapter's own base model"
            )
        values.setdefault(name, tensor)
    if not adapter.is_tied:
        _refuse_half_tied(adapter, state, values)
    with torch.no_grad():
        for name, value in values.items():
            state[name].copy_(value)
    return model.eval()


# Heads that PEFT saves whole for a task, and expects in the file.
HEADS = {
    "SEQ_CLS": ("classifier", "score"),
    "TOKEN_CLS": ("classifier", "score"),
    "QUESTION_ANS": ("qa_outputs",),
}


def task_of(model: PreTrainedModel) -> str | None:
    """The task of a model, as PEFT names it; None where it has none.

    Args:
        model: such as a ``BertForSequenceClassification``, whose task is ``SEQ_CLS``.
    """
    for task, auto in _TASKS.items():
        if auto is not AutoModel and type(model) in auto._model_mapping.values():
            return task
    return None


def token_tables(model: PreTrainedModel) -> frozenset[str]:
    """The names of a model's parameters with a row for each token: of what reads tokens and of what writes them.

    Args:
        model: of transformers; of images, or another without tokens, there are none.
    """
    tables = set()
    for find in (model.get_input_embeddings, model.get_output_embeddings):
        try:
            layer: Any = find()
        except (NotImplementedError, AttributeError):
            continue  # not every class has one
        if isinstance(layer, nn.Embedding | nn.Linear):
            tables.add(id(layer.weight))
    return frozenset(name for name, tensor in model.state_dict(keep_vars=True).items() if id(tensor) in tables)


def base_state(model: PreTrainedModel, base: Path) -> dict[str, Tensor]:
    """The parameters of a model's base model, by the model's own names; without those of a head that the base has not.

    Args:
        model: that was fine-tuned.
        base: the folder of the base model, of transformers.

    Raises:
        InputError: the base model cannot be read, or is of another architecture.
    """
    config = load_config(base)
    if model_class(config, base / CONFIG) is type(model):
        return huggingface.read_folder(base).state_dict()
    if (task := task_of(model)) is None or config.model_type != model.config.model_type:
        raise InputError(
            f"{base} is a {config.model_type} model, and not the base model of a {type(model).__name__}; expected that"
        )
    found, fresh = huggingface.load_with_head(base, _TASKS[task], None, num_labels=model.config.num_labels)
    return {name: tensor for name, tensor in found.state_dict().items() if name not in fresh}


def changes_own_class(adapter: Adapter, base: Path) -> bool:
    """True if an adapter changes its base model as the class that this is stored as; others put a head on it.

    Args:
        adapter: as it is stored.
        base: the folder of its base model.

    Raises:
        InputError: that is no transformers folder, or its class has no such task.
    """
    if not base.is_dir() or not (base / CONFIG).is_file() or "architecture" in read_json(base / CONFIG):
        raise InputError(f"{adapter.folder}: the base model {base} is no transformers folder; expected one")
    config, auto = load_config(base), _TASKS.get(adapter.task or "")
    return auto is None or auto_class_of(config, auto, base) is model_class(config, base / CONFIG)


def _base_model(adapter: Adapter, base: Path) -> PreTrainedModel:
    """The base model as the class that the adapter changes."""
    rows = [tensor.shape[0] for name, tensor in adapter.saved.items() if name.endswith("weight") and tensor.ndim == 2]
    auto: Any = _TASKS.get(adapter.task or "")
    if changes_own_class(adapter, base):
        model = huggingface.read_folder(base)
        if not _has_other_classes(adapter, model):
            return model
        auto = type(model)
    # A head that the base model has not, or not for so many classes, which came with the adapter.
    model, fresh = huggingface.load_with_head(base, auto, None, **({"num_labels": min(rows)} if rows else {}))
    if missing := [name for name in fresh if name not in adapter.saved]:
        raise InputError(
            f"{adapter.folder}: neither {base} nor the adapter has {missing[0]}; expected the head in modules_to_save"
        )
    return model


def _has_other_classes(adapter: Adapter, model: PreTrainedModel) -> bool:
    """True if an adapter has the head of a model like this one for another number of classes."""
    own, tables = model.state_dict(), token_tables(model)
    saved = [(name, tensor) for name, tensor in adapter.saved.items() if name in own and name not in tables]
    return any(
        tensor.shape[1:] == own[name].shape[1:] and len(tensor) != len(own[name]) == model.config.num_labels
        for name, tensor in saved
        if tensor.ndim
    )


def _require(adapter: Adapter, base: Path, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise InputError(
            f"{adapter.folder} changes {name}, which {base} does not have; expected the adapter's own base model"
        )


def _refuse_other_tokens(adapter: Adapter, base: Path, model: PreTrainedModel, name: str, tensor: Tensor) -> None:
    """Refuse tokens that were added to the base model before the adapter was trained."""
    old = model.state_dict()[name]
    if name in token_tables(model) and tensor.shape[1:] == old.shape[1:]:
        raise InputError(
            f"{adapter.folder} has {len(tensor)} rows of {name}, one for each token, and {base} has {len(old)}; "
            f"expected --base, a folder with that model after resize_token_embeddings({len(tensor)})"
        )


def _is_one(value: Tensor, other: Tensor, before: Tensor) -> bool:
    """Two changes of one parameter are the same, to rounding."""
    if not before.is_floating_point():  # a count of batches
        return torch.equal(value, other)
    rounding = torch.finfo(before.dtype).eps * before.float().norm()
    return bool((value - other).norm() <= 1e-3 * (other - before.detach().float()).norm() + rounding)


def _refuse_half_tied(adapter: Adapter, state: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Refuse a change of one of two parameters that are one in the base model."""
    places: dict[int, list[str]] = {}
    for name, tensor in state.items():
        places.setdefault(id(tensor), []).append(name)
    for names in places.values():
        changed = [name for name in names if name in values]
        first = values[changed[0]].float() if changed else None
        if first is not None and not all(n in values and _is_one(values[n].float(), first, state[n]) for n in names):
            other = next(n for n in names if n != changed[0])
            raise InputError(
                f"{adapter.folder} changes {changed[0]}, which is one parameter with {other} in the base model; "
                f"expected a base model that is not tied, or a model merged by PEFT's merge_and_unload"
            )
