"""Norms with another epsilon in the larger model."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fusionlab.growing.target import differences
from fusionlab.types import Model

_EPSILON = re.compile(r"(.*[._])?eps(ilon)?")


@dataclass(frozen=True)
class OtherEpsilon:
    """The larger model's epsilon of norms, where it is another one than the small model's.

    Attributes:
        logits: of the small model with that epsilon, on the inputs that growing is checked on.
        length: the factor of the stream with which norms act as they did; None where several epsilons differ otherwise.
    """

    logits: Tensor
    length: float | None


def other_epsilons(small: nn.Module, large: nn.Module) -> Mapping[str, tuple[float, float]]:
    """The fields of the configs that are epsilons of norms and differ, with both values."""
    found = differences(small, large)
    return {name: pair for name, pair in found.items() if _EPSILON.fullmatch(name) and all(map(_is_positive, pair))}


def other_epsilon(small: Model, large: nn.Module, compute: Callable[[Model], Tensor]) -> OtherEpsilon | None:
    """The larger model's epsilon of norms; None where both models have the same.

    Args:
        small: the small model; its numbers may be missing.
        large: one of the larger architecture.
        compute: gives the logits of a model of the small one's class and sizes, with its parameters.
    """
    fields = other_epsilons(small, large)
    if not fields:
        return None
    config: Any = copy.deepcopy(small.config)
    for name, (_, epsilon) in fields.items():
        *path, last = name.split(".")
        inner = config
        for part in path:
            inner = getattr(inner, part)
        setattr(inner, last, epsilon)
    with torch.random.fork_rng(devices=[]):
        changed: Model = type(small)(config).eval()
    ratios = {theirs / ours for ours, theirs in fields.values()}
    return OtherEpsilon(compute(changed), math.sqrt(ratios.pop()) if len(ratios) == 1 else None)


def epsilon_note(fields: Mapping[str, tuple[float, float]], length: float, effect: float) -> str:
    """A sentence on another epsilon of norms; nothing where there is none.

    Args:
        fields: of the configs, with the values before and after.
        length: the factor of the stream that makes good for it, or 1.
        effect: largest change of the logits, relative to the largest, where nothing does.
    """
    if not fields:
        return ""
    told = ", ".join(f"{name} {ours:g} and {theirs:g}" for name, (ours, theirs) in fields.items())
    if length != 1:
        return (
            f"The larger model's norms have another epsilon ({told}): all that is written to the stream is "
            f"{length:.3g} times as long, so that norms act as they did."
        )
    return (
        f"The larger model's norms have another epsilon ({told}), which moves logits by {effect:.1e} of the largest; "
        f"beside that the function is the same."
    )


def _is_positive(value: object) -> bool:
    return isinstance(value, float) and value > 0
