"""The start of coordinate ascent: deterministic annealing over all spaces at once.

Of two models from different seeds only some directions can be told apart at first (those that pixels, tokens,
positions and labels span). A rotation fitted to them must be completed somehow, and whatever is picked then passes
for knowledge. Here every space holds the mean of its elements under a temperature instead: for a rotation a
contraction that is zero where nothing is known, for a permutation a doubly stochastic matrix. As the temperature
falls, what is known spreads through the model, and the means become elements (Rose, "Deterministic annealing for
clustering, compression, classification, regression", 1998; for assignments Gold and Rangarajan, "A graduated
assignment algorithm", 1996). The mean of a rotation under ``exp(<G, C>)`` is the mean field of the matrix von
Mises-Fisher distribution. Nothing here depends on the basis that the models come in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from fusionlab.matching.assignment import assignment
from fusionlab.matching.blocks import Block
from fusionlab.matching.groups import geometry
from fusionlab.matching.problems import Problem, correlate_inner, correlate_permutation
from fusionlab.matching.signed_units import SignedUnits, Signs, mean_signs
from fusionlab.symmetry.axes import (
    Across,
    Along,
    Axis,
    Concat,
    Per,
    Scaled,
    refolded,
    spaces_of,
    unfolded,
    within,
)
from fusionlab.symmetry.blueprint import Space

# Inverse temperatures, relative to the size that a correlation has if all parameters agree: from where hardly anything
# is told apart to where every choice is made.
COLD, WARM = 50.0, 0.1

# By space, the mean of its elements as a matrix that acts on vectors: (n, n) for a permutation, (*copies, d, d) for a
# continuous space, (n, n, d, d) for one inside blocks that are permuted: anchor's block by source's block.
Means = Mapping[str, Tensor]


def anneal(found: Sequence[Sequence[Block]], problem: Problem, steps: int) -> tuple[dict[str, Tensor], frozenset[str]]:
    """Elements to start coordinate ascent from.

    Args:
        found: blocks in waves; those whose permutations or copies are permuted by another (query heads inside a group,
            units of experts) are left unsolved, and so is what is written or read through them.
        problem: the two models.
        steps: temperatures, each as far from the next.

    Returns:
        By space, an element, of what lies here; and the spaces that are left unsolved.
    """
    solved = frozenset(name for wave in found for block in wave for name in block.names)
    waves = [[replace(block, nested=()) for block in wave if _is_plain(block, solved)] for wave in found]
    every = [block for wave in waves for block in wave]
    skipped = {name for wave in found for block in wave for name in block.names}
    skipped -= {name for block in every for name in block.names}
    problem = replace(problem, unknown=frozenset(skipped))
    every = [block for block in every if not problem.is_elsewhere(block)]
    means, pairs = problem.keeper.table(), problem.keeper.table()
    means.update((space.name, _prior(space, block)) for block in every for space in block.spaces)
    unit = _unit(problem)
    for step in range(steps):
        beta = WARM * (COLD / WARM) ** (step / max(1, steps - 1)) / unit
        for block in every:
            block_means, block_pairs = _expect(block, _seen_by(block, problem, means), beta)
            means.update(block_means)
            pairs.update(block_pairs)
    elements: dict[str, Tensor] = {}
    for block in every:
        last = {name: pairs[name] if name in pairs else means[name] for name in block.names}
        elements |= problem.agreed(block, partial(_harden, block, last))
    return elements, problem.unknown


def _is_plain(block: Block, solved: frozenset[str]) -> bool:
    """True if no other block permutes what counts this one's spaces, and nothing but its own permutation does."""
    if block.permutation is None:
        return all(solved.isdisjoint(space.index) for space in block.inner)
    outer = (block.permutation.name,)
    return not block.permutation.index and not block.around and all(space.index == outer for space in block.inner)


def _prior(space: Space, block: Block) -> Tensor:
    """The mean over the whole group: nothing is known."""
    nothing = geometry(space.group).prior()
    if block.permutation is None or space == block.permutation:
        return nothing.expand(*space.copies, *nothing.shape)
    count = block.permutation.group.size
    return (nothing / count).expand(count, count, *nothing.shape)


def _unit(problem: Problem) -> float:
    """The mean product of two parameters, one of each model, if they agreed; 1 where there is nothing to agree on."""
    lengths = [float(problem.source[n].double().norm() * problem.anchor[n].double().norm()) for n in problem.source]
    count = problem.sum_of(sum(x.numel() for x in problem.source.values()))
    unit = problem.sum_of(sum(lengths)) / count
    return unit if unit > torch.finfo(torch.float64).tiny ** 0.5 else 1.0


def _seen_by(block: Block, problem: Problem, means: Means) -> Problem:
    """The source as one block sees it: moved by the means of all others."""
    others = {name: mean for name, mean in means.items() if name not in block.names}

    def moved(name: str) -> Tensor:
        tensor = problem.source[name]
        axes = problem.blueprint.parameters[name]
        together = _moved_with_blocks(axes, others)
        for dim, axis in enumerate(axes):
            if dim in together.values() or not any(space in others for space in spaces_of(axis)):
                continue
            rows, path = unfolded(axis, tensor, dim)
            if dim in together:
                acted = _act_blocks(within(axis), rows, others[path[-1]], others)
            else:
                acted = _act(within(axis), rows, path, others, problem.blueprint.spaces)
            tensor = refolded(axis, acted, tensor.shape, dim)
        return tensor

    # A parameter that runs through the block twice is left out: its other side has moved by no mean.
    seen = problem.changed(problem.touched(block.names), moved)
    return replace(seen, unknown=problem.unknown | block.names)


