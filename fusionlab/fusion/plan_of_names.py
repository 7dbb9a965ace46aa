"""Plans of a fusion from names: of presets of matching, of merge methods, and of their options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from fusionlab.dtypes import find_dtype
from fusionlab.errors import InputError
from fusionlab.evaluation.results import UNMATCHED
from fusionlab.fusion.plan import FusionPlan
from fusionlab.matching.recipe import Match, Recipe, recipe, recipe_of


def make_plan(match: Match, methods: str | Mapping[str, Mapping[str, Any]], **options: Any) -> FusionPlan:
    """A plan from names.

    Args:
        match: a preset, a recipe, or several by name.
        methods: a merge method, or several with their hyperparameters.
        options: further fields of the plan.

    Raises:
        InputError: a preset or an option that does not exist.
    """
    known = FusionPlan.__dataclass_fields__.keys() - {"matchings", "methods"}
    if unknown := sorted(options.keys() - known):
        raise InputError(f"a fusion has no option {unknown[0]!r}; expected some of {', '.join(sorted(known))}")
    dtype: torch.dtype | None = find_dtype(options.pop("dtype", None))
    matchings = recipes(match, options.get("seed", FusionPlan.seed))
    return FusionPlan(matchings, {methods: {}} if isinstance(methods, str) else methods, dtype=dtype, **options)


def recipes(match: Match, seed: int = FusionPlan.seed) -> dict[str, Recipe]:
    """Recipes by the name to show them under; none for the unmatched merge.

    Args:
        match: a preset, a recipe, or several by name.
        seed: of presets that draw and name none; a recipe keeps its own.

    Raises:
        InputError: a preset that does not exist.
    """
    named = match if isinstance(match, Mapping) else {match if isinstance(match, str) else "matched": match}
    return {
        name: chosen if isinstance(chosen, Recipe) else _named(name, chosen, seed)
        for name, chosen in named.items()
        if chosen != UNMATCHED
    }


def _named(name: str, chosen: str | Mapping[str, Any] | None, seed: int) -> Recipe:
    found = recipe(chosen) if isinstance(chosen, str) else recipe_of(name, chosen)
    is_seeded = isinstance(chosen, Mapping) and "seed" in chosen
    return found if found.refine is None or is_seeded else replace(found, refine=replace(found.refine, seed=seed))
