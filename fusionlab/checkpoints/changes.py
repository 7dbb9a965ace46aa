"""Changes of weights by two factors, as LoRA makes them: of one matrix, and of experts' matrices in one tensor.

A weight becomes ``W + s B A`` with a scale of alpha and rank (Hu et al., "LoRA", 2022; Kalajdzievski, "A rank
stabilization scaling factor", 2023), and its rows have learned lengths on top (Liu et al., "DoRA", 2024).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Change:
    """A change of one layer's weight.

    Attributes:
        down: the factor that reads, A: ``(rank, in)``, of a convolution ``(rank, in, *kernel)``.
        up: the factor that writes, B: ``(out, rank)``.
        scale: of the product.
        magnitude: the length of every output's row, ``(out,)``, where it is learned (DoRA).
        bias: what is added to the bias, ``(out,)``, before the scale; None where nothing is.
    """

    down: Tensor
    up: Tensor
    scale: float
    magnitude: Tensor | None = None
    bias: Tensor | None = None

    def changed(self, weight: Tensor, is_turned: bool = False) -> Tensor:
        """The weight with this change, computed in float32 at least and rounded once.

        Args:
            weight: of the base model.
            is_turned: the weight is ``(in, out)``, as of an embedding or of GPT-2's Conv1D.

        Returns:
            The same shape and type.

        Raises:
            ValueError: the shapes do not fit.
        """
        if weight.ndim < 2:
            raise ValueError(f"factors for a weight of shape {tuple(weight.shape)}")
        wide = torch.promote_types(weight.dtype, torch.float32)
        rows = (weight.T if is_turned else weight.flatten(1)).to(wide)
        down, up = self.down.flatten(1).to(wide), self.up.flatten(1).to(wide)
        if down.shape[0] != up.shape[1] or rows.shape != (up.shape[0], down.shape[1]):
            raise ValueError(
                f"factors of shapes {tuple(self.up.shape)} and {tuple(self.down.shape)} for a weight of shape "
                f"{tuple(weight.shape)}"
            )
        rows = rows + self.scale * (up @ down)
        if self.magnitude is not None:
            rows = self.magnitude.flatten().to(wide)[:, None] / torch.linalg.norm(rows, dim=1, keepdim=True) * rows
        return (rows.T if is_turned else rows).reshape(weight.shape).to(weight.dtype)

    def of_rows(self, first: int, end: int, is_turned: bool = False) -> Change:
        """The change of some rows of a weight as it is stored; what it does to the bias is left out.

        Args:
            first: of the rows.
            end: the one behind them.
            is_turned: the weight is ``(in, out)``; then there is no magnitude, which is of whole columns.
        """
        if is_turned:
            return Change(self.down[:, first:end], self.up, self.scale)
        magnitude = None if self.magnitude is None else self.magnitude.flatten()[first:end]
        return Change(self.down, self.up[first:end], self.scale, magnitude)


@dataclass(frozen=True)
class Stack:
    """A change of the matrices of experts that are one tensor, each by two factors of its own.

    Attributes:
        down: the factors that read, A: ``(experts, rank, in)``; of a parameter of two dimensions there is one expert.
        up: the factors that write, B: ``(experts, out, rank)``.
        scale: of the products.
        is_turned: each matrix is stored as ``(in, out)``.
    """

    down: Tensor
    up: Tensor
    scale: float
    is_turned: bool = False

    @property
    def rank(self) -> int:
        """The rank of every expert's product."""
        return self.down.shape[1]

    @property
    def rows(self) -> int:
        """The rows of each expert's matrix as it is stored."""
        return self.down.shape[2] if self.is_turned else self.up.shape[1]

    @property
    def columns(self) -> int:
        """The columns of each expert's matrix as it is stored."""
        return self.up.shape[1] if self.is_turned else self.down.shape[2]

    def fits(self, shape: tuple[int, ...]) -> bool:
        """True for the shape of a parameter that this may be a change of.

        Args:
            shape: of the parameter, ``(experts, rows, columns)``, or ``(rows, columns)`` where there is one.
        """
        own = (len(self.down), self.rows, self.columns)
        return shape == own or (len(self.down) == 1 and shape == own[1:])

    def expert(self, number: int) -> Change:
        """The change of one expert's matrix as it is stored."""
        down, up = self.down[number], self.up[number]
        return Change(up.T, down.T, self.scale) if self.is_turned else Change(down, up, self.scale)

    def changed(self, weight: Tensor) -> Tensor:
        """The parameter with this change, computed in float32 at least and rounded once, an expert at a time.

        Args:
            weight: of the base model.

        Raises:
            ValueError: the shapes do not fit.
        """
        if not self.fits(tuple(weight.shape)):
            raise ValueError(
                f"factors of shapes {tuple(self.up.shape)} and {tuple(self.down.shape)} for a parameter of shape "
                f"{tuple(weight.shape)}"
            )
        return self.of_rows(weight.reshape(-1, self.columns), 0).reshape(weight.shape)

    def of_rows(self, rows: Tensor, first: int) -> Tensor:
        """Some rows of the parameter, of all experts one after the other, with this change and in their own type.

        Args:
            rows: of the base model, ``(count, columns)``.
            first: the place of the first of them.
        """
        changed, end = torch.empty_like(rows), first + len(rows)
        for number in range(first // self.rows, -(-end // self.rows)):
            start = number * self.rows
            here, behind = max(first, start), min(end, start + self.rows)
            place = slice(here - first, behind - first)
            changed[place] = self.expert(number).of_rows(here - start, behind - start).changed(rows[place])
        return changed
