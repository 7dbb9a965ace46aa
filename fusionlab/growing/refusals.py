"""Sentences for models that cannot be grown."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from fusionlab.evaluation.preservation import EXACT
from fusionlab.growing.axes import Widening
from fusionlab.growing.layers import Placement
from fusionlab.growing.target import differences, fields_of, worded
from fusionlab.symmetry import Blueprint
from fusionlab.symmetry.roles import Role


def unequal(small: nn.Module, large: nn.Module, name: str, size: int | None, larger: int | None) -> str:
    """The sentence for two sizes of a dimension that do not fit.

    Args:
        small: the small model.
        large: one of the larger architecture.
        name: of the parameter, in the small model.
        size: its length in the small model along the dimension.
        larger: its length in the larger one.
    """
    if size == larger:
        found = worded(differences(small, large))
        return f"{name!r} has other symmetries in the larger model; the configs differ in {found}; expected sizes only"
    fields = fields_of(small, large, (size, larger))
    named = f" ({', '.join(fields)})" if fields else ""
    if size is not None and larger is not None and larger < size:
        return (
            f"{name!r} has a dimension of {size} that would be {larger}{named}; expected a larger model with at least "
            f"{size} there"
        )
    return (
        f"{name!r} has {size} in a dimension that is no hidden one (tokens, pixels, positions or the model's own "
        f"output) and would have {larger}{named}; expected a larger model with {size} there"
    )


def inexact(
    small: nn.Module, large: nn.Module, places: Sequence[Placement], ours: Blueprint, tried: Widening, least: float
) -> str:
    """The sentence for models of which no embedding is exact.

    Args:
        small: the small model.
        large: one of the larger architecture.
        places: where layers went.
        ours: the small model's blueprint.
        tried: the last maps that were tried.
        least: the smallest error of any, relative to the largest logit.
    """
    hint = ""
    if any(few < many and ours.spaces[name].role == Role.EXPERTS for name, (few, many) in tried.sizes.items()):
        hint = "; experts that are added are picked unless a router has biases that hold them down"
    elif any(placement.deepens for placement in places):
        hint = (
            "; where norms stand behind the sums, as in BERT, a layer that writes nothing still normalises, so that "
            "the number of layers must stay"
        )
    found = worded(differences(small, large)) or "nothing"
    return (
        f"no exact embedding of this {type(small).__name__} is known: its logits would differ by {least:.1e} of the "
        f"largest, where {EXACT:.0e} is allowed{hint}; the configs differ in {found}; expected other sizes, "
        f"and nothing else that differs"
    )
