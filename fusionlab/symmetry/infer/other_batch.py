"""A model on inputs that it was not traced with, asked whether a blueprint holds there too."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fusionlab.symmetry.alignment import Alignment
from fusionlab.symmetry.biases import clear_biases
from fusionlab.symmetry.blueprint import Blueprint, SymmetryError
from fusionlab.symmetry.folding import fold
from fusionlab.symmetry.infer.attempts import EXACT
from fusionlab.symmetry.infer.other_numbers import redrawn, takes
from fusionlab.symmetry.infer.second_names import second_names
from fusionlab.symmetry.infer.trace import Plain, generic


class OtherBatch:
    """A model on inputs that it was not traced with: as many tokens less one, other numbers.

    Args:
        model: any module on the CPU; its weights are not looked at.
        inputs: a batch by the names of the forward's arguments.
        state: the parameters that it is run with; random ones if None.

    Raises:
        SymmetryError: the model does not run on the inputs.
    """

    def __init__(
        self, model: nn.Module, inputs: Mapping[str, Tensor], state: Mapping[str, Tensor] | None = None
    ) -> None:
        self._plain, self._tied = Plain(model), second_names(model)
        generator = torch.Generator().manual_seed(1)
        self._state = state or {name: generic(x, generator) for name, x in self._plain.state.items()}
        self._inputs = {name: _another(x, generator) for name, x in inputs.items()}
        ids = [name for name, x in inputs.items() if not x.is_floating_point() and x.ndim == 2]
        shorter = {name: x[:, 1:] if name in ids else x for name, x in self._inputs.items()}
        try:
            self._expected = self._plain.kept(self._state, shorter)
            self._inputs = shorter
        except Exception:  # a model's own code may want one length only
            self._expected = self._expected_of_all()
        other = redrawn(self._inputs, generator, self._takes)
        if other.drawn:
            self._inputs, self._expected = other.batch, self._plain.kept(self._state, other.batch)

    def _takes(self, inputs: Mapping[str, Tensor]) -> bool:
        return takes(self._plain, self._state, inputs)

    def _expected_of_all(self) -> Tensor:
        try:
            return self._plain.kept(self._state, self._inputs)
        except Exception as error:  # anything may be raised by a model's own code
            reason = next(iter(str(error).splitlines()), "")
            raise SymmetryError(f"the model does not run on the inputs ({type(error).__name__}: {reason})") from error

    def same(self, state: Mapping[str, Tensor]) -> bool:
        """The model computes with these parameters what it computes with its own."""
        return self._is_expected(self._plain.kept({**self._state, **state}, self._inputs))

    def wrong(self, blueprint: Blueprint) -> str | None:
        """The first space whose random element, or the gauge, changes the outputs; None where all together do not."""
        # A blueprint speaks of every name of a tied parameter, which has one here.
        state: Mapping[str, Tensor] = {**self._state, **{n: self._state[first] for n, first in self._tied.items()}}
        if blueprint.folded:
            state = fold(state, blueprint)
        if blueprint.unbiased:
            state = clear_biases(state, blueprint)
        state = {name: state[name] for name in self._state}
        elements = Alignment.random(blueprint, torch.Generator().manual_seed(2)).elements
        if self._same(state, blueprint, elements):
            return None
        alone = (name for name in elements if not self._same(state, blueprint, {name: elements[name]}))
        return next(alone, next(iter(elements), None))

    def _same(self, state: Mapping[str, Tensor], blueprint: Blueprint, elements: Mapping[str, Tensor]) -> bool:
        alignment = Alignment(blueprint, elements)
        touched = blueprint.touching(elements)
        moved = {name: alignment.apply_to(name, x) if name in touched else x for name, x in state.items()}
        return self._is_expected(self._plain.kept(moved, self._inputs))

    def _is_expected(self, out: Tensor) -> bool:
        return bool((out - self._expected).abs().max() <= EXACT * self._expected.abs().max())


def _another(x: Tensor, generator: torch.Generator) -> Tensor:
    """Inputs of the same kind: other numbers, or the same ids in another order of examples."""
    if x.is_floating_point():
        return torch.randn(x.shape, generator=generator, dtype=torch.float64)
    if x.ndim == 0:
        return x
    return x[torch.randperm(len(x), generator=generator)]
