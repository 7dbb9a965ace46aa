"""From what is known: in the first pass, a space is solved from parameters whose other axes are fixed or solved."""

from fusionlab.matching.options import KNOWN, MatchOptions
from fusionlab.matching.pair import Pair
from fusionlab.matching.starts.registry import start
from fusionlab.matching.weights import ascent, names_of
from fusionlab.symmetry import Alignment


@start(KNOWN)
def from_known(pair: Pair, options: MatchOptions) -> Alignment:
    """Tokens, pixels, positions and labels first, then what they connect with."""
    return ascent(pair, options, lambda groups, problem: (Alignment.identity(problem.blueprint), names_of(groups)))
