"""Rectangular maps with at most one entry in each row: where each coordinate of a larger axis comes from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Gather:
    """A map into a larger space: ``out[i] = factor[i] * vector[source[i]]``, and zero where ``source[i]`` is -1.

    Attributes:
        source: int64, shape ``(larger,)``.
        factor: float64, shape ``(larger,)``.
        size: of the smaller axis.
        parts: int64, shape ``(larger,)``: 0 where something comes from, else the number of the part of what is new (new
            blocks and what is new inside of old ones are two); one part where it is None.
    """

    source: Tensor
    factor: Tensor
    size: int
    parts: Tensor | None = None

    @staticmethod
    def identity(size: int) -> Gather:
        """The map that changes nothing."""
        return Gather(torch.arange(size), torch.ones(size, dtype=torch.float64), size)

    @staticmethod
    def padding(size: int, larger: int, factor: float = 1.0) -> Gather:
        """All coordinates times one factor, then zeros."""
        source = torch.full((larger,), -1)
        source[:size] = torch.arange(size)
        return Gather(source, torch.full((larger,), factor, dtype=torch.float64), size)

    @staticmethod
    def repeating(size: int, larger: int, factor: float = 1.0) -> Gather:
        """All coordinates times one factor, again and again; `larger` is a multiple of `size`."""
        return Gather(torch.arange(larger) % size, torch.full((larger,), factor, dtype=torch.float64), size)

    @property
    def changes(self) -> bool:
        """The map is not the identity."""
        same = len(self.source) == self.size and torch.equal(self.source, torch.arange(self.size))
        return not (same and bool((self.factor == 1).all()))

    @property
    def new(self) -> Tensor:
        """The part of what is new that each entry belongs to, from 1; 0 for entries that come from the smaller axis."""
        return (self.source < 0).long() if self.parts is None else self.parts

    def around(self, inner: Gather) -> Gather:
        """The map of blocks: this one says where each block comes from, `inner` acts inside of every block."""
        source = self.source[:, None] * inner.size + inner.source[None]
        source[(self.source < 0)[:, None] | (inner.source < 0)[None]] = -1
        factor = self.factor[:, None] * inner.factor[None]
        outside, inside = self.new[:, None].expand_as(source), inner.new[None].expand_as(source)
        parts = torch.where((outside > 0) | (inside == 0), outside, inside + self.new.max())
        return Gather(source.flatten(), factor.flatten(), self.size * inner.size, parts.flatten())

    @staticmethod
    def beside(*parts: Gather) -> Gather:
        """The map of segments laid one after the other; of none, that of nothing."""
        if not parts:
            return Gather.identity(0)
        sources, new, start, count = [], [], 0, 0
        for part in parts:
            sources.append(torch.where(part.source < 0, -1, part.source + start))
            new.append(torch.where(part.new > 0, part.new + count, 0))
            start, count = start + part.size, count + int(part.new.max())
        return Gather(torch.cat(sources), torch.cat([part.factor for part in parts]), start, torch.cat(new))

    def back(self, tensor: Tensor, dim: int) -> Tensor:
        """The tensor that dimension `dim` was mapped from, in float64: the mean where several entries come from one.

        Of any tensor of the larger shape, so that ``back(map(x)) = x``; what comes from nowhere is left out.
        """
        if not self.changes:
            return tensor.double()
        known = torch.where(self.source >= 0)[0].to(tensor.device)
        source, shape = self.source.to(tensor.device)[known], [-1 if d == dim else 1 for d in range(tensor.ndim)]
        taken = tensor.double().index_select(dim, known) / self.factor.to(tensor.device)[known].reshape(shape)
        sizes = [self.size if d == dim else length for d, length in enumerate(tensor.shape)]
        counts = torch.bincount(source, minlength=self.size).clamp(min=1).reshape(shape)
        return torch.zeros(sizes, dtype=torch.float64, device=tensor.device).index_add(dim, source, taken) / counts

    def __call__(self, tensor: Tensor, dim: int, fill: float = 0.0) -> Tensor:
        """The tensor with dimension `dim` mapped, in float64; `fill` stands where nothing comes from."""
        if not self.changes:
            return tensor.double()
        shape = [-1 if d == dim else 1 for d in range(tensor.ndim)]
        # In place, since these may be the largest numbers that there are.
        taken = tensor.double().index_select(dim, self.source.clamp(min=0).to(tensor.device))
        taken *= self.factor.reshape(shape).to(tensor.device)
        return taken.masked_fill_((self.source < 0).reshape(shape).to(tensor.device), fill)
