"""Factors that share stretches, or act by other powers than 1 and -1: the best ones together.

Along one unit every stretch is multiplied by a product of powers of numbers, so that what is left of the squared
distance is, but for a constant, ``sum_e n_e x^(2 e) - 2 c_e x^e`` over the vectors of powers e that stretches have. In
one number it is a polynomial over a power, whose best root is found among all of them. Numbers that share stretches are
solved in turn, from every choice of signs and from several sizes of a few of them (`hubs`), without which the others
are apart: where those few are signs, as of a stream, that is the joint optimum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import torch
from torch import Tensor

from fusionlab.matching.groups import geometry
from fusionlab.matching.signed_units import alone, hubs, turned
from fusionlab.matching.solvers import Rescale, best_scale, real_roots
from fusionlab.symmetry import Space
from fusionlab.symmetry.groups import Signs

# By factor its power, in the order of the names; those that do not act are left out.
Powers = tuple[tuple[str, int], ...]
# By powers: the product of anchor and source, and the squared length of the source, each of shape (*copies).
Terms = Mapping[Powers, tuple[Tensor, Tensor]]
# Sizes that factors which share a stretch start from, and the most passes over them.
STARTS, PASSES = (0.25, 0.5, 1.0, 2.0, 4.0), 100


def best_factors(spaces: Sequence[Space], terms: Terms, rescale: Rescale) -> dict[str, Tensor]:
    """The factors that bring a source closest to an anchor, together.

    Args:
        spaces: of dimension one, all with the same copies.
        terms: of all stretches that they act on.
        rescale: ``off`` for signs alone.

    Returns:
        By space an element of shape ``(*copies, 1)``, float64; 1 where no size is best, as one side is zero.
    """
    terms = {powers: (c.double(), n.double()) for powers, (c, n) in terms.items()}
    found = _best_signs(spaces, terms) if rescale == "off" else _best_sizes(spaces, terms)
    return {name: factor.unsqueeze(-1) for name, factor in found.items()}


def left(terms: Terms, factors: Mapping[str, Tensor]) -> Tensor:
    """The squared distance that factors leave, but for a constant; shapes are broadcast."""
    total: Tensor | float = 0.0
    for powers, (c, n) in terms.items():
        x = _product(powers, factors)
        total = total + n * x**2 - 2 * c * x
    return torch.as_tensor(total)


def _product(powers: Powers, factors: Mapping[str, Tensor]) -> Tensor:
    found = torch.ones((), dtype=torch.float64)
    for name, power in powers:
        if name in factors:
            found = found * factors[name].pow(power)
    return found


def _is_signed(space: Space) -> bool:
    return geometry(space.group).is_assigned


def _best_signs(spaces: Sequence[Space], terms: Terms) -> dict[str, Tensor]:
    signed = {space.name for space in spaces if _is_signed(space)}
    sums: dict[frozenset[str], Tensor] = {}
    for powers, (c, _) in terms.items():
        key = frozenset(name for name, power in powers if name in signed and power % 2)
        sums[key] = sums[key] + c if key in sums else c
    shape = next(iter(sums.values()))
    chosen = hubs(sums)
    best: Tensor | None = None
    found = {space.name: torch.ones_like(shape) for space in spaces}
    for choice in product((1, -1), repeat=len(chosen)):
        fixed = dict(zip(chosen, choice, strict=True))
        total, signs = torch.zeros_like(shape), {name: torch.full_like(shape, sign) for name, sign in fixed.items()}
        for name, group in alone(sums, chosen).items():
            some = turned({key: sums[key] for key in group}, fixed)
            if name is not None:
                signs[name] = torch.where(some < 0, -1.0, 1.0).to(some)
            total = total + (some if name is None else some.abs())
        better = torch.ones_like(total, dtype=torch.bool) if best is None else total > best
        best = total if best is None else torch.maximum(best, total)
        found |= {name: torch.where(better, sign, found[name]) for name, sign in signs.items()}
    return found


def _best_sizes(spaces: Sequence[Space], terms: Terms) -> dict[str, Tensor]:
    by_name = {space.name: space for space in spaces}
    chosen = hubs([frozenset(name for name, _ in powers) for powers in terms])
    shape = next(iter(terms.values()))[0]
    options = list(product(*(_starts(by_name[name]) for name in chosen)))
    starts = torch.tensor(options, dtype=torch.float64).reshape(len(options), len(chosen))
    # A dimension of starts before those of copies.
    grid = (len(starts), *shape.shape)
    factors = {space.name: torch.ones(grid, dtype=torch.float64) for space in spaces}
    for position, name in enumerate(chosen):
        factors[name] = starts[:, position].reshape(-1, *[1] * shape.ndim).expand(grid)
    factors = {name: factor.to(shape.device) for name, factor in factors.items()}
    others = [space for space in spaces if space.name not in chosen]
    moving = [by_name[name] for name in chosen if not isinstance(by_name[name].group, Signs)]
    for _ in range(PASSES if moving else 1):
        before = dict(factors)
        for space in (*others, *moving):
            factors[space.name] = _best_one(space, terms, factors)
        if all(bool(((factors[n] - before[n]).abs() <= 1e-13 * before[n].abs()).all()) for n in factors):
            break
    values = left(terms, factors).expand(grid)
    still = left(terms, {name: torch.ones_like(factor[0]) for name, factor in factors.items()})
    which = values.argmin(0, keepdim=True)
    is_better = values.gather(0, which)[0] < still
    found = {name: factor.gather(0, which)[0] for name, factor in factors.items()}
    return {name: torch.where(is_better, factor, torch.ones_like(factor)) for name, factor in found.items()}


def _starts(space: Space) -> list[float]:
    sizes = [1.0] if isinstance(space.group, Signs) else list(STARTS)
    return [*sizes, *(-size for size in sizes)] if _is_signed(space) else sizes


def _best_one(space: Space, terms: Terms, factors: Mapping[str, Tensor]) -> Tensor:
    """The best of one space's factors with all others as they are."""
    others = {name: factor for name, factor in factors.items() if name != space.name}
    by_power: dict[int, tuple[Tensor, Tensor]] = {}
    for powers, (c, n) in terms.items():
        power = dict(powers).get(space.name)
        if power is not None:
            x = _product(powers, others)
            old = by_power.get(power, (0.0, 0.0))
            by_power[power] = old[0] + c * x, old[1] + n * x**2
    shape = factors[space.name].shape
    by_power = {power: (c.expand(shape), n.expand(shape)) for power, (c, n) in by_power.items()}
    if isinstance(space.group, Signs):
        odd = sum((c for power, (c, _) in by_power.items() if power % 2), torch.zeros(shape, dtype=torch.float64))
        return torch.where(odd < 0, -1.0, 1.0).double()
    found = best_power(by_power, positive=not _is_signed(space))
    # One but for rounding is one: what is the same already is not touched.
    return torch.where((found.abs() - 1).abs() < 1e-12, found.sign(), found)


