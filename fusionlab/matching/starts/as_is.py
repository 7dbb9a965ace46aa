"""From the models as they are: for those that share their basis already."""

from fusionlab.matching.options import AS_IS, MatchOptions
from fusionlab.matching.pair import Pair
from fusionlab.matching.starts.registry import start
from fusionlab.matching.weights import ascent
from fusionlab.symmetry import Alignment


@start(AS_IS)
def from_models_as_they_are(pair: Pair, options: MatchOptions) -> Alignment:
    """Every space counts as solved from the first pass on."""
    return ascent(pair, options, lambda groups, problem: (Alignment.identity(problem.blueprint), frozenset()))
