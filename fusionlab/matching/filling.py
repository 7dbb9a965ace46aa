"""The numbers of a grown model that its function does not depend on, as functions of coordinates, for descent."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from fusionlab.learning.points import BufferDict
from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.symmetry.unseen import masked, unseen_entries


class Filling(nn.Module):
    """The numbers in those entries of a grown model that change nothing, as functions of coordinates.

    A coordinate counts in root mean squares of its parameter, so that steps of one length suit all of them, and angles.

    Args:
        model: as it was grown (see `unseen_entries`), or any other model, which has no such entries.
        blueprint: of the alignments that act on it.
        names: of the parameters that are looked at.
    """

    def __init__(self, model: nn.Module, blueprint: Blueprint, names: Collection[str]) -> None:
        super().__init__()
        noted = {name: where for name, where in unseen_entries(model).items() if name in names}
        state = blueprint.stacked(Alignment.identity(blueprint).apply(model.state_dict())) if noted else {}
        # A head of other labels is another parameter than the one that was grown.
        entries = {name: where for name, where in noted.items() if where.shape == state[name].shape}
        known = {name: state[name].to(torch.promote_types(state[name].dtype, torch.float32)) for name in entries}
        self.known, self.entries = BufferDict(known, persistent=False), BufferDict(entries, persistent=False)
        self.coordinates = nn.ParameterList(
            nn.Parameter(torch.zeros(int(where.sum()), dtype=known[name].dtype)) for name, where in entries.items()
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that have such entries."""
        return self.known.names

    def tensors(self) -> dict[str, Tensor]:
        """Those parameters before an alignment acts, differentiable in the coordinates."""
        found = {}
        entries = self.entries.tensors()
        for coordinates, (name, tensor) in zip(self.coordinates, self.known.tensors().items(), strict=True):
            size = tensor.square().mean().sqrt()
            found[name] = tensor + torch.zeros_like(tensor).masked_scatter(entries[name], size * coordinates)
        return found

    @torch.no_grad()
    def found(self) -> dict[str, Tensor]:
        """The numbers as they are now, as `Alignment.filling` has them, on the CPU."""
        entries = self.entries.tensors()
        return {name: masked(tensor, entries[name]).cpu() for name, tensor in self.tensors().items()}
