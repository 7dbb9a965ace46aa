"""The choices that make a fusion: matchings, methods, and what follows the merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from fusionlab.errors import InputError
from fusionlab.matching.recipe import Recipe
from fusionlab.polish import PolishOptions
from fusionlab.search import SearchOptions

Heads = Literal["merged", "union", "own"]


@dataclass(frozen=True)
class FusionPlan:
    """Everything that a fusion does, apart from its models and data.

    Attributes:
        matchings: recipes by the name to show them under, in order; the first makes the merge that is kept. The
            unmatched merge is always made too.
        methods: merge methods with their hyperparameters, in order; the first makes the merge that is kept.
        weights: one for each model, scaled to sum to 1; equal ones if None.
        anchor: the model that the others are matched to: its place in the list from 0, or ``nearest`` (to the mean of
            all); the first if None.
        ensemble: whether the ensemble of the end models is measured too, as an upper reference.
        search: of the settings of the merge that is kept, by scores on validation data; what is found makes one more
            merge, which is kept then; None for none.
        correct: whether the activations of the merge that is kept, and of the unmatched one beside it, get the end
            models' mean and spread again.
        polish: a short distillation of the merge that is kept, and of the unmatched one beside it, towards the end
            models' outputs, each by its weight, after a correction; None for none.
        heads: of models whose tasks differ: ``merged`` like everything else; ``union`` (classifiers, joined by label
            name); or ``own`` (each task keeps its own on the merged body; as many data modules as models).
        seed: of anything random.
        dtype: type that merges are written in, and are rounded to before they are tested; the widest of the end models'
            own if None.

    Raises:
        InputError: no method.
    """

    matchings: Mapping[str, Recipe] = field(default_factory=dict)
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"simple": {}})
    weights: Sequence[float] | None = None
    anchor: int | str | None = None
    ensemble: bool = False
    search: SearchOptions | None = None
    correct: bool = False
    polish: PolishOptions | None = None
    heads: Heads = "merged"
    seed: int = 0
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        if not self.methods:
            raise InputError("methods is empty; expected at least one merge method")

    @property
    def adds_synthetic(self) -> bool:
        """True where something is learned, from synthetic inputs too where few are given."""
        descents = [self.polish, *(recipe.refine for recipe in self.matchings.values())]
        return any(options is not None and options.synthetic for options in descents)

    @property
    def needs_inputs(self) -> bool:
        """True where matching, correcting or polishing looks at inputs, which may be synthetic."""
        return self.correct or self.polish is not None or any(r.needs_inputs for r in self.matchings.values())
