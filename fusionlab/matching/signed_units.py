"""Permuted units with factors inside: what a pair of units is worth if each factor takes its better sign.

What a source's unit says at the place of an anchor's is a sum over stretches of parameters, each turned round by the
signs of all factors on it: ``sum_S C_S prod_{f in S} s_f``, with one correlation C_S for each set S of factors that
share a stretch. Once the signs of a few factors are chosen, so that no two others share a stretch (of a stream under
tied embeddings its own sign, beside the factors of all gains), the best sign of each other factor follows by itself:
the maximum is exact. Positive factors, and even powers, turn nothing round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import torch
from torch import Tensor

from fusionlab.matching.blocks import Block, further_index
from fusionlab.matching.groups import geometry
from fusionlab.matching.problems import Problem
from fusionlab.symmetry.axes import powers

# Factors that turn a stretch round, none for a stretch that stays.
Signs = frozenset[str]


@dataclass(frozen=True)
class SignedUnits:
    """The stretches of a block's permuted units that factors act on, by the factors that turn them round.

    Attributes:
        problem: the two models.
        block: one with a permutation.
        own: spaces that are solved together with it, itself among them.
    """

    problem: Problem
    block: Block
    own: frozenset[str]

    @cached_property
    def places(self) -> dict[Signs, list[tuple[tuple[str, int], int]]]:
        """By the factors that turn them round, the stretches with a factor: a parameter's dimension, and a number."""
        permutation = self.block.permutation
        assert permutation is not None
        factors = {space.name: space for space in self.block.inner if space.group.is_factor}
        signed = {name for name, space in factors.items() if geometry(space.group).is_assigned}
        found: dict[Signs, list[tuple[tuple[str, int], int]]] = {}
        deeper = self.block.names - {permutation.name}
        for at, places in self.problem.places([permutation.name], self.own).items():
            name, dim = at
            acting = list(powers(self.problem.blueprint.parameters[name][dim]))
            for place, chain in places.items():
                inside = deeper.intersection(chain)
                if inside and inside <= factors.keys():
                    key = frozenset(s for s in inside & signed if acting[place][s] % 2)
                    found.setdefault(key, []).append((at, place))
        return found

    def index(self, signs: Signs) -> tuple[str, ...]:
        """The spaces that count the units of stretches with these factors: further blocks, then their own.

        Raises:
            TypeError: the copies of factors that share a stretch are counted by different blocks.
        """
        permutation = self.block.permutation
        assert permutation is not None
        further = {further_index(self.block, s) for s in self.block.inner if s.name in signs}
        if len(further) > 1:
            raise TypeError(f"{' and '.join(sorted(signs))} share a stretch; expected copies by the same spaces")
        return (*(further.pop() if further else ()), *permutation.index, permutation.name)

    def rows(self, signs: Signs) -> Iterator[tuple[Tensor, Tensor]]:
        """The units of the source and of the anchor along stretches with these factors.

        Yields:
            For every stretch one tensor of each, shape ``(*counts of index, features)``.
        """
        kept = self.index(signs)
        for at, place in self.places.get(signs, ()):
            for first, second in self.problem.cut(at, (place,)):
                yield first.by_copies(kept).flatten(len(kept)), second.by_copies(kept).flatten(len(kept))

    def correlation(self, signs: Signs) -> Tensor:
        """The sum over these stretches of anchor times source transposed, ``(*further, *copies, n, n)``."""
        # Of the copies themselves: what counts them need not be among the spaces that are matched.
        permutation = self.block.permutation
        assert permutation is not None
        sizes = {permutation.name: permutation.group.size}
        sizes |= {outer: n for s in self.block.spaces for outer, n in zip(s.index, s.copies, strict=True)}
        counts = [sizes[outer] for outer in self.index(signs)]
        found = next(iter(self.problem.anchor.values())).new_zeros(*counts, counts[-1])
        # In place: of a wide layer one such matrix is larger than a weight.
        flat = found.view(-1, *found.shape[-2:])
        for a, b in self.rows(signs):
            first, second = (side.reshape(len(flat), *side.shape[-2:]) for side in (a, b))
            flat.baddbmm_(second, first.mT)
        return self.problem.total(self.block, found)[0]

    def gain(self) -> Tensor | float:
        """The worth of each pair of units by the best signs, ``(*copies, n, n)``; zero where there are no factors."""
        own = len(self.index(frozenset()))
        return best_gain(list(self.places), self.correlation, lambda signs: len(self.index(signs)) - own)


