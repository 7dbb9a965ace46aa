"""From all spaces together, while a temperature falls (`fusionlab.matching.annealing`)."""

from collections.abc import Sequence

from fusionlab.matching.annealing import anneal
from fusionlab.matching.blocks import Block
from fusionlab.matching.options import ANNEALED, MatchOptions
from fusionlab.matching.pair import Pair
from fusionlab.matching.problems import Problem
from fusionlab.matching.starts.registry import start
from fusionlab.matching.weights import ascent, squared_distance, squared_length
from fusionlab.symmetry import Alignment


@start(ANNEALED)
def from_annealing(pair: Pair, options: MatchOptions) -> Alignment:
    """Models that share most of their basis already start as they are."""

    def annealed(groups: Sequence[Sequence[Block]], problem: Problem) -> tuple[Alignment, frozenset[str]]:
        if _alike(problem):
            return Alignment.identity(problem.blueprint), frozenset()
        found, unsolved = anneal(groups, problem, options.temperatures)
        return Alignment(problem.blueprint, found), unsolved

    return ascent(pair, options, annealed)


def _alike(problem: Problem) -> bool:
    """True if the models share their basis already, as fine-tunes of one base do; others' weights are at a right angle.

    Only matrices tell: gains of norms are near 1 in every model.
    """
    matrices = [name for name, x in problem.source.items() if x.ndim > 1]
    lengths = sum(squared_length(state, matrices) for state in (problem.source, problem.anchor))
    apart = squared_distance(problem.source, problem.anchor, matrices)
    return problem.sum_of(apart) < 0.5 * problem.sum_of(lengths)
