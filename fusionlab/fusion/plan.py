"""The choices that make a fusion: matchings, methods, and what follows the merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from fusionlab.matching.recipe import Recipe
from fusionlab.polish import PolishOptions

Heads = Literal["merged", "union", "own"]


@dataclass(frozen=True)
class FusionPlan:
    """Everything that a fusion does, apart from its models and data.

    Attributes:
        matchings: recipes by the name to show them under, in order; the first makes the merge that is kept. The
            unmatched merge is always made too.
        methods: merge methods with their hyperparameters, in order; the first makes the merge that is kept.
        weights: one for each model, or None for equal ones.
        anchor: index of the model that the others are matched to, or ``nearest``; the first if None.
        ensemble: whether the ensemble of the end models is measured too, as an upper reference.
        correct: whether activations are corrected in the merge that is kept, and in the unmatched one beside it.
        polish: how those two are then polished; None for not at all.
        heads: ``merged`` like everything else; ``union``, joined by label name; or ``own``, each task's on the merged
            body.
        seed: of anything random.
        dtype: that merges will be written in, and are rounded to before they are tested; the widest of the end models'
            own if None.
    """

    matchings: Mapping[str, Recipe] = field(default_factory=dict)
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"simple": {}})
    weights: Sequence[float] | None = None
    anchor: int | str | None = None
    ensemble: bool = False
    correct: bool = False
    polish: PolishOptions | None = None
    heads: Heads = "merged"
    seed: int = 0
    dtype: torch.dtype | None = None

    @property
    def needs_inputs(self) -> bool:
        """True where matching, correcting or polishing looks at inputs."""
        return self.correct or self.polish is not None or any(r.needs_inputs for r in self.matchings.values())
