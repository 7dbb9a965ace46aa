"""A model on inputs that it was not traced with, asked whether a blueprint holds there too."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fusionlab.symmetry.alignment import Alignment
from fusionlab.symmetry.biases import clear_biases
from fusionlab.symmetry.blueprint import Blueprint
from fusionlab.symmetry.folding import fold
from fusionlab.symmetry.infer.search import EXACT
from fusionlab.symmetry.infer.trace import Plain, generic
from fusionlab.types import State


class OtherBatch:
    """A model on inputs that it was not traced with: as many tokens less one, other numbers.

    Args:
        model: any module on the CPU; its weights are not looked at.
        inputs: a batch by the names of the forward's arguments.
        state: the parameters that it is run with; random ones if None.
    """

    def __init__(self, model: nn.Module, inputs: Mapping[str, Tensor], state: State | None = None) -> None:
        self._plain = Plain(model)
        generator = torch.Generator().manual_seed(1)
        self._state = state or {name: generic(x, generator) for name, x in self._plain.state.items()}
        self._inputs = {name: _another(x, generator) for name, x in inputs.items()}
        ids = [name for name, x in inputs.items() if not x.is_floating_point() and x.ndim == 2]
        shorter = {name: x[:, 1:] if name in ids else x for name, x in self._inputs.items()}
        for tried in (shorter, self._inputs):
            try:
                self._expected = self._plain.kept(self._state, tried)
            except Exception:  # a model's own code may want one length only
                continue
            self._inputs = tried
            break

    def wrong(self, blueprint: Blueprint) -> str | None:
        """The first space whose random element, or the gauge, changes the outputs; None where all together do not."""
        state: State = self._state
        if blueprint.folded:
            state = fold(state, blueprint)
        if blueprint.unbiased:
            state = clear_biases(state, blueprint)
        elements = Alignment.random(blueprint, torch.Generator().manual_seed(2)).elements
        if self._same(state, blueprint, elements):
            return None
        alone = (name for name in elements if not self._same(state, blueprint, {name: elements[name]}))
        return next(alone, next(iter(elements), None))

    def _same(self, state: State, blueprint: Blueprint, elements: Mapping[str, Tensor]) -> bool:
        alignment = Alignment(blueprint, elements)
        touched = blueprint.touching(elements)
        moved = {name: alignment.apply_to(name, x) if name in touched else x for name, x in state.items()}
        out = self._plain.kept(moved, self._inputs)
        return bool((out - self._expected).abs().max() <= EXACT * self._expected.abs().max())


def _another(x: Tensor, generator: torch.Generator) -> Tensor:
    """Inputs of the same kind: other numbers, or the same ids in another order of examples."""
    if x.is_floating_point():
        return torch.randn(x.shape, generator=generator, dtype=torch.float64)
    return x[torch.randperm(len(x), generator=generator)]
