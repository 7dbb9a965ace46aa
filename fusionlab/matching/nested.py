"""Assignments whose costs are optima of inner problems: experts with their units, groups of experts with both.

What it is worth to put a source's expert at the place of an anchor's is what the best assignment of its units reaches
there, so the assignment over the table of all pairs is the joint optimum, with any depth of blocks in blocks. Attention
heads are the same with a rotation inside, whose optima are known before (`fusionlab.matching.weights`).

The table is not filled. An entry starts as what it would be if every unit could take its best partner, which no
assignment beats; only what the assignment over the table picks is solved, until all that it picks is solved. That is
the optimum over the full table, and of experts that correspond to each other each takes one inner assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

import torch
from torch import Tensor

from fusionlab.matching.blocks import Block
from fusionlab.matching.groups.permutation import improving_assignment
from fusionlab.matching.problems import Problem, unit_rows
from fusionlab.matching.signed_units import SignedUnits, best_gain
from fusionlab.threads import solvers

# The gains of all pairs of units are held up to this many numbers. Of more the bounds are estimated on a sample of the
# anchor's units, and after so many rounds the best of what is solved is taken.
HELD_ENTRIES = 2**25
SAMPLE, ROUNDS = 128, 4

# From correlations (p, q) of some anchor's units with some source's, squared lengths of the source's (q,) and of the
# anchor's (p,): what it is worth to put one at the place of the other.
Objective = Callable[[Tensor, Tensor, Tensor], Tensor]
Pair = tuple[int, int]


class NestedAssignment:
    """The best assignments of a block's permutations, for any pair of an anchor's and a source's copy.

    Args:
        problem: the two models.
        block: one with a permutation; factors inside count with their better sign.
        known: what it is worth to put a source's unit at the place of an anchor's, nested blocks aside, in every copy,
            shape ``(*copies, n, n)``; found here if None.
        objective: from correlations to gains; None where they are the same.
        own: the spaces that are solved together; the block's own if None.
    """

    def __init__(
        self,
        problem: Problem,
        block: Block,
        known: Tensor | None = None,
        objective: Objective | None = None,
        own: frozenset[str] | None = None,
    ) -> None:
        assert block.permutation is not None
        own = block.names if own is None else own
        self.space, self.size, self.count = block.permutation, block.permutation.group.size, block.permutation.count
        self.known = None if known is None else known.reshape(self.count, self.size, self.size)
        self.gains = _Gains(problem, block, objective, own) if known is None else None
        self.nested = tuple(NestedAssignment(problem, child, None, objective, own) for child in block.nested)
        self.orders: dict[Pair, Tensor] = {}

    def best(self) -> dict[str, Tensor]:
        """The best permutations of every copy and of all that is nested in it, as elements of their spaces."""
        pairs = [(copy, copy) for copy in range(self.count)]
        self.settle(pairs)
        return self._elements(pairs)

    def settle(self, pairs: Sequence[Pair]) -> bool:
        """Solve some pairs of copies; true if they were solved before."""
        missing = [pair for pair in dict.fromkeys(pairs) if pair not in self.orders]
        if self.nested:
            for pair in missing:
                self._search(pair)
            return not missing
        workers = max(1, torch.get_num_threads())
        with solvers(workers) as pool:
            # Products run on all cores, solvers on one each.
            for start in range(0, len(missing), workers):
                some = missing[start : start + workers]
                totals = [self._total(pair) for pair in some]
                for pair, total, order in zip(some, totals, pool.map(improving_assignment, totals), strict=True):
                    self._note(pair, total, order)
        return not missing

    @property
    def is_held(self) -> bool:
        """True if the gains of all pairs of units are held."""
        return (self.count * self.size) ** 2 <= HELD_ENTRIES

    @cached_property
    def bounds(self) -> Tensor:
        """The gain of the assignment inside of each pair of copies; where it is not solved yet, an upper bound of it.

        Returns:
            Shape ``(count, count)``, anchor's copy by source's, float64, on the CPU; estimates where not `is_held`.
        """
        split = (self.count, self.size)
        if self.is_held:
            total = self._with_nested(self._held, slice(None), slice(None)).unflatten(1, split).unflatten(0, split)
            return torch.minimum(total.amax(3).double().sum(1), total.amax(1).double().sum(-1)).cpu()
        assert self.gains is not None
        found = []
        for copy in range(self.count):
            some = slice(copy * self.size, (copy + 1) * self.size, -(-self.size // SAMPLE))
            total = self._with_nested(self.gains(some, slice(None)), some, slice(None))
            found.append(total.unflatten(1, split).amax(-1).double().mean(0) * self.size)
        return torch.stack(found).cpu()

    def _search(self, pair: Pair) -> None:
        """Solve one pair of copies, and of what is nested as much as that takes."""
        rows, columns = (range(copy * self.size, (copy + 1) * self.size) for copy in pair)
        guessed = [child for child in self.nested if not child.is_held]
        for child in guessed:
            # Then the outcome is not below what the present order reaches.
            child.settle(list(zip(rows, columns, strict=True)))
        rounds, settled = 0, False
        while not settled:
            total = self._total(pair)
            if guessed and rounds >= ROUNDS:
                solved = torch.tensor([[all((i, j) in c.orders for c in guessed) for j in columns] for i in rows])
                worst = total.amin() - self.size * (total.amax() - total.amin()) - 1
                total = torch.where(solved, total, worst)
            order = improving_assignment(total)
            chosen = [(i, columns[partner]) for i, partner in zip(rows, order.tolist(), strict=True)]
            settled = all(child.settle(chosen) for child in self.nested)
            rounds += 1
        self._note(pair, total, order)

    def _note(self, pair: Pair, total: Tensor, order: Tensor) -> None:
        self.orders[pair] = order
        if self.known is None:
            exact = total.double().cpu()
            self.bounds[pair] = exact[torch.arange(self.size), order].sum()

    def _total(self, pair: Pair) -> Tensor:
        """The gain of putting a source's unit at the place of an anchor's, in one pair of copies, shape ``(n, n)``."""
        rows, columns = (slice(copy * self.size, (copy + 1) * self.size) for copy in pair)
        if self.known is not None:
            own = self.known[pair[0]]
        elif self.is_held:
            own = self._held[rows, columns]
        else:
            assert self.gains is not None
            own = self.gains(rows, columns)
        return self._with_nested(own, rows, columns)

    def _with_nested(self, gains: Tensor, rows: slice, columns: slice) -> Tensor:
        for child in self.nested:
            gains = gains.double().cpu() + child.bounds[rows, columns]
        return gains

    @cached_property
    def _held(self) -> Tensor:
        assert self.gains is not None
        return self.gains(slice(None), slice(None))

    def _elements(self, pairs: Sequence[Pair]) -> dict[str, Tensor]:
        """The elements that solved pairs stand for, in the order of the anchor's copies."""
        orders = torch.stack([self.orders[pair] for pair in pairs])
        found = {self.space.name: orders.reshape(*self.space.copies, self.size)}
        deeper = [
            (i * self.size + unit, j * self.size + partner)
            for (i, j), order in zip(pairs, orders.tolist(), strict=True)
            for unit, partner in enumerate(order)
        ]
        for child in self.nested:
            found |= child._elements(deeper)
        return found


