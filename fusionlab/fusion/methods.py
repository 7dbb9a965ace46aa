"""The merge methods of a fusion: refused before any matching, and their results as models."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from fusionlab.merging import check_merge, find_method
from fusionlab.models import with_state
from fusionlab.types import State


def refuse_methods(
    methods: Mapping[str, Mapping[str, Any]], states: Sequence[State], weights: Sequence[float], base: State | None
) -> None:
    """Refuse now what a merge would refuse after all matching.

    Args:
        methods: hyperparameters by the name of the method.
        states: the parameters of the end models, as they come.
        weights: of the models.
        base: the parameters of the base model; None if none was given.

    Raises:
        InputError: a base model that is missing, or hyperparameters that do not fit.
    """
    for name, values in methods.items():
        if base is None and "base" in find_method(name).requires(**values):
            raise find_method(name).missing("base")
        check_merge(states, name, weights, values, base)


def with_merged(model: nn.Module, state: State) -> nn.Module:
    """A model with the parameters of a merged state, and its own others.

    Args:
        model: not modified.
        state: parameters by name, not all of them where others are kept.
    """
    return with_state(model, {**model.state_dict(), **state})
