"""The best of several starts of a learned matching, found by a short descent from each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from fusionlab.matching.learned import Refined, Refinement
from fusionlab.matching.refine_options import RefineOptions
from fusionlab.stages import Stages, result_of
from fusionlab.symmetry import Alignment

# Steps of the short descent: fewer do not tell yet which start ends lowest.
TRIAL = 150


def best_start(
    models: Sequence[nn.Module],
    starts: Mapping[str, Sequence[Alignment]],
    batches: Any,
    options: RefineOptions,
    label: str,
    **how: Any,
) -> Stages[tuple[str, list[Alignment]]]:
    """The start from which a short descent comes to the lowest loss, by name, and the alignments that it made of it.

    All descents see the same inputs in the same order and the same points between the models, so that their losses
    differ by the starts alone; of equals the first is taken.

    Args:
        models: end models, of one architecture; not modified.
        starts: by name the alignments of all models, two starts or more.
        batches: see `refined`, but read once for each start.
        options: of the descent that follows.
        label: of that descent, for progress bars and logs.
        how: further arguments of `Refinement`.
    """
    short = replace(options, steps=min(TRIAL, options.steps), starts=(), draws=1)
    found: dict[str, Refined] = {}
    for name, alignments in starts.items():
        stage = Refinement(models, alignments, batches, short, label=f"{label}, start {name}", **how)
        found[name] = yield from result_of(stage)
    best = min(found, key=lambda name: found[name].loss)
    return best, found[best].alignments
