"""Axes that list the same part once for each layer, as the tables of Gemma 4 that every layer reads its own part of.

A small model lists as many as it has layers, the real one as many as that has.
"""

from __future__ import annotations

from dataclasses import replace

from fusionlab.symmetry.axes import Axis, Concat
from fusionlab.symmetry.blueprint import Blueprint
from fusionlab.symmetry.infer.places import Places


def listed_by_layer(small: Blueprint, places: Places) -> Blueprint | None:
    """The small model's blueprint with such axes as long as the real model's layers are many; None where it has none.

    Equal parts that are as many as the small model's layers may be so by chance: for a blueprint that does not grow
    as it is.
    """
    parameters = {name: tuple(_longer(axis, places) for axis in axes) for name, axes in small.parameters.items()}
    return None if parameters == dict(small.parameters) else replace(small, parameters=parameters)


def _longer(axis: Axis, places: Places) -> Axis:
    if not isinstance(axis, Concat) or any(part != axis.parts[0] for part in axis.parts):
        return axis
    lengths = {real for _, few, real in places.lengths() if few == len(axis.parts)}
    return Concat(*axis.parts[:1] * lengths.pop()) if len(lengths) == 1 else axis
