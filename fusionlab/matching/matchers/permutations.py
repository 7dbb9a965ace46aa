"""Permutations of every space, to compare with."""

from fusionlab.matching.matchers.registry import Models, matcher
from fusionlab.matching.permutations import PermutationOptions, match_permutations
from fusionlab.symmetry import Alignment


@matcher("permutations")
def by_permutations(models: Models, options: PermutationOptions) -> list[Alignment]:
    """Permutations by weights, which `git-rebasin` and `ot-fusion` are choices of; see `match_permutations`."""
    return models.each(
        lambda pair: match_permutations(pair.source, pair.anchor, pair.blueprint, options, team=pair.team)
    )