def best_gain(
    keys: Sequence[Signs], correlation: Callable[[Signs], Tensor], further: Callable[[Signs], int] = lambda _: 0
) -> Tensor | float:
    """The maximum over signs of the sum of correlations, each turned round by the product of its factors' signs.

    Args:
        keys: sets of factors.
        correlation: of a set; asked once for each, and given a tensor that may be written over.
        further: of a set, how many leading dimensions of its correlation count blocks with signs of their own, over
            which maxima are summed.
    """
    gain: Tensor | None = None
    for part in components(keys):
        best: Tensor | None = None
        for total, _ in _settled(part, correlation):
            best = total if best is None else torch.maximum(best, total)
        assert best is not None
        for _ in range(further(part[0])):
            best = best.sum(0)
        gain = best if gain is None else gain + best
    return 0.0 if gain is None else gain


def _settled(part: Sequence[Signs], correlation: Callable[[Signs], Tensor]) -> Iterator[tuple[Tensor, tuple[int, ...]]]:
    """The best sum of one component's correlations for each choice of the signs of its hubs."""
    chosen = hubs(part)
    choices = list(product((1, -1), repeat=len(chosen)))
    totals: list[Tensor | None] = [None] * len(choices)
    for name, group in alone(part, chosen).items():
        found = {key: correlation(key) for key in group}
        for number, choice in enumerate(choices):
            signed = turned(found, dict(zip(chosen, choice, strict=True)))
            if name is not None:
                # Without a choice it is looked at once.
                signed = signed.abs() if chosen else signed.abs_()
            known = totals[number]
            totals[number] = signed if known is None else known + signed
    for total, choice in zip(totals, choices, strict=True):
        assert total is not None
        yield total, choice


def components(keys: Collection[Signs]) -> list[list[Signs]]:
    """Sets of factors that hang together by common ones; each empty set by itself."""
    parts: list[list[Signs]] = []
    for key in keys:
        meeting = [part for part in parts if any(key & other for other in part)]
        parts = [part for part in parts if part not in meeting]
        parts.append([*(other for part in meeting for other in part), key])
    return parts


def hubs(keys: Collection[Signs]) -> tuple[str, ...]:
    """A few factors without which no two are in one set: one after the other that in most such sets."""
    left = [key for key in keys if len(key) > 1]
    found: list[str] = []
    while left:
        names = sorted({name for key in left for name in key})
        found.append(max(names, key=lambda name: sum(name in key for key in left)))
        left = [rest for key in left if len(rest := key - {found[-1]}) > 1]
    return tuple(found)


def alone(keys: Collection[Signs], chosen: Sequence[str]) -> dict[str | None, list[Signs]]:
    """The sets by the one factor in them that is no hub; those without one by None."""
    found: dict[str | None, list[Signs]] = {}
    for key in keys:
        found.setdefault(next(iter(key.difference(chosen)), None), []).append(key)
    return found


def turned(correlations: Mapping[Signs, Tensor], signs: Mapping[str, int]) -> Tensor:
    """The sum of correlations of sets of factors, each times the product of those signs that are given."""
    total: Tensor | None = None
    for key, correlation in correlations.items():
        odd = sum(sign < 0 for name, sign in signs.items() if name in key) % 2
        if total is None:
            total = -correlation if odd else correlation
        else:
            total = total - correlation if odd else total + correlation
    assert total is not None
    return total


def mean_signs(correlations: Mapping[Signs, Tensor]) -> tuple[dict[str, Tensor], Tensor | float]:
    """The means of factors' signs under ``exp`` of the sum of correlations, and the logarithm of its mean.

    Args:
        correlations: by set of factors, all of one shape.

    Returns:
        By factor its mean sign, of that shape; and the logarithm of the mean over all signs.
    """
    means: dict[str, Tensor] = {}
    gain: Tensor | float = 0.0
    for part in components(list(correlations)):
        chosen, groups = hubs(part), alone(part, hubs(part))
        choices = [dict(zip(chosen, choice, strict=True)) for choice in product((1, -1), repeat=len(chosen))]
        weights, tilts = [], []
        for choice in choices:
            sums = {name: turned({key: correlations[key] for key in group}, choice) for name, group in groups.items()}
            weights.append(sum(x if name is None else _log_cosh(x) for name, x in sums.items()))
            tilts.append({name: x.tanh() for name, x in sums.items() if name is not None})
        logs = torch.stack([torch.as_tensor(weight) for weight in weights])
        gain = gain + logs.logsumexp(0) - math.log(len(choices))
        shares = logs.softmax(0)
        for name in tilts[0]:
            means[name] = sum(share * tilt[name] for share, tilt in zip(shares, tilts, strict=True))
        for name in chosen:
            means[name] = sum(share * choice[name] for share, choice in zip(shares, choices, strict=True))
    return means, gain


def _log_cosh(x: Tensor) -> Tensor:
    return x.abs() + torch.log1p(torch.exp(-2 * x.abs())) - math.log(2)
