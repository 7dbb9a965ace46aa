"""A model on inputs that it was not traced with, asked whether a blueprint holds there too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fusionlab.symmetry.alignment import Alignment
from fusionlab.symmetry.biases import clear_biases
from fusionlab.symmetry.blueprint import Blueprint, Space, SymmetryError
from fusionlab.symmetry.change import relative_change
from fusionlab.symmetry.folding import fold
from fusionlab.symmetry.groups import Permutation
from fusionlab.symmetry.infer.attempts import EXACT
from fusionlab.symmetry.infer.other_lengths import longer, shorter
from fusionlab.symmetry.infer.other_numbers import outputs_for, redrawn
from fusionlab.symmetry.infer.second_names import second_names
from fusionlab.symmetry.infer.trace import Plain
from fusionlab.symmetry.stacks import Stacks, apart, stacked


@dataclass(frozen=True)
class Wrong:
    """A space that does not hold.

    Attributes:
        space: its name.
        where: the inputs for which it does not, in words.
    """

    space: str
    where: str


@dataclass
class _Tried:
    """Inputs, and what the model computes for them.

    Attributes:
        plain: the model, of which nothing else is asked: Swin's windows follow the first image that is smaller.
        inputs: by the names of the forward's arguments.
        expected: the outputs with the model's own parameters.
    """

    plain: Plain
    inputs: Mapping[str, Tensor]
    expected: Tensor


class OtherBatch:
    """A model on inputs that it was not traced with: other numbers, fewer and shorter ones, more and longer ones.

    Args:
        model: any module on the CPU; its weights are not looked at.
        inputs: a batch by the names of the forward's arguments.
        state: the parameters that it is run with; random ones if None.
        stacks: see `Blueprint.stacks`; the state knows those parameters by these names.

    Raises:
        SymmetryError: the model does not run on the inputs.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Mapping[str, Tensor],
        state: Mapping[str, Tensor] | None = None,
        stacks: Stacks | None = None,
    ) -> None:
        self._plain = Plain(model)
        # What counts, in whole numbers, is no part of the state.
        self._tied = {name: first for name, first in second_names(model).items() if first in self._plain.state}
        generator = torch.Generator().manual_seed(1)
        self._stacks = stacks or {}
        self._state = state or stacked(self._plain.generic(generator), self._stacks)
        other = {name: _another(x, generator) for name, x in inputs.items()}
        last: list[_Tried] = []

        def is_taken(batch: Mapping[str, Tensor]) -> bool:
            found = self._accepted(batch)
            last[:] = [found] if found is not None else last
            return found is not None

        if shorter(other, generator, is_taken) is None:
            ids = [name for name, x in inputs.items() if not x.is_floating_point() and x.ndim == 2]
            less = {name: x[:, 1:] if name in ids else x for name, x in other.items()}
            last = [self._accepted(less) or _Tried(self._plain, other, self._expected_of(other))]
        redrawn(last[0].inputs, generator, is_taken)
        self._tried = {"other inputs": last[0]}
        if longer(other, generator, is_taken) is not None:
            self._tried["longer or more inputs"] = last[0]

    def _accepted(self, inputs: Mapping[str, Tensor]) -> _Tried | None:
        """Inputs with the outputs for them; None where the model gives none, or such that are not finite."""
        own = self._plain.copied()
        out = outputs_for(own, apart(self._state, self._stacks), inputs)
        return None if out is None else _Tried(own, inputs, out)

    def _expected_of(self, inputs: Mapping[str, Tensor]) -> Tensor:
        try:
            return self._plain.kept(apart(self._state, self._stacks), inputs)
        except Exception as error:  # anything may be raised by a model's own code
            reason = next(iter(str(error).splitlines()), "")
            raise SymmetryError(f"the model does not run on the inputs ({type(error).__name__}: {reason})") from error

    def same(self, state: Mapping[str, Tensor]) -> bool:
        """The model computes with these parameters what it computes with its own, for inputs of one length."""
        return self._is_expected({**self._state, **state}, next(iter(self._tried.values())))

    def wrong(self, blueprint: Blueprint) -> Wrong | None:
        """The first space whose random element, or the gauge, changes the outputs; None where all together do not."""
        # A blueprint speaks of every name of a tensor, which has one here.
        state: Mapping[str, Tensor] = {**self._state, **{n: self._state[first] for n, first in self._tied.items()}}
        if blueprint.folded:
            state = fold(state, blueprint)
        if blueprint.unbiased:
            state = clear_biases(state, blueprint)
        drawn = Alignment.random(blueprint, torch.Generator().manual_seed(2)).elements
        elements = {name: _moving(blueprint.spaces[name], element) for name, element in drawn.items()}
        if (together := self._changed(state, blueprint, elements)) is None:
            return None
        for name, element in elements.items():
            if (alone := self._changed(state, blueprint, {name: element})) is not None:
                return Wrong(name, alone)
        return Wrong(next(iter(elements)), together) if elements else None

    def _changed(self, state: Mapping[str, Tensor], blueprint: Blueprint, elements: Mapping[str, Tensor]) -> str | None:
        """The inputs for which elements change the outputs, in words."""
        alignment = Alignment(blueprint, elements)
        touched = blueprint.touching(elements)
        moved = {name: alignment.apply_to(name, x) if name in touched else x for name, x in state.items()}
        if any(not torch.allclose(moved[name], moved[first], EXACT) for name, first in self._tied.items()):
            return "all names of one tensor"
        return self._where_not({name: moved[name] for name in self._state})

    def _where_not(self, state: Mapping[str, Tensor]) -> str | None:
        """The inputs for which the model computes something else with these parameters, in words."""
        return next((where for where, tried in self._tried.items() if not self._is_expected(state, tried)), None)

    def _is_expected(self, state: Mapping[str, Tensor], tried: _Tried) -> bool:
        state = apart(state, self._stacks)
        if _are_close(tried.plain.kept(state, tried.inputs), tried.expected):
            return True
        # A module may remember, as its longest text: only what it computes now can be compared.
        now = tried.plain.kept(apart(self._state, self._stacks), tried.inputs)
        if torch.equal(now, tried.expected):
            return False
        tried.expected = now
        return _are_close(tried.plain.kept(state, tried.inputs), now)


def _moving(space: Space, element: Tensor) -> Tensor:
    """An element, and of a few that are permuted another one where chance drew the order that they are in."""
    is_still = isinstance(space.group, Permutation) and torch.equal(element, space.group.identity(space.copies))
    return element.roll(1, -1) if is_still else element


def _are_close(out: Tensor, expected: Tensor) -> bool:
    return relative_change(out, expected) <= EXACT


def _another(x: Tensor, generator: torch.Generator) -> Tensor:
    """Inputs of the same kind: other numbers, or the same ids in another order of examples."""
    if x.is_floating_point():
        return torch.randn(x.shape, generator=generator, dtype=torch.float64)
    if x.ndim == 0:
        return x
    return x[torch.randperm(len(x), generator=generator)]