def best_power(by_power: Mapping[int, tuple[Tensor, Tensor]], positive: bool) -> Tensor:
    """The real x that minimises ``sum_p n_p x^(2 p) - 2 c_p x^p``, as `best_scale` does for the powers 1 and -1.

    Args:
        by_power: by p, not zero, c and n of one shape ``(...)``.
        positive: only positive numbers count.

    Returns:
        Shape ``(...)``, never zero; 1 where n is zero at the largest power or at the smallest, or where all powers are
        of one sign, since then no number is best.
    """
    c, n = next(iter(by_power.values()))
    if set(by_power) == {1, -1}:
        return best_scale(by_power[1][0], by_power[-1][0], by_power[1][1], by_power[-1][1], positive)
    low, high = min(by_power), max(by_power)
    if low > 0 or high < 0:
        return torch.ones_like(n)
    coefficients = torch.zeros(*n.shape, 2 * (high - low) + 1, dtype=torch.float64, device=n.device)
    for power, (c, n) in by_power.items():
        coefficients[..., 2 * (power - low)] += 2 * power * n
        coefficients[..., power - 2 * low] -= 2 * power * c
    roots = real_roots(coefficients)
    roots = torch.where(roots > 0, roots, torch.nan) if positive else roots
    candidates = torch.cat([roots, torch.ones_like(roots[..., :1])], -1)
    cost = sum(
        n[..., None] * candidates ** (2 * p) - 2 * c[..., None] * candidates**p for p, (c, n) in by_power.items()
    )
    best = torch.as_tensor(cost).nan_to_num(nan=torch.inf, posinf=torch.inf).argmin(-1, keepdim=True)
    return candidates.gather(-1, best)[..., 0]
