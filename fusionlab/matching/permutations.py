"""Permutations in every space: the baselines that rotations are compared with.

With inner products as what is maximised this is weight matching as in Git Re-Basin (Ainsworth et al., ICLR 2023): block
coordinate ascent, one assignment at a time. With a ground metric it is the hard form of OT fusion (Singh and Jaggi,
2020): for uniform weights the exact transport between two layers is an assignment. Unlike there the result is an
alignment, so that every model keeps its function.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.matching.blocks import Block, blocks, waves
from fusionlab.matching.groups.permutation import improving_assignment
from fusionlab.matching.nested import NestedAssignment
from fusionlab.matching.options import Selection
from fusionlab.matching.pairs import paired
from fusionlab.matching.problems import Problem, correlate_inner, correlate_permutation
from fusionlab.matching.sharing import share_of
from fusionlab.matching.team import ALONE, Team
from fusionlab.matching.transport import Metric, ground_cost_from_products
from fusionlab.symmetry import Alignment, Blueprint, Space
from fusionlab.types import State

Objective = Literal["inner"] | Metric


@dataclass(frozen=True)
class PermutationOptions(Selection):
    """Options of the permutation of units.

    Attributes:
        sweeps: the most passes over all spaces, one assignment at a time.
        objective: ``inner``, to maximise the sum of inner products of matched units (Git Re-Basin), or a ground
            metric, to minimise the sum of its values between units divided by their length (OT fusion).
    """

    sweeps: int = 50
    objective: Objective = "inner"

    def __post_init__(self) -> None:
        super().__post_init__()
        known = ("inner", *get_args(Metric))
        if self.objective not in known:
            raise InputError(f"objective is {self.objective!r}; expected one of {', '.join(known)}")
        if self.sweeps < 1:
            raise InputError(f"sweeps is {self.sweeps}; expected at least 1")


def match_permutations(
    source: State, anchor: State, blueprint: Blueprint, options: PermutationOptions, team: Team = ALONE
) -> Alignment:
    """The alignment of permutations that brings a source's units closest to an anchor's.

    Spaces are solved in turn with the others held fixed until nothing moves; in the first pass only from what is known
    by then, as in `match_weights`. Heads and experts are assigned by what the best permutations inside them reach.
    Spaces that admit no permutations (planes of rotary positions) and factors keep their basis.

    Args:
        source: parameters by name; not modified.
        anchor: parameters by name, of the same blueprint.
        blueprint: of both models, folded or not.
        options: which spaces to match, and how; nothing is rescaled.
        team: processes that match the same models together, see `fusionlab.matching.sharing`.

    Returns:
        An alignment for the source whose elements are permutations or permutation matrices.
    """
    spaces = [s for s in options.select(blueprint) if s.group.has_permutations]
    groups = waves(blocks(spaces, blueprint), blueprint)
    names = blueprint.touching(space.name for space in spaces)
    share = share_of(groups, blueprint, source, team)
    own = [name for name in names if name in share.names]
    first, second = ({name: state[name].double() for name in own} for state in (source, anchor))
    problem = Problem(blueprint, first, second, share=share)
    alignment = Alignment.identity(blueprint)
    unsolved = frozenset(space.name for space in spaces)
    for _ in range(options.sweeps):
        settled = True
        for block in (block for group in groups for block in group):
            still = {s.name: s.group.permuting(torch.arange(s.group.size).expand(*s.copies, -1)) for s in block.spaces}
            if not problem.is_elsewhere(block):
                found = _Units(replace(problem, unknown=unsolved), block, options.objective).solve()
                elements: dict[str, Tensor] = problem.agreed(block, partial(dict, found))
                if any(not torch.equal(elements[name], still[name]) for name in elements):
                    settled = False
                    step = Alignment(blueprint, elements)
                    problem = problem.moved(step)
                    alignment = step.compose(alignment)
            unsolved -= block.names
        if not problem.sum_of(float(not settled)):
            break
    # Solved by one of the processes alone where there is too little to share.
    alone = team if share.team is ALONE else ALONE
    return Alignment(blueprint, alone.agreed(lambda: share.joined(alignment.elements)))


@dataclass(frozen=True)
class _Units:
    """The units of one block, and what it is worth to put a source's unit at the place of an anchor's."""

    problem: Problem
    block: Block
    objective: Objective

    def solve(self) -> dict[str, Tensor]:
        """The best permutations, as elements of the spaces of the block."""
        permutation = self.block.permutation
        if permutation is None:
            (space,) = self.block.inner
            return {space.name: space.group.permuting(improving_assignment(self._inside(space)))}
        total, orders = self._direct(), {}
        for space in self.block.inner:
            gains = self._inside(space)
            orders[space.name] = improving_assignment(gains)
            total = total + gains.gather(-1, orders[space.name].unsqueeze(-1)).sum((-2, -1))
        metric = None if self.objective == "inner" else partial(_nearness, metric=self.objective)
        found = NestedAssignment(self.problem, self.block, total, metric).best()
        pairs = paired(found[permutation.name])
        return found | {s.name: s.group.permuting(orders[s.name][pairs]) for s in self.block.inner}

    def _direct(self) -> Tensor:
        """Gains of the permuted units from what has no basis of its own inside them, shape ``(*copies, n, n)``."""
        products, _ = correlate_permutation(self.problem, self.block)
        if self.objective == "inner":
            return products
        source, anchor = (
            correlate_permutation(same, self.block)[0].diagonal(dim1=-2, dim2=-1) for same in self._same()
        )
        return _nearness(products, source, anchor, self.objective)

    def _inside(self, space: Space) -> Tensor:
        """Gains of the units of a continuous space, ``(*copies, d, d)``, or for pairs of copies, ``(n, n, d, d)``."""
        found = correlate_inner(self.problem, self.block, space)
        products = found.primal + found.dual
        if self.objective == "inner":
            return products
        source = found.primal_norm + found.dual_norm
        itself = correlate_inner(self._same()[1], self.block, space)
        anchor = itself.primal_norm + itself.dual_norm
        # Of pairs, the anchor's copy is the first index.
        anchor = anchor if self.block.permutation is None else anchor.transpose(-3, -2)
        return _nearness(products, source, anchor, self.objective)

    def _same(self) -> tuple[Problem, Problem]:
        """The source beside itself, and the anchor beside itself."""
        source, anchor = self.problem.source, self.problem.anchor
        return replace(self.problem, anchor=source), replace(self.problem, source=anchor)


def _nearness(products: Tensor, source: Tensor, anchor: Tensor, metric: Metric) -> Tensor:
    """The ground metric's value with its sign turned; see `ground_cost_from_products`."""
    return -ground_cost_from_products(products, source, anchor, metric, normalised=True)
