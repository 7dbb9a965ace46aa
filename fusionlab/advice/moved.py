"""Fine-tunes of one base of which some were brought into other bases: what matching by weights undoes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from fusionlab.advice.pairs import compare
from fusionlab.advice.tensors import module_weights
from fusionlab.errors import InputError
from fusionlab.matching.align_models import align_models
from fusionlab.matching.recipe import recipe
from fusionlab.models import common_blueprint
from fusionlab.stages import run

# The least cosine of matched models that are fine-tunes of one base: 37 degrees (benchmarks/moved.py, docs/advise.md).
NEAR = 0.8


def are_moved(models: Sequence[nn.Module]) -> bool:
    """True if models are near to one another once they are matched by weights; False where their heads differ.

    Args:
        models: see `matched_cosine`.

    Raises:
        SymmetryError: an architecture that is not described.
    """
    try:
        return matched_cosine(models) >= NEAR
    except InputError:
        return False


def matched_cosine(models: Sequence[nn.Module]) -> float:
    """The least cosine of neighbours among models that are matched by weights: of all matrices, each less its mean.

    Args:
        models: two or more of one architecture, size and labels; not modified.

    Raises:
        InputError: models that do not fit each other.
        SymmetryError: an architecture that is not described.
    """
    shared = common_blueprint({f"model {place}": model for place, model in enumerate(models)})
    found = run(align_models(models, shared, recipe("weights"))).alignments
    twins = [
        module_weights(alignment.apply(model), f"model {place}")
        for place, (alignment, model) in enumerate(zip(found, models, strict=True))
    ]
    # Where one is all zero there is no angle, and nothing near.
    return min(compare(first, second).matrices.cosine or 0.0 for first, second in pairwise(twins))
