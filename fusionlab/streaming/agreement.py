"""Folders that can be merged tensor by tensor: those that agree in names, shapes and configs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fusionlab import misfits
from fusionlab.checkpoints.settings import OF_POSITIONS, OF_USE, differing, differing_as_read
from fusionlab.checkpoints.weights import refuse_integers
from fusionlab.errors import InputError
from fusionlab.merging.method import MergeMethod
from fusionlab.streaming.known import is_known
from fusionlab.streaming.stacked import stacks_of
from fusionlab.streaming.stored import StoredModel

# What of a config changes neither parameters nor what is exchangeable among them.
_FREE = f"{OF_USE}|{OF_POSITIONS}"
# Buffers that are meant to hold infinities; reading a model as a whole knows them from parameters.
_MASK = re.compile(r"(.*\.)?\w*(mask|masked_bias)")


def may_stream(models: Sequence[StoredModel], base: StoredModel | None, method: MergeMethod) -> bool:
    """True if models can be merged tensor by tensor.

    They can where all have the same names, shapes and configs. Names that differ may stand for the same parameters, as
    transformers reads several; models of a class that it knows are then read as a whole, which finds that out, or
    refuses them in a sentence of its own. Of an unknown class there is nothing more to find out.

    Args:
        models: two or more.
        base: that all were fine-tuned from, if one was given.
        method: that merges them; of one that needs whole models nothing is said but that they fit each other.

    Raises:
        InputError: shapes that differ, labels in another order, integers in place of parameters, or models of an
            unknown class that differ in names or configs; names the tensor or the entry.
    """
    first, *others = (*models, *([base] if base is not None else []))
    if any(model.config.get("quantization_config") for model in (first, *others)):
        return False
    for other in others:
        if odd := sorted(first.tensors.keys() ^ other.tensors.keys()):
            if is_known(first):
                return False
            has, lacks = (first, other) if odd[0] in first.tensors else (other, first)
            raise InputError(
                f"{has.source} has the parameter {odd[0]!r}, which {lacks.source} lacks; expected one architecture"
            )
    for model in (first, *others):
        integers = {n: len(t.shape) for n, t in model.tensors.items() if not t.dtype.is_floating_point}
        refuse_integers(model.location, integers, {})
    for other in others:
        _refuse_shapes(first, other)
        if (sentence := misfits.of_labels([other.source, first.source], [other.config, first.config])) is not None:
            raise InputError(sentence)
        if (found := next(differing(first.config, other.config, _FREE), None)) is not None:
            if first.format == "timm":
                return False
            if is_known(first):
                # What one says and the other leaves at its default is no difference; of others models are told.
                if differing_as_read(first.config, other.config, _FREE, other.source) != []:
                    return False
                continue
            raise InputError(
                f"config.json of {other.source} and {first.source} differ in {found[0]!r}; expected equal ones, as "
                f"transformers does not know the model type {first.config.get('model_type')!r}"
            )
    if any(_MASK.fullmatch(name) and stored.dtype.is_floating_point for name, stored in first.tensors.items()):
        return not is_known(first)
    return method.unit in ("number", "model") or stacks_of(first) is not None


def _refuse_shapes(first: StoredModel, other: StoredModel) -> None:
    """Refuse two models with the same names of which one has another shape, or integers in place of numbers."""
    for name, stored in first.tensors.items():
        found = other.tensors[name]
        if found.shape != stored.shape:
            raise InputError(
                f"the parameter {name!r} has shape {misfits.words_of(found.shape)} in {other.source}; expected shape "
                f"{misfits.words_of(stored.shape)} as in {first.source}"
                f"{misfits.of_shapes([found.shape, stored.shape], [other.config, first.config])}"
            )
        if found.dtype.is_floating_point != stored.dtype.is_floating_point:
            whole = other if stored.dtype.is_floating_point else first
            raise InputError(
                f"{whole.location}: parameter {name} holds integers, but floating-point numbers were expected"
            )
