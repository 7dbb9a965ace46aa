"""One model from several that share a basis."""

import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fusionlab.api.given import Source, module_of, modules_of, named_base, warn_other_modules
from fusionlab.api.matching import Data
from fusionlab.batch_norm import AVERAGED, batch_norms, remeasured
from fusionlab.dtypes import find_dtype, in_types, widened
from fusionlab.errors import InputError
from fusionlab.evaluation.task_scores import score_of
from fusionlab.finite import refuse_not_finite
from fusionlab.fusion.heads.of_base import FittedBase, fitted_base
from fusionlab.inputs import Inputs
from fusionlab.merging import check_merge, find_method, merge_states
from fusionlab.merging.method import KINDS
from fusionlab.models import refuse_misfit, refuse_other_ties, with_state
from fusionlab.stages import run
from fusionlab.statistics import Statistics
from fusionlab.statistics.store import StatisticsStore
from fusionlab.symmetry import Alignment, blueprint
from fusionlab.types import Model

_LOGGER = logging.getLogger("fusionlab")


def merge(
    models: Sequence[Model | Source],
    method: str = "simple",
    weights: Sequence[float] | None = None,
    data: Data | Sequence[Mapping[str, Statistics]] = None,
    base: nn.Module | Source | None = None,
    seed: int = 0,
    dtype: str | torch.dtype | None = None,
    **hyperparameters: Any,
) -> Model:
    """One model from several that share a basis (fine-tunes of one base, or matched twins).

    What a method chose, such as the models that ``soup`` kept or the coefficients of ``adamerging``, the logger
    ``fusionlab`` tells at level INFO, with models called ``model 0`` and so on by their places.

    Args:
        models: end models of one class, or paths of their checkpoints, in one list; not modified. Of compiled and
            parallel modules the model inside is taken.
        method: merge method.
        weights: one for each model, scaled to sum to 1; equal if None.
        data: for methods that look at data, and for models with BatchNorm, whose running statistics are measured on it
            in the merge: an iterable of batches for all models, one for each, or the statistics of
            each model by kind, as `gather` and `load_statistics` give them.
        base: the model that all were fine-tuned from, for methods that need it, under any head or none; in the models'
            basis (see `alignments` where they are matched twins). What it lacks, such as a head, is averaged. LoRA
            adapters name theirs: if None, the one that all of them name.
        seed: of anything random.
        dtype: of the merge, such as ``bfloat16``; that of the models, or the widest where theirs differ, if None.
        hyperparameters: the method's own.

    Raises:
        InputError: an unknown method or hyperparameter, models that do not fit each other, or something that the
            method needs is missing.
    """
    stored: list[Model] = modules_of(models, "merge", method)
    warn_other_modules(models, "merge")
    base = named_base(models, method, hyperparameters) if base is None else base
    given = None if base is None else module_of(base, "base")
    if given is not None:
        refuse_not_finite("the base model", given)
    if any(type(model) is not type(stored[0]) for model in stored):
        raise InputError(f"merge was given models of classes {_classes(stored)}; expected one class")
    if len(stored) > 1:
        refuse_misfit(stored)
    fitted = None if given is None else fitted_base(given, stored[0])
    if fitted is not None and type(fitted.model) is type(stored[0]):
        refuse_other_ties({"the base model": fitted.model, "model 0": stored[0]})
    return merged(stored, method, weights, data, fitted, seed, dtype, **hyperparameters)


def merged(
    stored: Sequence[Model],
    method: str,
    weights: Sequence[float] | None,
    data: Data | Sequence[Mapping[str, Statistics]],
    base: FittedBase | None,
    seed: int,
    dtype: str | torch.dtype | None,
    twins_of: Sequence[tuple[nn.Module, nn.Module, Alignment]] = (),
    **hyperparameters: Any,
) -> Model:
    """The merge of models that fit each other.

    Args:
        stored: end models.
        method: see `merge`, like all that follows.
        weights: one for each model.
        data: batches or statistics.
        base: the base model in the models' class.
        seed: of anything random.
        dtype: of the merge.
        twins_of: for each model, where these are matched twins, the end model as it was given, in the merge's type, and
            the alignment from that to the twin: given statistics are of end models, and are moved with them.
        hyperparameters: the method's own.

    Raises:
        InputError: see `merge`.
    """
    chosen = find_dtype(dtype)
    ends = list(widened(dict(enumerate(stored)), chosen).values())
    of_base = None if base is None else base.known(base.model.state_dict())
    check_merge([model.state_dict() for model in ends], method, weights, hyperparameters, of_base)
    needs = find_method(method).requires(**hyperparameters)
    # A class whose symmetry nobody can infer is merged too, by what needs none.
    description = blueprint(ends[0]) if "blueprint" in needs else None
    kinds = [need for need in needs if need in KINDS]
    statistics: Sequence[Mapping[str, Statistics]] = ()
    if kinds and data is not None:
        given = given_statistics(data)
        inputs = None if given else Inputs.from_batches(data, len(ends))
        store = StatisticsStore(inputs, given, settings={"seed": seed, **hyperparameters})
        for before, model in zip(stored, ends, strict=True):
            if before is not model:
                store.also_of(before.state_dict(), model.state_dict())
        for as_given, end, _ in twins_of:
            if as_given is not end:
                store.also_of(as_given.state_dict(), end.state_dict())
        moved = {index: (end, alignment) for index, (_, end, alignment) in enumerate(twins_of)}
        statistics = [run(store.of(index, model, kinds, moved.get(index))) for index, model in enumerate(ends)]
    score = None
    if "score" in needs and data is not None:
        batches = Inputs.from_batches(data, len(ends)).shared

        def score(state: Mapping[str, Tensor]) -> float:
            return score_of(remeasured(with_state(ends[0], state), batches), [batches])

    runs = "inputs" in needs and data is not None and not given_statistics(data)
    state = merge_states(
        [model.state_dict() for model in ends],
        method,
        weights,
        blueprint=description,
        statistics=statistics,
        base=of_base,
        score=score,
        seed=seed,
        inputs=Inputs.from_batches(data, len(ends)).own if runs else (),
        model=lambda state, _: with_state(ends[0], state),
        tell=lambda note: _LOGGER.info("%s: %s", method, note),
        **hyperparameters,
    )
    made = with_state(ends[0], state)
    if batch_norms(made):
        if data is None or given_statistics(data):
            warnings.warn(f"{AVERAGED[0].upper()}{AVERAGED[1:]}.", stacklevel=2)
        else:
            made = remeasured(made, Inputs.from_batches(data, len(ends)).shared)
    return made if chosen is None else in_types(made, chosen)


def given_statistics(data: Any) -> Sequence[Mapping[str, Statistics]]:
    """The given statistics, one mapping by kind for each model; nothing where data was given in their place."""
    if not isinstance(data, Sequence) or not data or not isinstance(data[0], Mapping):
        return ()
    return data if all(isinstance(value, Statistics) for found in data for value in found.values()) else ()


def _classes(models: Sequence[nn.Module]) -> str:
    return " and ".join(dict.fromkeys(type(model).__name__ for model in models))
