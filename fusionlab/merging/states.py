"""Models that are in memory, merged by any method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fusionlab.batch_norm import running_statistics
from fusionlab.errors import InputError
from fusionlab.merge_weights import merge_weights
from fusionlab.merging.by_parameter import weights_alone
from fusionlab.merging.ingredients import Ingredients, WholeSurvey
from fusionlab.merging.registry import find_method
from fusionlab.statistics import Statistics
from fusionlab.types import Batch, State

if TYPE_CHECKING:  # takes as long to import as all that a merge of two small models does
    from fusionlab.symmetry import Blueprint


@torch.no_grad()
def merge_states(
    states: Sequence[State],
    method: str = "simple",
    weights: Sequence[float] | None = None,
    *,
    blueprint: Blueprint | None = None,
    statistics: Sequence[Mapping[str, Statistics]] = (),
    base: State | None = None,
    score: Callable[[State], float] | None = None,
    seed: int = 0,
    inputs: Sequence[Iterable[Batch]] = (),
    model: Callable[[State, int], nn.Module] | None = None,
    names: Sequence[str] = (),
    tell: Callable[[str], object] = lambda _: None,
    **hyperparameters: Any,
) -> dict[str, Tensor]:
    """Merge models that share one basis.

    Methods with task vectors average running statistics of BatchNorm; see `fusionlab.batch_norm.remeasure` for
    what to do about those of any merge.

    Args:
        states: parameters and buffers by name, the same names and shapes in each; not modified.
        method: one of `methods`.
        weights: one for each model, scaled to sum to 1; equal if None.
        blueprint: see `Ingredients`, like all that follows.
        statistics: for each model, by kind.
        base: the model that all were fine-tuned from. Parameters that it lacks, such as a head, are averaged.
        score: how good a merged state is, higher is better.
        seed: of anything random.
        inputs: for each model batches like those that it was trained on, for methods that run models.
        model: makes a model of a state and a model's place, for these.
        names: of the models, one for each, for what is told; their places if empty.
        tell: is given each sentence on what the method chose, such as the models that ``soup`` kept.
        hyperparameters: the method's own; see `MergeMethod.merge`.

    Raises:
        InputError: an unknown method or hyperparameter, too few models, models that do not fit each other, or
            something that the method needs is missing or belongs to another model.
    """
    chosen = find_method(method)
    tied = check_merge(states, method, weights, hyperparameters, base)
    needs = chosen.requires(**hyperparameters)
    lacking = [name for name in states[0] if base is not None and name not in base] if "base" in needs else []
    runs = model if inputs else None
    given = {"base": base, "score": score, "blueprint": blueprint, "inputs": runs}
    for need in needs:
        if given.get(need) is None and not (statistics and all(need in found for found in statistics)):
            raise chosen.missing(need)
    for index, (found, state) in enumerate(zip(statistics, states, strict=False)):
        for need in needs:
            if need in found:
                found[need].check(state, f"model {index}")
    shares = merge_weights(weights, len(states))
    ingredients = Ingredients(
        states, shares, blueprint, statistics, base, score, seed, inputs=inputs, model=model, names=names, tell=tell
    )
    # A variance is measured, not learned: with a task vector added it may be negative.
    measured = [*lacking, *(running_statistics(states[0]) if "base" in needs else [])]
    averaged = ingredients.only(measured)
    mean = find_method("simple").merge(averaged, **weights_alone(hyperparameters)) if measured else {}
    ingredients = ingredients.without({*tied, *measured})
    if model is not None and mean:
        whole = model
        ingredients = replace(ingredients, model=lambda state, place: whole({**mean, **state}, place))
    if chosen.survey is not None:
        found = chosen.survey(WholeSurvey(ingredients), **(chosen.hyperparameters | hyperparameters))
        ingredients = replace(ingredients, surveyed=found)
    merged = chosen.merge(ingredients, **hyperparameters) | mean
    return {name: merged[tied.get(name, name)] for name in states[0]}


def check_merge(
    states: Sequence[State],
    method: str,
    weights: Sequence[float] | None,
    hyperparameters: Mapping[str, Any],
    base: State | None = None,
) -> dict[str, str]:
    """Refuse what `merge_states` would refuse of models and settings, before any work; arguments are its own.

    Returns:
        Further names of parameters that are merged under another one, and that name.

    Raises:
        InputError: an unknown method, what `MergeMethod.check` refuses, too few models, or models that do not fit each
            other.
    """
    chosen = find_method(method)
    needs = chosen.requires(**hyperparameters)
    if len(states) < 2:
        raise InputError(f"merging was given {len(states)} model; expected at least two")
    _check_alike(states)
    everything = list(states)
    if base is not None:
        _check_alike([{name: tensor for name, tensor in states[0].items() if name in base}, base])
        everything.append(base)
    # A tied parameter is merged once, but by methods that go by layers or look at a whole state.
    tied = _tied(everything) if chosen.unit != "model" or set(needs) <= {"base"} else {}
    chosen.check(merge_weights(weights, len(states)), hyperparameters, list(states[0]), tied)
    return tied


def _tied(states: Sequence[State]) -> dict[str, str]:
    """Further names of parameters that are tied in all of several models, and the first name of each."""
    from fusionlab.models import aliases  # noqa: PLC0415 - imports what a merge of files does without

    first, *others = [aliases(state) for state in states]
    return {name: known for name, known in first.items() if all(other.get(name) == known for other in others)}


def _check_alike(states: Sequence[State]) -> None:
    first = states[0]
    for index, state in enumerate(states[1:], start=1):
        if odd := sorted(set(first) ^ set(state)):
            where = f"model {index}" if odd[0] in state else "the first model"
            raise InputError(f"only {where} has the parameter {odd[0]!r}; expected the same parameters in all models")
        for name in first:
            if first[name].shape != state[name].shape:
                shapes = " and ".join("x".join(map(str, s[name].shape)) or "scalar" for s in (first, state))
                raise InputError(f"parameter {name!r} has shapes {shapes} in models 0 and {index}; expected one shape")
