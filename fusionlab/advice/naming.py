"""Parameters of two models that are the same one: names as files and classes have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fusionlab.advice.tensors import Weights, module_weights
from fusionlab.errors import InputError


def same_names(first: Mapping[str, object], second: Mapping[str, object]) -> dict[str, str]:
    """The names of one model that the other has, and what they are called there.

    A model without a head has names without the prefix that the same model with a head gives them.

    Args:
        first: tensors of one.
        second: tensors of the other.
    """
    best = {name: name for name in first if name in second}
    for longer, shorter in ((first, second), (second, first)):
        starts = Counter(name.partition(".")[0] for name in longer)
        prefix = f"{starts.most_common(1)[0][0]}." if starts else ""
        found = {f"{prefix}{name}": name for name in shorter if f"{prefix}{name}" in longer}
        if len(found) > len(best):
            best = found if longer is first else {name: called for called, name in found.items()}
    return best


def of_one_naming(models: Sequence[Weights]) -> list[Weights]:
    """Models whose parameters have the same names where they can have.

    Files may call parameters otherwise than the class that is made of them does (transformers reads several names), so
    models with few names in common are read as a whole, where their class is known.

    Args:
        models: at least one.
    """
    first, *others = models
    if all(_fit(first.tensors, other.tensors) for other in others if other.tensors and first.tensors):
        return list(models)
    return [_as_module(model) for model in models]


def _fit(first: Mapping[str, object], second: Mapping[str, object]) -> bool:
    """True if most of the smaller model's names are the other's too."""
    return 2 * len(same_names(first, second)) > min(len(first), len(second))


def _as_module(model: Weights) -> Weights:
    """A model under the names of its class, where it has one and is stored."""
    if model.source is None or not model.tensors:
        return model
    from fusionlab.checkpoints import load  # noqa: PLC0415 - imports what most models are looked at without

    try:
        return replace(module_weights(load(model.source), model.name), source=model.source)
    except InputError:
        return model
