"""Matching by weights: rotations, permutations and scales that bring parameters closest."""

from fusionlab.matching.matchers.registry import Models, matcher
from fusionlab.matching.options import MEAN, MatchOptions
from fusionlab.matching.starts.registry import find_start
from fusionlab.matching.universe import match_universe
from fusionlab.symmetry import Alignment


@matcher("weights", needs=lambda options: find_start(options.start).needs)
def by_weights(models: Models, options: MatchOptions) -> list[Alignment]:
    """Each model matched to the anchor, or all of more than two to their mean (see `match_weights`)."""
    if options.towards == MEAN and len(models.states) > 2:
        found = match_universe(models.states, models.blueprint, options, models.team)
        back = found[models.anchor].inverse()
        return [
            Alignment.identity(models.blueprint) if index == models.anchor else back.compose(alignment)
            for index, alignment in enumerate(found)
        ]
    start = find_start(options.start)
    return models.each(lambda pair: start.function(pair, options))