class _Gains:
    """The worth of putting one of a source's units at the place of one of an anchor's; the units of all copies.

    Args:
        problem: the two models.
        block: one with a permutation; blocks nested in it do not count.
        objective: see `NestedAssignment`.
        own: the spaces that are solved together.
    """

    def __init__(self, problem: Problem, block: Block, objective: Objective | None, own: frozenset[str]) -> None:
        assert block.permutation is not None
        count = block.permutation.count * block.permutation.group.size
        self.empty = next(iter(problem.anchor.values())).new_zeros(count, 0)
        self.objective = objective
        self.rows = self._flat(unit_rows(problem, block, own))
        signed = SignedUnits(problem, block, own)
        self.factors = {signs: self._flat(signed.rows(signs)) for signs in signed.places}

    def _flat(self, rows: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """The rows of the source and of the anchor, all copies in one list, shape ``(count * n, features)``."""
        count = len(self.empty)
        found = [[x.reshape(count, -1) for x in pair] for pair in rows]
        source, anchor = (torch.cat([self.empty, *(pair[side] for pair in found)], -1) for side in range(2))
        return source, anchor

    def __call__(self, rows: slice, columns: slice) -> Tensor:
        """Gains of some of the anchor's units with some of the source's, shape ``(p, q)``."""
        source, anchor = self.rows[0][columns], self.rows[1][rows]
        total = anchor @ source.mT
        if self.objective is not None:
            total = self.objective(total, source.square().sum(-1), anchor.square().sum(-1))
        sides = self.factors
        return total + best_gain(list(sides), lambda signs: sides[signs][1][rows] @ sides[signs][0][columns].mT)
