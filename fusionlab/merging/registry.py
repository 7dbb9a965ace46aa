"""The registry that every merge method joins, and the one way to call it."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fusionlab.errors import InputError

State = Mapping[str, Tensor]
MergeMethod = Callable[..., dict[str, Tensor]]
_registry: dict[str, MergeMethod] = {}


def merge_method(name: str) -> Callable[[MergeMethod], MergeMethod]:
    """Register ``f(states, weights, **hyperparameters) -> state`` as a merge method."""

    def register(method: MergeMethod) -> MergeMethod:
        _registry[name] = method
        return method

    return register


def methods() -> tuple[str, ...]:
    """The names of all merge methods."""
    return tuple(sorted(_registry))


def merge_weights(weights: Sequence[float] | None, count: int) -> list[float]:
    """One weight for each model, summing to 1.

    Args:
        weights: any finite, non-negative numbers, scaled to sum to 1; None for equal weights.
        count: how many models there are.

    Raises:
        InputError: another number of weights, a negative one, or none above zero.
    """
    if weights is None:
        return [1 / count] * count
    if len(weights) != count:
        raise InputError(f"weights has {len(weights)} numbers for {count} models; expected one for each")
    if any(not math.isfinite(w) or w < 0 for w in weights) or sum(weights) == 0:
        raise InputError(f"weights are {', '.join(map(str, weights))}; expected numbers from 0 up, one of them above 0")
    return [w / sum(weights) for w in weights]


@torch.no_grad()
def merge_states(
    states: Sequence[State], method: str = "simple", weights: Sequence[float] | None = None, **hyperparameters: Any
) -> dict[str, Tensor]:
    """Merge models that share one basis.

    Args:
        states: parameters and buffers by name, the same names and shapes in each; not modified.
        method: one of `methods`.
        weights: one for each model, scaled to sum to 1; equal if None.
        hyperparameters: the method's own.

    Raises:
        InputError: an unknown method or hyperparameter, too few models, or models that do not fit each other.
    """
    if method not in _registry:
        raise InputError(f"merge method {method!r} does not exist; expected one of {', '.join(methods())}")
    known = [p for p in inspect.signature(_registry[method]).parameters if p not in ("states", "weights")]
    for name in hyperparameters:
        if name not in known:
            raise InputError(
                f"merge method {method!r} has no hyperparameter {name!r}; expected {', '.join(known) or 'none'}"
            )
    if len(states) < 2:
        raise InputError(f"merging was given {len(states)} model; expected at least two")
    _check_alike(states)
    return _registry[method](states, merge_weights(weights, len(states)), **hyperparameters)


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
