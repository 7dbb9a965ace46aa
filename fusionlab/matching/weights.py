"""Weight matching: closed form where spaces are uncoupled, block coordinate ascent where they are coupled."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from fusionlab.matching.options import MatchOptions
from fusionlab.matching.problems import (
    Block,
    State,
    blocks,
    correlate_inner,
    correlate_permutation,
    waves,
)
from fusionlab.matching.solvers import (
    BFLOAT16_MARGIN,
    Correlation,
    Rescale,
    assignment,
    certified_assignment,
    rotate_and_rescale,
)
from fusionlab.symmetry import Alignment, Blueprint

# Correlations of heads are solved many layers at a time, up to this many float64 numbers.
BATCH_ENTRIES = 2**25


def match_weights(source: State, anchor: State, blueprint: Blueprint, options: MatchOptions) -> Alignment:
    """The alignment that brings a source's weights closest to an anchor's.

    Spaces that no parameter couples are each solved once, to their global optimum (the paper's Algorithm 1 for
    rotations and Eq. 7 for feed-forward units). Coupled ones are solved in turn with the others held fixed; the
    distance never rises.

    Args:
        source: parameters by name; not modified.
        anchor: parameters by name, of the same blueprint, on the same device.
        blueprint: of both models.
        options: what to match; its gauge is the caller's business, both models are taken as they are.

    Returns:
        An alignment for the source.
    """
    spaces = options.select(blueprint)
    alignment = Alignment.identity(blueprint)
    if not spaces:
        return alignment
    groups = waves(blocks(spaces), blueprint)
    touched = blueprint.touching(space.name for space in spaces)
    start = {name: _workable(source[name]) for name in touched}
    goal = {name: _workable(anchor[name]) for name in touched}
    with torch.no_grad():
        if len(groups) == 1:
            return Alignment(blueprint, _solve(groups[0], blueprint, start, goal, options.rescale))
        state, before = start, squared_distance(start, goal)
        for _ in range(options.sweeps):
            for group in groups:
                step = Alignment(blueprint, _solve(group, blueprint, state, goal, options.rescale))
                state = state | {name: step.apply_to(name, state[name]) for name in blueprint.touching(step.elements)}
                alignment = step.compose(alignment)
            after = squared_distance(state, goal)
            if before - after <= 1e-9 * before:
                break
            before = after
    return alignment


def squared_distance(first: State, second: State, names: Iterable[str] | None = None) -> float:
    """Squared Euclidean distance between two models' parameters, summed in float64."""
    chosen = first if names is None else names
    return sum(float((first[name].double() - second[name].double()).square().sum()) for name in chosen)


@dataclass(frozen=True)
class _Batch:
    """Blocks of one shape whose inner correlations are stacked and solved together."""

    blocks: Sequence[Block]
    correlations: Sequence[Correlation]  # one for each inner space, stacked over the blocks


def _solve(
    group: Sequence[Block], blueprint: Blueprint, source: State, goal: State, rescale: Rescale
) -> dict[str, Tensor]:
    """The elements of uncoupled blocks."""
    elements: dict[str, Tensor] = {}
    units = [block for block in group if not block.inner]
    elements.update(_solve_units(units, blueprint, source, goal))
    for batch in _batches([block for block in group if block.inner], blueprint, source, goal):
        solved = [rotate_and_rescale(correlation, rescale) for correlation in batch.correlations]
        for position, block in enumerate(batch.blocks):
            inner = [(found[position], value[position]) for found, value in solved]
            unchanged = [correlation.unchanged()[position] for correlation in batch.correlations]
            elements.update(_assemble(block, inner, unchanged, blueprint, source, goal))
    return elements


