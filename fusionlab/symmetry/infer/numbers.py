"""The numbers that every node of a graph computes, found once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from fusionlab.symmetry.infer.trace import Traced


class Numbers:
    """The numbers that every node of a graph computes, found once."""

    def __init__(self, traced: Traced) -> None:
        self._found: dict[fx.Node, Any] = {}
        self._varying: dict[fx.Node, list[bool]] = {}
        _Keeping(traced.graph, self._found).run(*traced.state.values(), *traced.inputs.values())

    def __getitem__(self, node: fx.Node) -> Any:
        return self._found[node]

    def free(self, node: fx.Node) -> list[bool]:
        """True for each dimension along which a constant does not vary."""
        if node not in self._varying:
            out = self._found[node].detach()
            # What is in memory that nobody wrote to is no information.
            self._varying[node] = [True] * out.ndim if "empty" in str(node.target) else free_dimensions(out)
        return self._varying[node]


class _Keeping(fx.Interpreter):
    def __init__(self, graph: fx.GraphModule, kept: dict[fx.Node, Any]) -> None:
        super().__init__(graph, garbage_collect_values=False)
        self._kept = kept

    @torch.no_grad()
    def run_node(self, n: fx.Node) -> Any:
        schema = getattr(n.target, "_schema", None)
        written = n.args[0] if schema is not None and schema.is_mutable and n.args else None
        if isinstance(written, fx.Node) and isinstance(self._kept[written], Tensor):
            # An operation in place: what stood there is what others were told of.
            self._kept[written] = self._kept[written].clone()
        self._kept[n] = super().run_node(n)
        return self._kept[n]


def free_dimensions(tensor: Tensor) -> list[bool]:
    """True for each dimension along which nothing varies."""
    if tensor.numel() == 0:
        return [True] * tensor.ndim
    return [bool((tensor == tensor.narrow(dim, 0, 1)).all()) for dim in range(tensor.ndim)]


def is_zero(tensor: Tensor) -> bool:
    """True of zeros alone, which put no condition on what meets them, is added to them or is written over them."""
    return tensor.numel() > 0 and not bool(tensor.any())
