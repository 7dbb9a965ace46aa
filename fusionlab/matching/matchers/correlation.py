"""Permutations by the correlation of activations, as work on convolutions matches."""

from fusionlab.errors import InputError
from fusionlab.matching.correlation import CorrelationOptions, match_correlations
from fusionlab.matching.matchers.registry import Models, matcher
from fusionlab.symmetry import Alignment


@matcher("correlation", needs=("activations",))
def by_correlation(models: Models, options: CorrelationOptions) -> list[Alignment]:
    """Permutations of all spaces by the correlation of activations (Li et al., 2015; Jordan et al., 2023).

    See `match_correlations`.

    Raises:
        InputError: there are no activations, or they are not of the same rows or maps.
    """
    if models.activations is None:
        raise InputError("matching by correlation compares activations, and there are none; expected inputs to run on")
    activations, goal = models.activations, models.activations[models.anchor]
    return [
        Alignment.identity(models.blueprint)
        if index == models.anchor
        else match_correlations(found, goal, models.blueprint, options)
        for index, found in enumerate(activations)
    ]
