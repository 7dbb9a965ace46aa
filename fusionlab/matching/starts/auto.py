"""The start that suits the models; what runs them chooses it (`fusionlab.matching.recipe.Recipe.suited_to`)."""

from dataclasses import replace

from fusionlab.matching.options import ANNEALED, AUTO, MatchOptions
from fusionlab.matching.pair import Pair
from fusionlab.matching.starts.registry import find_start, start
from fusionlab.symmetry import Alignment


@start(AUTO)
def from_auto(pair: Pair, options: MatchOptions) -> Alignment:
    """Annealed: where nothing is run, no other start suits the models better."""
    return find_start(ANNEALED).function(pair, replace(options, start=ANNEALED))
