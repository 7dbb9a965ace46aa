"""The start that suits the models: by activations where these are at hand, else annealed."""

from dataclasses import replace

from fusionlab.matching.options import ACTIVATIONS, ANNEALED, AUTO, MatchOptions
from fusionlab.matching.pair import Pair
from fusionlab.matching.starts.registry import find_start, start
from fusionlab.symmetry import Alignment


@start(AUTO)
def from_what_is_there(pair: Pair, options: MatchOptions) -> Alignment:
    """From activations where there are some, else annealed; `fusionlab.matching.recipe` says when they are gathered."""
    chosen = ANNEALED if pair.activations is None else ACTIVATIONS
    return find_start(chosen).function(pair, replace(options, start=chosen))