def _assemble(
    block: Block,
    inner: Sequence[tuple[Tensor, Tensor]],
    unchanged: Sequence[Tensor],
    blueprint: Blueprint,
    source: State,
    goal: State,
) -> dict[str, Tensor]:
    """One block's elements from the solutions of its inner spaces, for each copy or for each pair of copies."""
    if block.permutation is None:
        # Rounding may leave the best element a hair worse than none at all; then nothing moves.
        identity = block.inner[0].group.identity(block.inner[0].copies).to(inner[0][0])
        better = (inner[0][1] > unchanged[0])[..., None, None]
        return {block.inner[0].name: torch.where(better, inner[0][0], identity)}
    direct, _ = correlate_permutation(block, blueprint, source, goal)
    value = 2 * direct.double() + torch.stack([value for _, value in inner]).sum(0)
    order = assignment(value)
    rows = torch.arange(order.numel())
    still = (2 * direct.double().trace() + torch.stack([u.trace() for u in unchanged]).sum()).to(value)
    if value[rows, order].sum() <= still:
        return {}
    chosen = {space.name: found[rows, order] for space, (found, _) in zip(block.inner, inner, strict=True)}
    return {block.permutation.name: order, **chosen}


def _batches(found: Sequence[Block], blueprint: Blueprint, source: State, goal: State) -> Iterable[_Batch]:
    """Stack the correlations of blocks of one shape, as many at a time as memory allows."""
    by_shape: dict[tuple, list[Block]] = {}
    for block in found:
        shape = (block.permutation and block.permutation.group, *((s.group, s.copies) for s in block.inner))
        by_shape.setdefault(shape, []).append(block)
    for alike in by_shape.values():
        entries = sum(torch.Size(s.copies).numel() * s.group.size**2 for s in alike[0].inner)
        entries *= 1 if alike[0].permutation is None else alike[0].permutation.group.size
        step = max(1, BATCH_ENTRIES // entries)
        for start in range(0, len(alike), step):
            chunk = alike[start : start + step]
            stacks = []
            for position in range(len(chunk[0].inner)):
                parts = [correlate_inner(b, b.inner[position], blueprint, source, goal) for b in chunk]
                stacks.append(
                    Correlation(*(torch.stack([getattr(part, field) for part in parts]) for field in _FIELDS))
                )
            yield _Batch(chunk, stacks)


_FIELDS = ("primal", "dual", "primal_norm", "dual_norm")


def _solve_units(found: Sequence[Block], blueprint: Blueprint, source: State, goal: State) -> dict[str, Tensor]:
    """Assignments of hidden units. Products run on all cores, solvers on one each, a few layers at a time."""
    elements: dict[str, Tensor] = {}
    workers = max(1, torch.get_num_threads())
    with ThreadPoolExecutor(workers) as pool:
        pending: deque[tuple[str, Future[Tensor]]] = deque()
        quick = True
        for block in found:
            assert block.permutation is not None
            name = block.permutation.name
            # The layers of two models are alike: where one cannot be read off, trying the others wastes a product.
            if quick and (certain := _quick_assignment(block, blueprint, source, goal)) is not None:
                elements[name] = certain
                continue
            quick = False
            if len(pending) == workers:
                elements.update([_finish(pending.popleft())])
            correlation, _ = correlate_permutation(block, blueprint, source, goal)
            pending.append((name, pool.submit(_improving_assignment, correlation)))
        elements.update(_finish(job) for job in pending)
    return elements


def _finish(job: tuple[str, Future[Tensor]]) -> tuple[str, Tensor]:
    return job[0], job[1].result()


def _improving_assignment(correlation: Tensor) -> Tensor:
    """The best assignment, or the identity where rounding in the solver left it no better than that."""
    order = assignment(correlation)
    exact = correlation.double()
    gained = exact[torch.arange(order.numel()), order.to(exact.device)].sum() > exact.trace()
    return order if gained else torch.arange(order.numel())


def _quick_assignment(block: Block, blueprint: Blueprint, source: State, goal: State) -> Tensor | None:
    """An assignment read off products in bfloat16, where the processor has them and their rounding cannot matter."""
    if not _fast_bfloat16(next(iter(source.values()))):
        return None
    correlation, bound = correlate_permutation(block, blueprint, source, goal, torch.bfloat16)
    certain = certified_assignment(correlation.float(), BFLOAT16_MARGIN * bound.float())
    return None if certain is None else certain.cpu()


def _fast_bfloat16(example: Tensor) -> bool:
    """Whether matrix products in bfloat16 are native here and save time over `example`'s own type."""
    if example.dtype != torch.float32:
        return False
    if example.is_cuda:
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return example.device.type == "cpu" and torch.cpu._is_avx512_bf16_supported()


def _workable(tensor: Tensor) -> Tensor:
    """A parameter in float32 or better."""
    return tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))
