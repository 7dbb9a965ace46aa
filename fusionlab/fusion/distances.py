"""Distances to the anchor before and after a matching."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from fusionlab.evaluation.distance import distance_by_space
from fusionlab.evaluation.distances import Distance
from fusionlab.fusion.heads import HeadStrategy
from fusionlab.matching.recipe import Recipe
from fusionlab.symmetry import Blueprint


def distances_to_anchor(
    matching: str,
    recipe: Recipe,
    models: Mapping[str, nn.Module],
    twins: Sequence[nn.Module],
    anchor: int,
    heads: HeadStrategy,
    blueprint: Blueprint,
) -> list[Distance]:
    """Distances of every model to the anchor before and after a matching, both in its gauge; and as the models come.

    Args:
        matching: its name.
        recipe: of the matching.
        models: the end models by name.
        twins: of each.
        anchor: index of the anchor.
        heads: which parameters are merged.
        blueprint: of what is merged.
    """
    names, ends = list(models), list(models.values())
    given, matched = heads.states(ends), heads.states(twins)
    gauges = heads.gauges(ends, blueprint, recipe) if recipe.gauge else []
    gauged = [heads.moved(model, gauge) for model, gauge in zip(ends, gauges, strict=False)] or given
    found = []
    for index, name in enumerate(names):
        if index == anchor:
            continue
        as_given, before, after = (
            distance_by_space(states[index], states[anchor], blueprint) for states in (given, gauged, matched)
        )
        found += [
            Distance(
                name, names[anchor], matching, *place, before[place], value, as_given[place] if recipe.gauge else None
            )
            for place, value in after.items()
        ]
    return found
