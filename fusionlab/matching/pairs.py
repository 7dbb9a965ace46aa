"""Pairs of units or heads that an assignment makes, and whether what was chosen brings models closer."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fusionlab.matching.blocks import Block
from fusionlab.matching.problems import Problem
from fusionlab.symmetry import Alignment


def paired(order: Tensor) -> tuple[Tensor, ...]:
    """The places of the pairs that permutations of shape ``(*copies, n)`` make, in tables ``(*copies, n, n, ...)``."""
    copies = (torch.arange(count).reshape(-1, *[1] * (order.ndim - dim - 1)) for dim, count in enumerate(order.shape))
    return (*copies, order)


def shortens(block: Block, elements: Mapping[str, Tensor], problem: Problem) -> bool:
    """True if elements of one block bring what is known of the source closer to the anchor, measured on the parameters.

    Near its optimum a gain is the difference of two large values and drowns in their rounding; distances do not.
    """
    before, after = (
        sum(
            float((a.view.double() - b.view.double()).square().sum())
            for a, b in side.stretches(block.names, block.names)
        )
        for side in (problem, problem.moved(Alignment(problem.blueprint, elements)))
    )
    (gain,) = problem.total(block, torch.tensor(before - after, dtype=torch.float64))
    return bool(gain > 0)
