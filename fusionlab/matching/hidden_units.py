"""Hidden units in closed form: assignments, and a factor for each unit where the activation admits one."""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

import torch
from torch import Tensor

from fusionlab.bfloat16 import has_bfloat16
from fusionlab.matching.assignment import BFLOAT16_MARGIN, certified_assignment
from fusionlab.matching.blocks import Block
from fusionlab.matching.groups import solve
from fusionlab.matching.groups.permutation import improving_assignment
from fusionlab.matching.joint_factors import best_factors
from fusionlab.matching.problems import Problem, correlate_inner, correlate_permutation
from fusionlab.matching.shared_stretches import is_plain, sets_of_factors, terms_of
from fusionlab.matching.signed_units import SignedUnits
from fusionlab.matching.solvers import Correlation, Rescale
from fusionlab.symmetry import Alignment, Space
from fusionlab.threads import solvers


def solve_units(found: Sequence[Block], problem: Problem, rescale: Rescale) -> dict[str, Tensor]:
    """Assignments of hidden units, and a factor for each where there is one.

    Products run on all cores, solvers on one each, a few layers at a time.
    """
    orders: dict[str, Tensor] = {}
    workers = max(1, torch.get_num_threads())
    with solvers(workers) as pool:
        pending: deque[tuple[str, Future[Tensor]]] = deque()
        quick = True
        for block in found:
            assert block.permutation is not None
            name = block.permutation.name
            if problem.is_shared(block):
                correlation = _correlate_units(block, problem)
                orders[name] = problem.agreed(block, partial(improving_assignment, correlation))
                continue
            # The layers of two models are alike: where one cannot be read off, trying the others wastes a product.
            if quick and (certain := _quick_assignment(block, problem)) is not None:
                orders[name] = certain
                continue
            quick = False
            if len(pending) == workers:
                orders.update([_finish(pending.popleft())])
            pending.append((name, pool.submit(improving_assignment, _correlate_units(block, problem))))
        orders.update(_finish(job) for job in pending)
    return {**orders, **unit_factors(found, problem.moved(Alignment(problem.blueprint, orders)), rescale)}


def unit_factors(found: Sequence[Block], moved: Problem, rescale: Rescale) -> dict[str, Tensor]:
    """The factors of hidden units, nested ones too, where the source has been moved by their permutations already.

    Where some of what a factor acts on says nothing yet, as what reads a stream in the first pass, its sign alone is
    solved: from a gain and a bias follows no scale.
    """
    elements = {}
    for block in found:
        for some in sets_of_factors(block, moved.blueprint):
            seen = all(moved.is_seen_whole(space.name, block.names) for space in some)
            by: Rescale = rescale if seen else "off"
            if len(some) == 1 and is_plain(some[0], moved.blueprint):
                correlation = correlate_inner(moved, block, some[0], moved=True)
                elements[some[0].name] = moved.agreed(block, partial(_element, some[0], correlation, by))
            else:
                elements |= moved.agreed(block, partial(best_factors, some, terms_of(moved, block, some), by))
    return elements


def _element(space: Space, correlation: Correlation, rescale: Rescale) -> Tensor:
    return solve(space.group, correlation, rescale)[0]


def _correlate_units(block: Block, problem: Problem) -> Tensor:
    """The correlation of every source with every anchor unit, at its own scale and the better sign if that is free."""
    correlation, _ = correlate_permutation(problem, block)
    return correlation.add_(SignedUnits(problem, block, block.names).gain())


def _finish(job: tuple[str, Future[Tensor]]) -> tuple[str, Tensor]:
    return job[0], job[1].result()


def _quick_assignment(block: Block, problem: Problem) -> Tensor | None:
    """An assignment read off products in bfloat16, where the processor has them and their rounding cannot matter."""
    assert block.permutation is not None
    # Side by side, the parameters of a space that runs through all layers are a copy of the models.
    fits = problem.keeper.holds_models or block.permutation.layer is not None
    plain = not block.inner and not block.permutation.index and fits
    if not plain or not _fast_bfloat16(next(iter(problem.anchor.values()))):
        return None
    correlation, bound = correlate_permutation(problem, block, torch.bfloat16)
    certain = certified_assignment(correlation.float(), BFLOAT16_MARGIN * bound.float())
    return None if certain is None else certain.cpu()


def _fast_bfloat16(example: Tensor) -> bool:
    """True if matrix products in bfloat16 are native here and save time over `example`'s own type."""
    return example.dtype == torch.float32 and has_bfloat16(example.device)
