"""Derivatives of a model's outputs: one backward pass tells of most parameters that the outputs depend on them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor

from fusionlab.symmetry.infer.trace import Traced

# A derivative of the outputs, by the largest of them, above which they surely depend on what was changed.
SURE = 1e-6


class Slopes:
    """The derivative of a random sum of a traced model's outputs by each of its parameters.

    Args:
        traced: the model.
        state: where it is taken.
    """

    def __init__(self, traced: Traced, state: Mapping[str, Tensor]) -> None:
        self._traced, self._state = traced, state

    def is_seen(self, name: str, dim: int | None = None) -> bool:
        """The outputs surely depend on a parameter, or on a constant added to it along a dimension.

        False says nothing: the outputs may be flat there, or have no derivative.
        """
        return self._largest.get(name, {}).get(dim, 0.0) > SURE

    def flat(self) -> frozenset[str]:
        """The matrices by which the derivative vanishes; none where there is no derivative at all."""
        known = self._largest
        return frozenset(name for name, x in self._state.items() if known and x.ndim > 1 and not self.is_seen(name))

    @cached_property
    def _largest(self) -> dict[str, dict[int | None, float]]:
        """By parameter, and along each dimension, the largest derivative in parts of the largest output."""
        fixed = _running_statistics(self._traced)
        leaves = {name: tensor.detach().requires_grad_(name not in fixed) for name, tensor in self._state.items()}
        free = {name: tensor for name, tensor in leaves.items() if name not in fixed}
        try:
            with torch.enable_grad():
                out = self._traced.told(leaves)
                weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(0), dtype=out.dtype)
                found = torch.autograd.grad((weights * out).sum(), list(free.values()), allow_unused=True)
        except RuntimeError:
            return {}  # an operation without a backward pass
        slopes = {name: g / out.detach().abs().max() for name, g in zip(free, found, strict=True) if g is not None}
        return {
            name: {None: _most(slope)} | {dim: _most(slope.sum(dim)) for dim in range(slope.ndim)}
            for name, slope in slopes.items()
        }


def _running_statistics(traced: Traced) -> set[str]:
    """The running means and variances of batch norms: PyTorch has no derivative by them."""
    nodes = traced.graph.graph.nodes
    names = dict(zip([node for node in nodes if node.op == "placeholder"], traced.state, strict=False))
    norms = [node for node in nodes if node.op == "call_function" and "batch_norm" in str(node.target)]
    return {names[given] for node in norms for given in node.args[3:5] if given in names}


def _most(x: Tensor) -> float:
    return float(x.abs().max()) if x.numel() else 0.0
