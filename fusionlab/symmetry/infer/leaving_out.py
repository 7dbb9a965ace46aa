"""A blueprint with some of its spaces left out: what only they moved stays as it is."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from fusionlab.symmetry.axes import Across, Along, Axis, Concat, Fixed, Per, Scaled, scaled
from fusionlab.symmetry.blueprint import Blueprint
from fusionlab.symmetry.infer.layout import joined


def without(blueprint: Blueprint, names: Collection[str], reason: str) -> Blueprint:
    """The blueprint without some spaces, which index no others; the notes give the reason."""
    if not names:
        return blueprint
    kept = {name: space for name, space in blueprint.spaces.items() if name not in names}

    def fixed(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(_fixed(axis, names) for axis in axes)

    after = blueprint.after_folding
    return replace(
        blueprint,
        spaces=kept,
        parameters={name: fixed(axes) for name, axes in blueprint.parameters.items()},
        outputs={name: fixed(axes) for name, axes in blueprint.outputs.items()},
        notes=(*blueprint.notes, reason),
        seen_key_biases=tuple(name for name in blueprint.seen_key_biases if name not in names),
        trials={name: trials for name, trials in blueprint.trials.items() if name not in names},
        after_folding=None if after is None else without(after, names, reason),
    )


def _fixed(axis: Axis, names: Collection[str]) -> Axis:
    match axis:
        case Along():
            return Fixed(axis.size) if axis.space in names else axis
        case Per() | Scaled() | Across():
            return _around(axis, _fixed(axis.inner, names), names)
        case Concat():
            return joined(_fixed(part, names) for part in axis.parts)
    return axis


def _around(axis: Per | Scaled | Across, inner: Axis, names: Collection[str]) -> Axis:
    """The axis with another one inside."""
    match axis:
        case Per() if axis.space in names:
            return joined([inner] * axis.count)
        case Per():
            return Along(axis.space, axis.count) if inner == Fixed(1) else Per(axis.space, axis.count, inner)
        case Scaled():
            return inner if axis.space in names else scaled(axis.space, axis.power, inner)
    return Across(axis.blocks, axis.dim, inner)
