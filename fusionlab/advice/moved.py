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

# The cosine of all matrices, each less its mean, from which matched models are fine-tunes of one base: 37 degrees. Of
# models that never met it came to 0.36 to 0.59 after matching, of fine-tunes to 0.99 (docs/advise.md).
NEAR = 0.8


def are_moved(models: Sequence[nn.Module]) -> bool:
    """True if models are near to one another once they are matched by weights; False where their heads differ.

    Args:
        models: two or more of one architecture and size; not modified.

    Raises:
        SymmetryError: an architecture that is not described.
    """
    try:
        shared = common_blueprint({f"model {place}": model for place, model in enumerate(models)})
    except InputError:
        return False
    found = run(align_models(models, shared, recipe("weights"))).alignments
    twins = [
        module_weights(alignment.apply(model), f"model {place}")
        for place, (alignment, model) in enumerate(zip(found, models, strict=True))
    ]
    return all(compare(first, second).matrices.cosine >= NEAR for first, second in pairwise(twins))
