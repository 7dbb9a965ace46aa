"""Vectors that linear maps read, once a model is in its gauge: norms are folded, value biases cleared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fusionlab.symmetry import Blueprint, SymmetryError
from fusionlab.symmetry.axes import spaces_of
from fusionlab.symmetry.biases import biases_along, constant_read, readers_of_values
from fusionlab.symmetry.folding import fold_norm, keeps_bias
from fusionlab.types import State

# How much rounding may grow when a norm's bias is subtracted again, relative to what is left.
NOTICEABLE = 1e-4


@dataclass(frozen=True)
class Change:
    """A change of vectors ``x`` to ``(x - shift) / gain``, float64, shapes ``(features,)``."""

    gain: Tensor
    shift: Tensor

    def of_vectors(self, rows: Tensor) -> Tensor:
        """The changed vectors, shape ``(..., features, any)``.

        Raises:
            SymmetryError: see `_along`.
        """
        gain, shift = self._along(rows.shape[-2])
        return (rows - shift) / gain

    def of_gram(self, matrix: Tensor) -> Tensor:
        """``M G M^T`` with M the affine map ``(x, 1) -> ((x - shift) / gain, 1)``.

        Raises:
            SymmetryError: see `_along`.
        """
        gain, shift = self._along(len(matrix) - 1)
        for _ in range(2):
            changed = (matrix[:-1] - shift * matrix[-1]) / gain
            matrix = torch.cat([changed, matrix[-1:]]).mT
        return matrix

    def _along(self, features: int) -> tuple[Tensor, Tensor]:
        """Gain and shift of each feature, shape ``(features, 1)``: a convolution reads several places of each channel.

        Raises:
            SymmetryError: there are no equal parts of them.
        """
        places, left = divmod(features, len(self.gain))
        if left:
            raise SymmetryError(f"{features} features have no {len(self.gain)} equal parts; gather on the twin instead")
        return self.gain.repeat_interleave(places)[:, None], self.shift.repeat_interleave(places)[:, None]


@dataclass(frozen=True)
class Regauged:
    """The effect of bringing an end model into its gauge on what its linear maps read.

    Attributes:
        blueprint: in the gauge.
        source: the end model's parameters, which may be read when they are asked for.
    """

    blueprint: Blueprint
    source: State

    def change(self, weight: str, shape: Sequence[int], dtype: torch.dtype) -> Change | None:
        """The change of the vectors that a weight reads; None where there is none.

        Args:
            weight: the name of a parameter of the blueprint.
            shape: of it.
            dtype: that the statistics were gathered in.

        Raises:
            SymmetryError: see `check`.
        """
        if (folded := self._folded(weight, shape, dtype)) is not None:
            return folded
        constant = self._constant(weight, shape) if self.blueprint.unbiased else None
        return None if constant is None else Change(torch.ones_like(constant), constant)

    def check(self, weight: str, shape: Sequence[int], dtype: torch.dtype) -> None:
        """Refuse a weight whose vectors cannot be followed; arguments are those of `change`.

        Raises:
            SymmetryError: only some of its outputs read a norm that is folded, or a gain is so small beside the bias
                that rounding would show.
        """
        self._folded(weight, shape, dtype)

    def _folded(self, weight: str, shape: Sequence[int], dtype: torch.dtype) -> Change | None:
        """The effect of folding the norm that a weight reads."""
        found = [(norm, r) for norm in self.blueprint.norms for r in norm.readers if r.weight == weight]
        if not self.blueprint.folded or not found:
            return None
        norm, reader = found[0]
        gain = self._of(norm.weight) + norm.offset
        # A norm that cannot hand its bias on keeps it, divided by the gain: then only the gain is folded.
        kept = norm.bias is None or keeps_bias(norm, self.blueprint.biases)
        shift = torch.zeros_like(gain) if kept or norm.bias is None else self._of(norm.bias)
        grows = float((1 + (shift / gain).square()).nan_to_num(nan=torch.inf).max()) * torch.finfo(dtype).eps
        if len(found) > 1 or reader.rows is not None or bool((gain == 0).any()) or grows > NOTICEABLE:
            raise SymmetryError(f"what {weight!r} reads cannot be followed through folding; gather on the twin instead")
        # Several tokens' vectors may be read side by side.
        copies = shape[reader.dim] // len(gain)
        return Change(gain.repeat(copies), shift.repeat(copies))

    def _constant(self, weight: str, shape: Sequence[int]) -> Tensor | None:
        """The constant in all that a weight reads that value biases make, until they are cleared; None for none."""
        found = None
        for name in {space for axis in self.blueprint.parameters[weight] for space in spaces_of(axis)}:
            space = self.blueprint.spaces[name]
            for reader in readers_of_values(self.blueprint, space):
                for bias in biases_along(self.blueprint, space) if reader[0] == weight else ():
                    size = shape[reader[1]]
                    constant = constant_read(self._bias(bias), bias, self.blueprint, space, reader, size)
                    found = constant if found is None else found + constant
        return found

    def _bias(self, name: str) -> Tensor:
        """A bias, with what folding adds to it of a norm's, before which no bias is cleared."""
        bias, biases = self._of(name), self.blueprint.biases
        for norm in self.blueprint.norms if self.blueprint.folded else ():
            own = [reader for reader in norm.readers if biases.get(reader.weight) == name]
            if own and norm.bias is not None and not keeps_bias(norm, biases):
                state = {n: self._of(n) for n in (norm.weight, norm.bias, *(reader.weight for reader in own))}
                state[name] = bias
                fold_norm(state, replace(norm, readers=tuple(own)), biases)
                bias = state[name]
        return bias

    def _of(self, name: str) -> Tensor:
        """A parameter of the end model, or a stack of parameters, in float64."""
        entries = self.blueprint.stacks.get(name)
        return (self.source[name] if entries is None else torch.stack([self.source[one] for one in entries])).double()