def _moved_with_blocks(axes: Sequence[Axis], means: Means) -> dict[int, int]:
    """Dimensions whose blocks lie along another one, with that one, where a mean moves both together."""
    return {
        dim: axis.dim
        for dim, axis in enumerate(axes)
        if isinstance(axis, Across) and any(space in means and means[space].ndim == 4 for space in spaces_of(axis))
    }


def _act(axis: Axis, vectors: Tensor, path: tuple[str, ...], means: Means, spaces: Mapping[str, Space]) -> Tensor:
    """Act with means on ``vectors`` of shape ``(*counts of path, size, features)``; see `Alignment.transform`."""
    match axis:
        case Along() if axis.space in means:
            matrix = means[axis.space].to(vectors)
            for position, outer in enumerate(path):
                if outer not in spaces[axis.space].index:
                    matrix = matrix.unsqueeze(position)
            return matrix @ vectors
        case Per():
            blocks = vectors.unflatten(-2, (axis.count, -1))
            if axis.space in means:
                return _act_blocks(axis.inner, blocks, means[axis.space], means).flatten(-3, -2)
            return _act(axis.inner, blocks, (*path, axis.space), means, spaces).flatten(-3, -2)
        case Concat():
            pieces = vectors.split(axis.sizes(vectors.shape[-2]), dim=-2)
            return torch.cat(
                [_act(part, piece, path, means, spaces) for part, piece in zip(axis.parts, pieces, strict=True)], -2
            )
        case Scaled():
            return _act(axis.inner, vectors, path, means, spaces)
        case Across():
            raise TypeError("an axis across dimensions stands inside of another")
    return vectors


def _act_blocks(inner: Axis, blocks: Tensor, order: Tensor, means: Means, sign: Tensor | float = 1.0) -> Tensor:
    """Act on ``blocks`` of shape ``(..., n, size, features)`` that a mean permutation mixes, and inside them.

    Args:
        inner: the axis of one block.
        blocks: of the source.
        order: the probability of each pair, the anchor's block by the source's.
        means: of all spaces.
        sign: the mean sign of the factors around, if the pair is chosen.
    """
    match inner:
        case Along() if inner.space in means and means[inner.space].ndim == 4:
            around = sign[..., None, None] if isinstance(sign, Tensor) else sign
            return torch.einsum("ijab,...jbf->...iaf", (around * means[inner.space]).to(blocks), blocks)
        case Scaled() if inner.space in means and inner.power % 2:
            # Signs of a pair are taken as independent; each mean is that of the pair times its probability.
            own = means[inner.space][..., 0, 0] / order.clamp_min(torch.finfo(order.dtype).tiny)
            return _act_blocks(inner.inner, blocks, order, means, sign * own)
        case Scaled():
            return _act_blocks(inner.inner, blocks, order, means, sign)
        case Per():
            within = blocks.unflatten(-2, (inner.count, -1)).movedim(-3, -2)
            acted = _act_blocks(inner.inner, within.flatten(-2), order, means, sign)
            return acted.unflatten(-1, within.shape[-2:]).movedim(-2, -3).flatten(-3, -2)
        case Concat():
            pieces = blocks.split(inner.sizes(blocks.shape[-2]), dim=-2)
            return torch.cat(
                [_act_blocks(part, piece, order, means, sign) for part, piece in zip(inner.parts, pieces, strict=True)],
                -2,
            )
        case _:
            return torch.einsum("ij,...jaf->...iaf", (sign * order).to(blocks), blocks)


def _expect(block: Block, problem: Problem, beta: float) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The means of one block's elements at one temperature.

    Returns:
        Their means; and where blocks are permuted, by the permutation what every pair of an anchor's and a source's
        block is worth, and by every inner space the mean if that pair is chosen.
    """
    if block.permutation is None:
        (space,) = block.inner
        found = correlate_inner(problem, block, space)
        total = beta * (found.primal + found.dual)
        return problem.agreed(block, lambda: {space.name: geometry(space.group).mean(total)[0]}), {}
    plain, _ = correlate_permutation(problem, block)
    products: dict[str, Tensor] = {}
    for space in block.inner:
        if not space.group.is_factor:
            correlation = correlate_inner(problem, block, space)
            products[space.name] = beta * (correlation.primal + correlation.dual)
    signed = SignedUnits(problem, block, block.names)
    turned = {signs: beta * signed.correlation(signs).double() for signs in signed.places}
    return problem.agreed(block, lambda: _means(block, beta * plain.double(), products, turned))


def _means(
    block: Block, value: Tensor, products: Mapping[str, Tensor], turned: Mapping[Signs, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """See `_expect`: the means of permuted blocks, from what their pairs are worth and the products inside them."""
    assert block.permutation is not None
    signs, gain = mean_signs(turned)
    value = value + gain
    inside = {}
    for space in block.inner:
        if space.group.is_factor:
            # A factor that turns nothing round is one where lengths are kept.
            inside[space.name] = signs.get(space.name, torch.ones_like(value))[..., None, None]
            continue
        inside[space.name], gain = geometry(space.group).mean(products[space.name])
        value = value + gain
    order, _ = geometry(block.permutation.group).mean(value)
    name = block.permutation.name
    return {name: order, **{n: order[..., None, None] * m for n, m in inside.items()}}, {name: value, **inside}


def _harden(block: Block, means: Means) -> dict[str, Tensor]:
    """The elements nearest to one block's means; for blocks that are permuted, to what every pair of them is worth."""
    if block.permutation is None:
        (space,) = block.inner
        return {space.name: geometry(space.group).closest(means[space.name].double())[0]}
    order = assignment(means[block.permutation.name])
    rows = torch.arange(order.numel())
    inner = {s.name: geometry(s.group).closest(means[s.name][rows, order].double())[0] for s in block.inner}
    return {block.permutation.name: order, **inner}
