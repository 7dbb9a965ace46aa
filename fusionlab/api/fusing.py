"""One model from several of one architecture: match, then merge."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from fusionlab.advice import AUTO, choose
from fusionlab.api.given import Source, module_of, modules_of, named_base, warn_other_modules
from fusionlab.api.growing import of_one_size
from fusionlab.api.matching import Data, alignments_and_anchor
from fusionlab.api.merging import given_statistics, merged
from fusionlab.dtypes import as_wide_as, find_dtype, widened
from fusionlab.fusion.heads.of_base import NAME, fitted_base
from fusionlab.inputs import Inputs
from fusionlab.matching.align import choose_anchor
from fusionlab.matching.recipe import recipe
from fusionlab.merge_weights import merge_weights
from fusionlab.merging import check_merge, find_method
from fusionlab.models import refuse_unlike
from fusionlab.types import Model

_LOGGER = logging.getLogger("fusionlab")


def fuse(
    models: Sequence[Model | Source],
    preset: str = AUTO,
    method: str = "simple",
    anchor: int | str | None = None,
    weights: Sequence[float] | None = None,
    options: Mapping[str, Any] | None = None,
    data: Data = None,
    base: nn.Module | Source | None = None,
    seed: int = 0,
    dtype: str | torch.dtype | None = None,
    **hyperparameters: Any,
) -> Model:
    """One model from several: match, then merge.

    Args:
        models: end models of one class, or paths of their checkpoints, in one list; not modified. Those of different
            sizes are grown to one, as `align` does.
        preset: how to match, see `align`; ``auto`` for what `advise` says of the models, with data or without: nothing
            for fine-tunes of one base (``learned`` for classifiers whose mean classifies too few inputs as they do
            together), ``learned`` for models that were trained apart, on synthetic inputs where there are no data
            (``weights`` where these teach nothing, or where learning would take long). The logger ``fusionlab`` tells
            at level INFO which, why, and about how long it takes.
        method: how to merge, see `merge`.
        anchor: see `align`.
        weights: see `merge`.
        options: of the matching, and its ``trainer``, see `align`.
        data: for both, see `align` and `merge`.
        base: the model that all were fine-tuned from, for methods that need it, under any head or none; it is brought
            into the twins' basis. What it lacks is averaged. If None, the one that all of several LoRA adapters name.
        seed: of anything random.
        dtype: see `merge`.
        hyperparameters: of the merge method.

    Raises:
        InputError: see `align` and `merge`; or a base that does not fit the models.
    """
    given: list[Model] = modules_of(models, "fuse", preset)
    warn_other_modules(models, "fuse")
    base = named_base(models, method, hyperparameters) if base is None else base
    _refuse_method(method, merge_weights(weights, len(given)), hyperparameters, data is not None, base is not None)
    batches = None if data is None or given_statistics(data) else Inputs.from_batches(data, len(given))
    if preset == AUTO:
        named = {f"model {index}": model for index, model in enumerate(given)}
        choice = choose(named, batches is not None, inputs=batches)
        _LOGGER.info(choice.sentence)
        preset = choice.match
    given = of_one_size(given, batches, recipe(preset).matches)
    fitted = None if base is None else fitted_base(module_of(base, "base"), given[0])
    if fitted is not None:
        refuse_unlike({"model 0": given[0], NAME: fitted.model})
    # In the merge's type from the start, so that matching rounds nothing that the merge would keep.
    ends = list(widened(dict(enumerate(given)), find_dtype(dtype)).values())
    check_merge(
        [model.state_dict() for model in ends],
        method,
        weights,
        hyperparameters,
        None if fitted is None else fitted.known(fitted.model.state_dict()),
    )
    if not recipe(preset).matches and not options:
        choose_anchor([model.state_dict() for model in ends], anchor)
        return merged(given, method, weights, data, fitted, seed, dtype, **hyperparameters)
    found, index = alignments_and_anchor(ends, anchor, preset, batches, **{"seed": seed, **(options or {})})
    twins = [alignment.apply(model) for alignment, model in zip(found, ends, strict=True)]
    # What an anchor that was grown is filled with is none of the base model's.
    if fitted is not None:
        wide = as_wide_as(fitted.model, ends)
        fitted = replace(fitted, model=replace(found[index], filling={}).apply(wide))
    moved = list(zip(given, ends, found, strict=True)) if batches is None else ()
    return merged(twins, method, weights, data, fitted, seed, dtype, moved, **hyperparameters)


def _refuse_method(
    method: str, weights: Sequence[float], hyperparameters: Mapping[str, Any], has_data: bool, has_base: bool
) -> None:
    """Refuse a method that could not merge, before anything is matched."""
    chosen = find_method(method)
    chosen.check(weights, hyperparameters)
    given = {"base": has_base, "blueprint": True}
    for need in chosen.requires(**hyperparameters):
        if not given.get(need, has_data):
            raise chosen.missing(need)
